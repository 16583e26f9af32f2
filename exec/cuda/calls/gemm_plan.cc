// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/calls/gemm_plan.h"

#include <utility>

namespace rehearse::exec::cuda {
namespace {

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

cudaDataType_t element_of(const GemmKey& key) {
  return key.type == Type::Float32    ? CUDA_R_32F
         : key.type == Type::BFloat16 ? CUDA_R_16BF
                                      : CUDA_R_16F;
}

}  // namespace

cublasStatus_t Gemm::Plans::describe(const GemmKey& key, const GemmOperands& at,
                                     GemmPlan* plan) const {
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
    GemmStatus made;
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
  GemmStatus status;
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

cublasStatus_t Gemm::Plans::propose(const GemmKey& key, const GemmPlan& plan, Candidates* results,
                                    int* count) const {
  cublasLtMatmulPreference_t preference = nullptr;
  GemmStatus status;
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

cublasStatus_t Gemm::Plans::multiply(Stream stream, GemmWorkspace workspace, const GemmKey& key,
                                     const GemmPlan& plan, const cublasLtMatmulAlgo_t& algorithm,
                                     const GemmOperands& at) const {
  const float alpha = 1, beta = is_weight_gradient(key.product) ? 1 : 0;
  return cublasLtMatmul(handle, plan.description, &alpha, at.left, plan.left, at.right, plan.right,
                        &beta, at.out, plan.out, at.out, plan.out, &algorithm, workspace.data,
                        static_cast<std::size_t>(workspace.bytes), stream);
}

bool Gemm::Plans::take_given(const GemmKey& key, GemmPlan& plan) const {
  const auto found = given.find(key);
  if (found == given.end()) return false;
  cublasLtMatmulHeuristicResult_t result{};
  const cublasStatus_t status = cublasLtMatmulAlgoCheck(
      handle, plan.description, plan.left, plan.right, plan.out, plan.out, &found->second, &result);
  const bool runs = status == CUBLAS_STATUS_SUCCESS &&
                    result.workspaceSize <= static_cast<std::size_t>(key.workspace);
  if (runs) plan.algorithm = found->second;
  return runs;
}

}  // namespace rehearse::exec::cuda
