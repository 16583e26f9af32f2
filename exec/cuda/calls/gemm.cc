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
#include <utility>

#include "exec/cuda/calls/best_time.h"

namespace rehearse::exec::cuda {
namespace {

constexpr int kCandidates = 8;   // that cuBLASLt's heuristics may propose
constexpr int kRepetitions = 5;  // of a candidate that is timed; the fastest counts

struct Operands {
  const void *left = nullptr, *right = nullptr, *bias = nullptr;
  void *out = nullptr, *aux = nullptr;
  std::int64_t stride = 0;  // GemmKey's; 0: n
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
    default:
      return CUBLASLT_EPILOGUE_DEFAULT;
  }
}

cudaDataType_t element_of(const GemmKey& key) {
  return key.type == Type::Float32 ? CUDA_R_32F : CUDA_R_16BF;
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
  std::int64_t timed = 0;
  Say say;
  bool said = false;

  cublasStatus_t describe(const GemmKey& key, const Operands& at, Plan* plan) const {
    const Form form = form_of(key);
    const cudaDataType_t element = element_of(key);
    const bool sums = key.product == Product::WeightGradient;
    const cudaDataType_t out = key.product == Product::LinearFp32 || sums ? CUDA_R_32F : element;
    const bool reads_dy =
        sums || key.product == Product::InputGradient || key.product == Product::InputGradientGelu;
    const auto layout = [](cublasLtMatrixLayout_t* to, cudaDataType_t of, bool transposed,
                           std::int64_t rows, std::int64_t columns, std::int64_t stride = 0) {
      if (transposed) std::swap(rows, columns);
      return cublasLtMatrixLayoutCreate(to, of, static_cast<std::uint64_t>(rows),
                                        static_cast<std::uint64_t>(columns),
                                        stride > 0 ? stride : rows);
    };
    const cublasOperation_t operations[] = {CUBLAS_OP_N, CUBLAS_OP_T};
    Status status;
    status << cublasLtMatmulDescCreate(&plan->description, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    if (status.get() != CUBLAS_STATUS_SUCCESS) return status.get();
    status << plan->set(CUBLASLT_MATMUL_DESC_TRANSA, operations[form.left_transposed ? 1 : 0])
           << plan->set(CUBLASLT_MATMUL_DESC_TRANSB, operations[form.right_transposed ? 1 : 0])
           << plan->set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(key.product))
           << layout(&plan->left, element, form.left_transposed, form.rows, form.depth)
           << layout(&plan->right, element, form.right_transposed, form.depth, form.columns,
                     reads_dy ? key.stride : 0)
           << layout(&plan->out, out, false, form.rows, form.columns, reads_dy ? 0 : key.stride);
    if (at.bias != nullptr) status << plan->set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, element);
    if (at.aux != nullptr) {
      status << plan->set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, form.rows)
             << plan->set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, element);
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
    const float alpha = 1, beta = key.product == Product::WeightGradient ? 1 : 0;
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
    if (key.product == Product::WeightGradient) {
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
    if (tuning && key.type == Type::BFloat16 && count > 1) {
      choose(stream, workspace, key, at, std::span(results).first(static_cast<std::size_t>(count)),
             plan);
    }
    return CUBLAS_STATUS_SUCCESS;
  }

  int run(Stream stream, GemmWorkspace workspace, Type type, Product product, std::int64_t m,
          std::int64_t n, std::int64_t k, const Operands& at) {
    if (m == 0 || n == 0 || k == 0) return 0;
    const GemmKey key{.type = type,
                      .product = product,
                      .m = m,
                      .n = n,
                      .k = k,
                      .stride = at.stride > 0 ? at.stride : n,
                      .left = alignment_of(at.left),
                      .right = alignment_of(at.right),
                      .out = alignment_of(at.out),
                      .workspace = workspace.bytes};
    const auto [place, fresh] = plans.try_emplace(key);
    Plan& plan = place->second;
    Status status;
    status << created << (fresh ? make(stream, workspace, key, at, &plan) : plan.point(at));
    if (status.get() == CUBLAS_STATUS_SUCCESS) {
      status << multiply(stream, workspace, key, plan, plan.algorithm, at);
    }
    if (status.get() == CUBLAS_STATUS_SUCCESS) return cudaSuccess;
    if (fresh) plans.erase(place);
    return status.get() == CUBLAS_STATUS_NOT_SUPPORTED ? cudaErrorNotSupported : cudaErrorUnknown;
  }
};

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
  if (type != Type::BFloat16 || n % 8 != 0 || alignment_of(u) < 16 || alignment_of(y) < 16 ||
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
  if (type != Type::BFloat16 || k % 8 != 0 || alignment_of(u) < 16) return cudaErrorNotSupported;
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

void Gemm::tune(bool on) {
  plans_->tuning = on;
}
std::int64_t Gemm::plans() const {
  return static_cast<std::int64_t>(plans_->plans.size());
}
std::int64_t Gemm::timed() const {
  return plans_->timed;
}

}  // namespace rehearse::exec::cuda
