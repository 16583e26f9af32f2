// SPDX-License-Identifier: Apache-2.0
// Inside of gemm.h: a product as cuBLASLt's descriptors, its algorithm, and how that is chosen.
//
// cuBLASLt is column-major: an array (rows, columns) of ours is its (columns, rows), transposed. So
// y = x w^T is asked for as y^T = w x^T: `left` below is what cuBLASLt calls A.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <array>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>

#include "exec/cuda/calls/gemm.h"

namespace rehearse::exec::cuda {

inline constexpr int kCandidates = 8;  // that cuBLASLt's heuristics may propose

struct GemmOperands {
  const void *left = nullptr, *right = nullptr, *bias = nullptr;
  void *out = nullptr, *aux = nullptr;
  std::int64_t stride = 0;            // GemmKey's; 0: n
  std::int64_t parts = 1, apart = 0;  // likewise
};

inline bool is_weight_gradient(Product product) {
  return product == Product::WeightGradient || product == Product::WeightGradientBias;
}

// Of an address: the largest power of two, at most 256, that divides it.
inline std::int32_t alignment_of(const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  std::int32_t alignment = 256;
  while (address % static_cast<std::uintptr_t>(alignment) != 0) alignment /= 2;
  return alignment;
}

// Steps that may fail one after another; the first failure is kept.
class GemmStatus {
 public:
  GemmStatus& operator<<(cublasStatus_t next) {
    if (status_ == CUBLAS_STATUS_SUCCESS) status_ = next;
    return *this;
  }
  cublasStatus_t get() const { return status_; }

 private:
  cublasStatus_t status_ = CUBLAS_STATUS_SUCCESS;
};

struct GemmPlan {
  cublasLtMatmulDesc_t description = nullptr;
  cublasLtMatrixLayout_t left = nullptr, right = nullptr, out = nullptr;
  cublasLtMatmulAlgo_t algorithm{};

  GemmPlan() = default;
  GemmPlan(const GemmPlan&) = delete;
  GemmPlan& operator=(const GemmPlan&) = delete;
  ~GemmPlan() {
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
  cublasStatus_t point(const GemmOperands& at) {
    GemmStatus status;
    if (at.bias != nullptr) status << set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, at.bias);
    if (at.aux != nullptr) status << set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, at.aux);
    return status.get();
  }
};

struct Gemm::Plans {
  cublasLtHandle_t handle = nullptr;
  cublasStatus_t created = CUBLAS_STATUS_NOT_INITIALIZED;
  std::map<GemmKey, GemmPlan> plans;
  bool tuning = true;
  bool only_plans = false;
  std::int64_t timed = 0;
  std::map<GemmKey, cublasLtMatmulAlgo_t> given;  // by other processes
  // By the plain product's shape (type, m, n, k): does an epilogue sum the bias's gradient?
  std::map<std::array<std::int64_t, 4>, bool> sums_in_epilogue;
  Say say;
  std::set<std::string> said;  // what follows from no memory

  using Candidates = std::array<cublasLtMatmulHeuristicResult_t, kCandidates>;
  // Both ways of a weight's gradient with its bias's, added to those arrays: a cudaError_t.
  using Way = std::function<int(float* of_weight, float* of_bias)>;

  // --- gemm_plan.cc ---
  cublasStatus_t describe(const GemmKey& key, const GemmOperands& at, GemmPlan* plan) const;
  // What cuBLASLt proposes, best first by its own estimate.
  cublasStatus_t propose(const GemmKey& key, const GemmPlan& plan, Candidates* results,
                         int* count) const;
  cublasStatus_t multiply(Stream stream, GemmWorkspace workspace, const GemmKey& key,
                          const GemmPlan& plan, const cublasLtMatmulAlgo_t& algorithm,
                          const GemmOperands& at) const;
  // Whether another process's algorithm is now the plan's: not where this device does not run it.
  bool take_given(const GemmKey& key, GemmPlan& plan) const;

  // --- gemm_choice.cc ---
  int run(Stream stream, GemmWorkspace workspace, Type type, Product product, std::int64_t m,
          std::int64_t n, std::int64_t k, const GemmOperands& at);
  // Times both ways on other arrays than the gradients, and compares the bias's. In a trial
  // products multiply, whatever is asked for otherwise.
  bool epilogue_is_faster(Stream stream, std::int64_t m, std::int64_t n, std::int64_t k,
                          const Way& in_epilogue, const Way& in_a_pass);

 private:
  // Milliseconds of one run; negative: it failed.
  float time_of(Stream stream, GemmWorkspace workspace, const GemmKey& key, const GemmPlan& plan,
                const cublasLtMatmulAlgo_t& algorithm, const GemmOperands& at);
  void choose(Stream stream, GemmWorkspace workspace, const GemmKey& key, GemmOperands at,
              std::span<const cublasLtMatmulHeuristicResult_t> candidates, GemmPlan* plan);
  cublasStatus_t make(Stream stream, GemmWorkspace workspace, const GemmKey& key,
                      const GemmOperands& at, GemmPlan* plan);
  void say_no_memory(std::int64_t bytes, const std::string& consequence);
};

}  // namespace rehearse::exec::cuda
