// SPDX-License-Identifier: Apache-2.0
// How an algorithm is chosen: by trial.
#include <algorithm>
#include <string>
#include <utility>

#include "exec/cuda/calls/best_time.h"
#include "exec/cuda/calls/gemm_plan.h"

namespace rehearse::exec::cuda {
namespace {

constexpr int kRepetitions = 5;          // of a candidate that is timed; the fastest counts
constexpr float kBiasTolerance = 2e-2F;  // between two sums of a bias gradient, of the largest

}  // namespace

void Gemm::Plans::say_no_memory(std::int64_t bytes, const std::string& consequence) {
  cudaGetLastError();  // clears it
  if (!say || !said.insert(consequence).second) return;
  say("products: no " + std::to_string(bytes) + " bytes of GPU memory for a trial: " + consequence);
}

float Gemm::Plans::time_of(Stream stream, GemmWorkspace workspace, const GemmKey& key,
                           const GemmPlan& plan, const cublasLtMatmulAlgo_t& algorithm,
                           const GemmOperands& at) {
  ++timed;
  return best_time(stream, kRepetitions, [&] {
    return multiply(stream, workspace, key, plan, algorithm, at) == CUBLAS_STATUS_SUCCESS;
  });
}

// Times the candidates and keeps the fastest. A weight gradient adds to its output: another array
// takes it meanwhile, and where there is no memory for one the first candidate stays.
void Gemm::Plans::choose(Stream stream, GemmWorkspace workspace, const GemmKey& key,
                         GemmOperands at,
                         std::span<const cublasLtMatmulHeuristicResult_t> candidates,
                         GemmPlan* plan) {
  void* instead = nullptr;
  if (is_weight_gradient(key.product)) {
    if (cudaMallocAsync(&instead, static_cast<std::size_t>(4 * key.n * key.k), stream) !=
        cudaSuccess) {
      return say_no_memory(4 * key.n * key.k,
                           "weight gradients keep the first algorithm that cuBLASLt suggests, "
                           "perhaps a slow one");
    }
    at.out = instead;
  }
  float best = -1;
  for (const auto& candidate : candidates) {
    const float time = time_of(stream, workspace, key, *plan, candidate.algo, at);
    if (time < 0 || (best >= 0 && time >= best)) continue;
    best = time;
    plan->algorithm = candidate.algo;
  }
  if (instead != nullptr) cudaFreeAsync(instead, stream);
}

bool Gemm::Plans::epilogue_is_faster(Stream stream, std::int64_t m, std::int64_t n, std::int64_t k,
                                     const Way& in_epilogue, const Way& in_a_pass) {
  void* memory = nullptr;  // the weight's gradient, two of the bias, two numbers
  const std::int64_t sums = (n + 3) / 4 * 4, bytes = 4 * (n * k + 2 * sums + 2);
  if (cudaMallocAsync(&memory, static_cast<std::size_t>(bytes), stream) != cudaSuccess) {
    say_no_memory(bytes,
                  "bias gradients are summed by passes of their own, perhaps the slower way");
    return false;
  }
  auto* of_weight = static_cast<float*>(memory);
  float *one = of_weight + n * k, *other = one + sums, *numbers = other + sums;
  const bool only = std::exchange(only_plans, false);
  timed += 2;
  const float pass =
      best_time(stream, kRepetitions, [&] { return in_a_pass(of_weight, one) == 0; });
  const float epilogue =
      best_time(stream, kRepetitions, [&] { return in_epilogue(of_weight, other) == 0; });
  float apart[2] = {1, 0};  // difference, value
  const bool compared =
      pass >= 0 && epilogue >= 0 && fill(stream, 2 * sums, 0, one) == 0 &&
      in_a_pass(of_weight, one) == 0 && in_epilogue(of_weight, other) == 0 &&
      largest_difference(stream, Type::Float32, 1, n, n, one, other, numbers) == 0 &&
      cudaStreamSynchronize(stream) == cudaSuccess &&
      cudaMemcpy(apart, numbers, sizeof apart, cudaMemcpyDeviceToHost) == cudaSuccess;
  only_plans = only;
  cudaFreeAsync(memory, stream);
  const bool same = compared && apart[0] <= kBiasTolerance * apart[1];
  if (compared && !same && say) {
    say("products: cuBLASLt's bias gradient of " + std::to_string(m) + " x " + std::to_string(n) +
        " differs from the sums of columns; these are taken");
  }
  return same && epilogue < pass;
}

cublasStatus_t Gemm::Plans::make(Stream stream, GemmWorkspace workspace, const GemmKey& key,
                                 const GemmOperands& at, GemmPlan* plan) {
  GemmStatus status;
  status << describe(key, at, plan);
  if (status.get() != CUBLAS_STATUS_SUCCESS) return status.get();
  Candidates results{};
  int count = 0;
  status << propose(key, *plan, &results, &count);
  if (status.get() != CUBLAS_STATUS_SUCCESS) return status.get();
  if (count == 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  plan->algorithm = results[0].algo;
  if (take_given(key, *plan) || !tuning || key.type == Type::Float32 || count < 2) {
    return CUBLAS_STATUS_SUCCESS;
  }
  choose(stream, workspace, key, at, std::span(results).first(static_cast<std::size_t>(count)),
         plan);
  return CUBLAS_STATUS_SUCCESS;
}

int Gemm::Plans::run(Stream stream, GemmWorkspace workspace, Type type, Product product,
                     std::int64_t m, std::int64_t n, std::int64_t k, const GemmOperands& at) {
  if (m == 0 || n == 0 || k == 0) return 0;
  // Every part's address is as well aligned as the first one's, or as what lies between them.
  const auto aligned = [&](const void* first, std::int64_t columns) {
    const std::int64_t between = at.apart * columns * bytes_of(type);
    return std::min(alignment_of(first), alignment_of(reinterpret_cast<const void*>(between)));
  };
  const bool backward = product == Product::InputGradient || product == Product::InputGradientGelu;
  const GemmKey key{.type = type,
                    .product = product,
                    .m = m,
                    .n = n,
                    .k = k,
                    .stride = at.stride > 0 ? at.stride : n,
                    .left = alignment_of(at.left),
                    .right = aligned(at.right, backward ? n : k),
                    .out = aligned(at.out, backward ? k : n),
                    .workspace = workspace.bytes,
                    .parts = at.parts,
                    .apart = at.apart};
  const auto [place, fresh] = plans.try_emplace(key);
  GemmPlan& plan = place->second;
  GemmStatus status;
  status << created << (fresh ? make(stream, workspace, key, at, &plan) : plan.point(at));
  if (status.get() == CUBLAS_STATUS_SUCCESS && !only_plans) {
    status << multiply(stream, workspace, key, plan, plan.algorithm, at);
  }
  if (status.get() == CUBLAS_STATUS_SUCCESS) return cudaSuccess;
  if (fresh) plans.erase(place);
  return status.get() == CUBLAS_STATUS_NOT_SUPPORTED ? cudaErrorNotSupported : cudaErrorUnknown;
}
}  // namespace rehearse::exec::cuda
