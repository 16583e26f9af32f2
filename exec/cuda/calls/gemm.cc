// SPDX-License-Identifier: Apache-2.0
// cuBLASLt is column-major: an array (rows, columns) of ours is its (columns, rows), transposed. So
// y = x w^T is asked for as y^T = w x^T: `left` below is what cuBLASLt calls A.
#include "exec/cuda/calls/gemm.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <sstream>
#include <string_view>
#include <utility>

#include "exec/cuda/calls/best_time.h"

namespace rehearse::exec::cuda {
namespace {

constexpr int kCandidates = 8;           // that cuBLASLt's heuristics may propose
constexpr int kRepetitions = 5;          // of a candidate that is timed; the fastest counts
constexpr float kBiasTolerance = 2e-2F;  // between two sums of a bias gradient, of the largest

struct Operands {
  const void *left = nullptr, *right = nullptr, *bias = nullptr;
  void *out = nullptr, *aux = nullptr;
  std::int64_t stride = 0;            // GemmKey's; 0: n
  std::int64_t parts = 1, apart = 0;  // likewise
};

// How cuBLASLt sees a product: out(rows, columns) = op(left) op(right), summed over `depth`.
struct Form {
  bool left_transposed = false, right_transposed = false;
  std::int64_t rows = 0, columns = 0, depth = 0;
};
Form form_of(const GemmKey& key) {
  switch (key.product) {
    case Product::Linear:
    case Product::LinearBias:
    case Product::LinearBiasGelu:
    case Product::LinearFp32:
      return {true, false, key.n, key.m, key.k};
    case Product::InputGradient:
    case Product::InputGradientGelu:
      return {false, false, key.k, key.m, key.n};
    case Product::WeightGradient:
    case Product::WeightGradientBias:
      return {false, true, key.k, key.n, key.m};
  }
  return {};
}

cublasLtEpilogue_t epilogue_of(Product product) {
  switch (product) {
    case Product::LinearBias:
      return CUBLASLT_EPILOGUE_BIAS;
    case Product::LinearBiasGelu:
      return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case Product::InputGradientGelu:
      return CUBLASLT_EPILOGUE_DGELU;
    case Product::WeightGradientBias:
      return CUBLASLT_EPILOGUE_BGRADB;
    default:
      return CUBLASLT_EPILOGUE_DEFAULT;
  }
}

bool is_weight_gradient(Product product) {
  return product == Product::WeightGradient || product == Product::WeightGradientBias;
}

cudaDataType_t element_of(const GemmKey& key) {
  return key.type == Type::Float32    ? CUDA_R_32F
         : key.type == Type::BFloat16 ? CUDA_R_16BF
                                      : CUDA_R_16F;
}

std::int32_t alignment_of(const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  std::int32_t alignment = 256;
  while (address % static_cast<std::uintptr_t>(alignment) != 0) alignment /= 2;
  return alignment;
}

// Steps that may fail one after another; the first failure is kept.
class Status {
 public:
  Status& operator<<(cublasStatus_t next) {
    if (status_ == CUBLAS_STATUS_SUCCESS) status_ = next;
    return *this;
  }
  cublasStatus_t get() const { return status_; }

 private:
  cublasStatus_t status_ = CUBLAS_STATUS_SUCCESS;
};

struct Plan {
  cublasLtMatmulDesc_t description = nullptr;
  cublasLtMatrixLayout_t left = nullptr, right = nullptr, out = nullptr;
  cublasLtMatmulAlgo_t algorithm{};

  Plan() = default;
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  ~Plan() {
    for (cublasLtMatrixLayout_t layout : {left, right, out}) {
      if (layout != nullptr) cublasLtMatrixLayoutDestroy(layout);
    }
    if (description != nullptr) cublasLtMatmulDescDestroy(description);
  }

  template <class V>
  cublasStatus_t set(cublasLtMatmulDescAttributes_t attribute, const V& value) {
    return cublasLtMatmulDescSetAttribute(description, attribute, &value, sizeof value);
  }
  // The addresses that belong to a call and not to the plan.
  cublasStatus_t point(const Operands& at) {
    Status status;
    if (at.bias != nullptr) status << set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, at.bias);
    if (at.aux != nullptr) status << set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, at.aux);
    return status.get();
  }
};

}  // namespace

struct Gemm::Plans {
  cublasLtHandle_t handle = nullptr;
  cublasStatus_t created = CUBLAS_STATUS_NOT_INITIALIZED;
  std::map<GemmKey, Plan> plans;
  bool tuning = true;
  bool only_plans = false;
  std::int64_t timed = 0;
  std::map<GemmKey, cublasLtMatmulAlgo_t> given;  // by other processes
  // By the plain product's shape (type, m, n, k): does an epilogue sum the bias's gradient?
  std::map<std::array<std::int64_t, 4>, bool> sums_in_epilogue;
  Say say;
  bool said = false;

  cublasStatus_t describe(const GemmKey& key, const Operands& at, Plan* plan) const {
    const Form form = form_of(key);
    const cudaDataType_t element = element_of(key);
    const bool sums = is_weight_gradient(key.product);
    const cudaDataType_t out = key.product == Product::LinearFp32 || sums ? CUDA_R_32F : element;
    const bool reads_dy =
        sums || key.product == Product::InputGradient || key.product == Product::InputGradientGelu;
    // `apart`: columns from a part's first to the next one's.
    const auto layout = [&key](cublasLtMatrixLayout_t* to, cudaDataType_t of, bool transposed,
                               std::int64_t rows, std::int64_t columns, std::int64_t stride,
                               std::int64_t apart) {
      if (transposed) std::swap(rows, columns);
      const std::int64_t ld = stride > 0 ? stride : rows, offset = apart * ld;
      Status made;
      made << cublasLtMatrixLayoutCreate(to, of, static_cast<std::uint64_t>(rows),
                                         static_cast<std::uint64_t>(columns), ld);
      if (key.parts == 1 || made.get() != CUBLAS_STATUS_SUCCESS) return made.get();
      const auto parts = static_cast<std::int32_t>(key.parts);
      made << cublasLtMatrixLayoutSetAttribute(*to, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &parts,
                                               sizeof parts)
           << cublasLtMatrixLayoutSetAttribute(*to, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                               &offset, sizeof offset);
      return made.get();
    };
    const cublasOperation_t operations[] = {CUBLAS_OP_N, CUBLAS_OP_T};
    Status status;
    status << cublasLtMatmulDescCreate(&plan->description, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    if (status.get() != CUBLAS_STATUS_SUCCESS) return status.get();
    status << plan->set(CUBLASLT_MATMUL_DESC_TRANSA, operations[form.left_transposed ? 1 : 0])
           << plan->set(CUBLASLT_MATMUL_DESC_TRANSB, operations[form.right_transposed ? 1 : 0])
           << plan->set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(key.product))
           << layout(&plan->left, element, form.left_transposed, form.rows, form.depth, 0, 0)
           << layout(&plan->right, element, form.right_transposed, form.depth, form.columns,
                     reads_dy ? key.stride : 0, key.apart)
           << layout(&plan->out, out, false, form.rows, form.columns, reads_dy ? 0 : key.stride,
                     key.apart);
    if (at.bias != nullptr) {
      status << plan->set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, sums ? CUDA_R_32F : element);
    }
    if (at.aux != nullptr) {
      status << plan->set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, form.rows)
             << plan->set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, element);
      if (key.parts > 1) {
        status << plan->set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, key.apart * form.rows);
      }
    }
    return (status << plan->point(at)).get();
  }

  // What cuBLASLt proposes, best first by its own estimate.
  cublasStatus_t propose(const GemmKey& key, const Plan& plan,
                         std::array<cublasLtMatmulHeuristicResult_t, kCandidates>* results,
                         int* count) const {
    cublasLtMatmulPreference_t preference = nullptr;
    Status status;
    status << cublasLtMatmulPreferenceCreate(&preference);
    if (status.get() != CUBLAS_STATUS_SUCCESS) return status.get();
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      status << cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value);
    };
    const auto alignment = [](std::int32_t bytes) { return static_cast<std::uint32_t>(bytes); };
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(key.workspace));
    // Parts of a split product are added in fp32, in order, not in the output's type.
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(key.left));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(key.right));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(key.out));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(key.out));
    status << cublasLtMatmulAlgoGetHeuristic(handle, plan.description, plan.left, plan.right,
                                             plan.out, plan.out, preference, kCandidates,
                                             results->data(), count);
    cublasLtMatmulPreferenceDestroy(preference);
    return status.get();
  }

  cublasStatus_t multiply(Stream stream, GemmWorkspace workspace, const GemmKey& key,
                          const Plan& plan, const cublasLtMatmulAlgo_t& algorithm,
                          const Operands& at) const {
    const float alpha = 1, beta = is_weight_gradient(key.product) ? 1 : 0;
    return cublasLtMatmul(handle, plan.description, &alpha, at.left, plan.left, at.right,
                          plan.right, &beta, at.out, plan.out, at.out, plan.out, &algorithm,
                          workspace.data, static_cast<std::size_t>(workspace.bytes), stream);
  }

  // Milliseconds of one run; negative: it failed.
  float time_of(Stream stream, GemmWorkspace workspace, const GemmKey& key, const Plan& plan,
                const cublasLtMatmulAlgo_t& algorithm, const Operands& at) {
    ++timed;
    return best_time(stream, kRepetitions, [&] {
      return multiply(stream, workspace, key, plan, algorithm, at) == CUBLAS_STATUS_SUCCESS;
    });
  }

  // Times the candidates and keeps the fastest. A weight gradient adds to its output: another array
  // takes it meanwhile, and where there is no memory for one the first candidate stays.
  void choose(Stream stream, GemmWorkspace workspace, const GemmKey& key, Operands at,
              std::span<const cublasLtMatmulHeuristicResult_t> candidates, Plan* plan) {
    void* instead = nullptr;
    if (is_weight_gradient(key.product)) {
      if (cudaMallocAsync(&instead, static_cast<std::size_t>(4 * key.n * key.k), stream) !=
          cudaSuccess) {
        cudaGetLastError();  // clears it
        if (say && !std::exchange(said, true)) {
          say("products: no " + std::to_string(4 * key.n * key.k) +
              " bytes of GPU memory for a trial: weight gradients keep the first algorithm that "
              "cuBLASLt suggests, perhaps a slow one");
        }
        return;
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

  // Times both ways of a weight's gradient with its bias's, on other arrays than the gradients, and
  // compares the bias's. In a trial products multiply, whatever is asked for otherwise.
  template <class InEpilogue, class InAPass>
  bool epilogue_is_faster(Stream stream, std::int64_t m, std::int64_t n, std::int64_t k,
                          const InEpilogue& in_epilogue, const InAPass& in_a_pass) {
    void* memory = nullptr;  // the weight's gradient, two of the bias, two numbers
    const std::int64_t sums = (n + 3) / 4 * 4, bytes = 4 * (n * k + 2 * sums + 2);
    if (cudaMallocAsync(&memory, static_cast<std::size_t>(bytes), stream) != cudaSuccess) {
      cudaGetLastError();  // clears it
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

  cublasStatus_t make(Stream stream, GemmWorkspace workspace, const GemmKey& key,
                      const Operands& at, Plan* plan) {
    Status status;
    status << describe(key, at, plan);
    if (status.get() != CUBLAS_STATUS_SUCCESS) return status.get();
    std::array<cublasLtMatmulHeuristicResult_t, kCandidates> results{};
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

  // Whether another process's algorithm is now the plan's: not where this device does not run it.
  bool take_given(const GemmKey& key, Plan& plan) const {
    const auto found = given.find(key);
    if (found == given.end()) return false;
    cublasLtMatmulHeuristicResult_t result{};
    const cublasStatus_t status =
        cublasLtMatmulAlgoCheck(handle, plan.description, plan.left, plan.right, plan.out, plan.out,
                                &found->second, &result);
    const bool runs = status == CUBLAS_STATUS_SUCCESS &&
                      result.workspaceSize <= static_cast<std::size_t>(key.workspace);
    if (runs) plan.algorithm = found->second;
    return runs;
  }

  int run(Stream stream, GemmWorkspace workspace, Type type, Product product, std::int64_t m,
          std::int64_t n, std::int64_t k, const Operands& at) {
    if (m == 0 || n == 0 || k == 0) return 0;
    // Every part's address is as well aligned as the first one's, or as what lies between them.
    const auto aligned = [&](const void* first, std::int64_t columns) {
      const std::int64_t between = at.apart * columns * bytes_of(type);
      return std::min(alignment_of(first), alignment_of(reinterpret_cast<const void*>(between)));
    };
    const bool backward =
        product == Product::InputGradient || product == Product::InputGradientGelu;
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
    Plan& plan = place->second;
    Status status;
    status << created << (fresh ? make(stream, workspace, key, at, &plan) : plan.point(at));
    if (status.get() == CUBLAS_STATUS_SUCCESS && !only_plans) {
      status << multiply(stream, workspace, key, plan, plan.algorithm, at);
    }
    if (status.get() == CUBLAS_STATUS_SUCCESS) return cudaSuccess;
    if (fresh) plans.erase(place);
    return status.get() == CUBLAS_STATUS_NOT_SUPPORTED ? cudaErrorNotSupported : cudaErrorUnknown;
  }
};

namespace {

int add_to(Stream stream, std::int64_t count, const float* from, float* to) {
  const void* in[] = {to, from};
  void* out[] = {to};
  return reduce_arrays(stream, Type::Float32, Reduction::Sum, count, in, out);
}

constexpr std::int64_t aligned_bytes(std::int64_t bytes) {
  return (bytes + 255) / 256 * 256;
}

}  // namespace

// The epilogue's sums, then what the pass of its own takes.
std::int64_t Gemm::bias_scratch(std::int64_t m, std::int64_t n) {
  return aligned_bytes(4 * n) + column_sums_scratch(m, n);
}

int Gemm::linear_weight_bias(Stream stream, Type type, std::int64_t m, std::int64_t n,
                             std::int64_t k, const void* dy, const void* x, float* dw, float* sums,
                             GemmWorkspace workspace, void* scratch) {
  Plans& p = *plans_;
  auto* own = static_cast<float*>(scratch);
  void* pass = static_cast<std::byte*>(scratch) + aligned_bytes(4 * n);
  const auto in_epilogue = [&](float* to, float* bias) {
    const int status = p.run(stream, workspace, type, Product::WeightGradientBias, m, n, k,
                             {.left = x, .right = dy, .bias = own, .out = to});
    return status != 0 || p.only_plans ? status : add_to(stream, n, own, bias);
  };
  const auto in_a_pass = [&](float* to, float* bias) {
    const int status = linear_weight(stream, type, m, n, k, dy, x, to, workspace);
    return status != 0 || p.only_plans ? status
                                       : add_column_sums(stream, type, m, n, dy, bias, pass);
  };
  if (m == 0 || n == 0 || k == 0) return in_a_pass(dw, sums);
  const std::array<std::int64_t, 4> shape{static_cast<std::int64_t>(type), m, n, k};
  auto found = p.sums_in_epilogue.find(shape);
  if (found == p.sums_in_epilogue.end()) {
    const bool tries = p.tuning && type != Type::Float32;
    const bool faster = tries && p.epilogue_is_faster(stream, m, n, k, in_epilogue, in_a_pass);
    found = p.sums_in_epilogue.emplace(shape, faster).first;
  }
  if (found->second) {
    const int status = in_epilogue(dw, sums);
    if (status != cudaErrorNotSupported) return status;
    found->second = false;  // another process has found it, on another device
  }
  return in_a_pass(dw, sums);
}

Gemm::Gemm(Say say) : plans_(std::make_unique<Plans>()) {
  plans_->say = std::move(say);
  plans_->created = cublasLtCreate(&plans_->handle);
}
Gemm::~Gemm() {
  plans_->plans.clear();
  if (plans_->handle != nullptr) cublasLtDestroy(plans_->handle);
}

int Gemm::linear(Stream stream, Type type, std::int64_t m, std::int64_t n, std::int64_t k,
                 const void* x, const void* w, const void* bias, void* y, GemmWorkspace workspace) {
  // The epilogue reads the bias 16 bytes at a time.
  const bool fused = bias != nullptr && alignment_of(bias) >= 16;
  const int status =
      plans_->run(stream, workspace, type, fused ? Product::LinearBias : Product::Linear, m, n, k,
                  {.left = w, .right = x, .bias = fused ? bias : nullptr, .out = y});
  return status != 0 || bias == nullptr || fused ? status : add_bias(stream, type, m, n, bias, y);
}

int Gemm::linear_gelu(Stream stream, Type type, std::int64_t m, std::int64_t n, std::int64_t k,
                      const void* x, const void* w, const void* bias, void* u, void* y,
                      GemmWorkspace workspace) {
  if (type == Type::Float32 || n % 8 != 0 || alignment_of(u) < 16 || alignment_of(y) < 16 ||
      bias == nullptr || alignment_of(bias) < 16) {
    return cudaErrorNotSupported;
  }
  return plans_->run(stream, workspace, type, Product::LinearBiasGelu, m, n, k,
                     {.left = w, .right = x, .bias = bias, .out = y, .aux = u});
}

int Gemm::linear_fp32(Stream stream, Type type, std::int64_t m, std::int64_t n, std::int64_t k,
                      const void* x, const void* w, float* y, GemmWorkspace workspace) {
  return plans_->run(stream, workspace, type, Product::LinearFp32, m, n, k,
                     {.left = w, .right = x, .out = y});
}

int Gemm::linear_input(Stream stream, Type type, std::int64_t m, std::int64_t n, std::int64_t k,
                       const void* dy, const void* w, void* dx, GemmWorkspace workspace) {
  return plans_->run(stream, workspace, type, Product::InputGradient, m, n, k,
                     {.left = w, .right = dy, .out = dx});
}

int Gemm::linear_input_gelu(Stream stream, Type type, std::int64_t m, std::int64_t n,
                            std::int64_t k, const void* dy, const void* w, const void* u, void* du,
                            GemmWorkspace workspace) {
  if (type == Type::Float32 || k % 8 != 0 || alignment_of(u) < 16) return cudaErrorNotSupported;
  // The epilogue only reads `aux` here.
  return plans_->run(stream, workspace, type, Product::InputGradientGelu, m, n, k,
                     {.left = w, .right = dy, .out = du, .aux = const_cast<void*>(u)});
}

int Gemm::linear_weight(Stream stream, Type type, std::int64_t m, std::int64_t n, std::int64_t k,
                        const void* dy, const void* x, float* dw, GemmWorkspace workspace) {
  return plans_->run(stream, workspace, type, Product::WeightGradient, m, n, k,
                     {.left = x, .right = dy, .out = dw});
}

int Gemm::logits(Stream stream, Type type, std::int64_t m, std::int64_t n, std::int64_t k,
                 std::int64_t stride, const void* x, const void* w, void* y,
                 GemmWorkspace workspace) {
  return plans_->run(stream, workspace, type, Product::Linear, m, n, k,
                     {.left = w, .right = x, .out = y, .stride = stride});
}

int Gemm::logits_input(Stream stream, Type type, std::int64_t m, std::int64_t n, std::int64_t k,
                       std::int64_t stride, const void* dy, const void* w, void* dx,
                       GemmWorkspace workspace) {
  return plans_->run(stream, workspace, type, Product::InputGradient, m, n, k,
                     {.left = w, .right = dy, .out = dx, .stride = stride});
}

int Gemm::logits_weight(Stream stream, Type type, std::int64_t m, std::int64_t n, std::int64_t k,
                        std::int64_t stride, const void* dy, const void* x, float* dw,
                        GemmWorkspace workspace) {
  return plans_->run(stream, workspace, type, Product::WeightGradient, m, n, k,
                     {.left = x, .right = dy, .out = dw, .stride = stride});
}

int Gemm::linear_piece(Stream stream, Type type, const PieceShape& p, const void* x, const void* w,
                       const void* bias, void* y, GemmWorkspace workspace) {
  const bool fused = bias != nullptr && alignment_of(bias) >= 16;
  const int status = plans_->run(stream, workspace, type,
                                 fused ? Product::LinearBias : Product::Linear, p.rows, p.n, p.k,
                                 {.left = w,
                                  .right = x,
                                  .bias = fused ? bias : nullptr,
                                  .out = y,
                                  .parts = p.parts,
                                  .apart = p.apart});
  if (status != 0 || bias == nullptr || fused) return status;
  for (std::int64_t part = 0; part < p.parts; ++part) {
    auto* to = static_cast<std::byte*>(y) + part * p.apart * p.n * bytes_of(type);
    if (const int added = add_bias(stream, type, p.rows, p.n, bias, to); added != 0) return added;
  }
  return 0;
}

int Gemm::linear_gelu_piece(Stream stream, Type type, const PieceShape& p, const void* x,
                            const void* w, const void* bias, void* u, void* y,
                            GemmWorkspace workspace) {
  if (type == Type::Float32 || p.n % 8 != 0 || alignment_of(u) < 16 || alignment_of(y) < 16 ||
      bias == nullptr || alignment_of(bias) < 16) {
    return cudaErrorNotSupported;
  }
  return plans_->run(stream, workspace, type, Product::LinearBiasGelu, p.rows, p.n, p.k,
                     {.left = w,
                      .right = x,
                      .bias = bias,
                      .out = y,
                      .aux = u,
                      .parts = p.parts,
                      .apart = p.apart});
}

int Gemm::linear_input_piece(Stream stream, Type type, const PieceShape& p, const void* dy,
                             const void* w, void* dx, GemmWorkspace workspace) {
  return plans_->run(stream, workspace, type, Product::InputGradient, p.rows, p.n, p.k,
                     {.left = w, .right = dy, .out = dx, .parts = p.parts, .apart = p.apart});
}

int Gemm::linear_input_gelu_piece(Stream stream, Type type, const PieceShape& p, const void* dy,
                                  const void* w, const void* u, void* du, GemmWorkspace workspace) {
  if (type == Type::Float32 || p.k % 8 != 0 || alignment_of(u) < 16) return cudaErrorNotSupported;
  return plans_->run(stream, workspace, type, Product::InputGradientGelu, p.rows, p.n, p.k,
                     {.left = w,
                      .right = dy,
                      .out = du,
                      .aux = const_cast<void*>(u),
                      .parts = p.parts,
                      .apart = p.apart});
}

void Gemm::tune(bool on) {
  plans_->tuning = on;
}
void Gemm::only_plan(bool on) {
  plans_->only_plans = on;
}

namespace {

// "product TYPE PRODUCT m n k stride left right out workspace parts apart", as a line's key.
constexpr std::string_view kLine = "product ";
// "bias TYPE m n k", likewise.
constexpr std::string_view kBiasLine = "bias ";
std::array<std::int64_t, 12> numbers_of(const GemmKey& k) {
  return {static_cast<std::int64_t>(k.type),
          static_cast<std::int64_t>(k.product),
          k.m,
          k.n,
          k.k,
          k.stride,
          k.left,
          k.right,
          k.out,
          k.workspace,
          k.parts,
          k.apart};
}

}  // namespace

std::string Gemm::choices() const {
  std::string lines;
  for (const auto& [key, plan] : plans_->plans) {
    if (!plans_->tuning || key.type == Type::Float32) continue;
    lines += kLine;
    for (const std::int64_t number : numbers_of(key)) lines += std::to_string(number) + ' ';
    lines.back() = '=';
    for (const std::uint64_t word : plan.algorithm.data) lines += std::to_string(word) + ' ';
    lines.back() = '\n';
  }
  for (const auto& [shape, in_epilogue] : plans_->sums_in_epilogue) {
    if (!plans_->tuning || static_cast<Type>(shape[0]) == Type::Float32) continue;
    lines += kBiasLine;
    for (const std::int64_t number : shape) lines += std::to_string(number) + ' ';
    lines.back() = '=';
    lines += in_epilogue ? "1\n" : "0\n";
  }
  return lines;
}

void Gemm::take(const std::string& line) {
  if (line.starts_with(kBiasLine)) {
    std::istringstream in(line.substr(kBiasLine.size()));
    std::array<std::int64_t, 4> shape{};
    for (std::int64_t& number : shape) in >> number;
    char equals = 0;
    int in_epilogue = 0;
    in >> equals >> in_epilogue;
    if (!in.fail() && equals == '=') plans_->sums_in_epilogue[shape] = in_epilogue == 1;
    return;
  }
  if (!line.starts_with(kLine)) return;
  std::istringstream in(line.substr(kLine.size()));
  std::array<std::int64_t, 12> n{};
  for (std::int64_t& number : n) in >> number;
  char equals = 0;
  in >> equals;
  cublasLtMatmulAlgo_t algorithm{};
  for (std::uint64_t& word : algorithm.data) in >> word;
  if (in.fail() || equals != '=') return;
  const auto narrow = [](std::int64_t number) { return static_cast<std::int32_t>(number); };
  const GemmKey key{.type = static_cast<Type>(n[0]),
                    .product = static_cast<Product>(n[1]),
                    .m = n[2],
                    .n = n[3],
                    .k = n[4],
                    .stride = n[5],
                    .left = narrow(n[6]),
                    .right = narrow(n[7]),
                    .out = narrow(n[8]),
                    .workspace = n[9],
                    .parts = n[10],
                    .apart = n[11]};
  plans_->given.insert_or_assign(key, algorithm);
  const auto made = plans_->plans.find(key);
  if (made != plans_->plans.end()) plans_->take_given(key, made->second);
}

std::int64_t Gemm::plans() const {
  return static_cast<std::int64_t>(plans_->plans.size());
}
std::int64_t Gemm::timed() const {
  return plans_->timed;
}

}  // namespace rehearse::exec::cuda
