// SPDX-License-Identifier: Apache-2.0
// A double of the part of cuBLASLt and of CUDA's events that exec/cuda/calls/gemm.cc uses, on host
// memory and compiled against the real headers: it multiplies as the descriptors say, naively, and
// proposes four algorithms, the third of which is "fastest". It finds swapped operands, wrong
// leading dimensions, types and epilogues; it knows nothing of the real library's limits.
#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "tests/cuda/memory.h"

using rehearse::exec::cuda::Type;
using rehearse::exec::cuda::testing::half_bits;
using rehearse::exec::cuda::testing::half_value;

bool rehearse_cublaslt_double_is_full = false;  // of memory: a test sets it
// What BGRADB takes more [ms] than the product alone, and by what its sums are off: likewise.
float rehearse_cublaslt_double_epilogue = -0.5F, rehearse_cublaslt_double_bias = 1;
std::uint64_t rehearse_cublaslt_double_lacks = ~std::uint64_t{0};  // an algorithm: likewise

namespace {

constexpr float kTimes[] = {3, 2, 1, 4};  // of the algorithms [ms]
float last_time = 0;

struct Description {
  std::int32_t transposed[2] = {0, 0};
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  void* aux = nullptr;
  std::int64_t aux_ld = 0, aux_batch = 0;
  std::int32_t aux_type = -1, bias_type = -1;
};
struct Layout {
  cudaDataType type;
  std::int64_t rows, columns, ld;
  std::int32_t batch = 1;
  std::int64_t batch_offset = 0;
};
struct Preference {
  std::uint64_t workspace = 0;
  std::uint32_t alignment[4] = {256, 256, 256, 256};
};

Description* of(cublasLtMatmulDesc_t d) {
  return reinterpret_cast<Description*>(d);
}
Layout* of(cublasLtMatrixLayout_t l) {
  return reinterpret_cast<Layout*>(l);
}
Preference* of(cublasLtMatmulPreference_t p) {
  return reinterpret_cast<Preference*>(p);
}

Type type_of(std::int32_t type) {
  return type == CUDA_R_16F ? Type::Float16 : type == CUDA_R_16BF ? Type::BFloat16 : Type::Float32;
}
float get(const void* at, std::int32_t type, std::int64_t i) {
  if (type == CUDA_R_32F) return static_cast<const float*>(at)[i];
  return half_value(static_cast<const std::uint16_t*>(at)[i], type_of(type));
}
void put(void* at, std::int32_t type, std::int64_t i, float value) {
  if (type == CUDA_R_32F) {
    static_cast<float*>(at)[i] = value;
  } else {
    static_cast<std::uint16_t*>(at)[i] = half_bits(value, type_of(type));
  }
}

template <class V>
cublasStatus_t copy(V* to, const void* from, std::size_t bytes) {
  if (bytes != sizeof(V)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(to, from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

constexpr float kRoot = 0.7978845608028654F, kCubic = 0.044715F;
float gelu(float x) {
  return 0.5F * x * (1 + std::tanh(kRoot * (x + kCubic * x * x * x)));
}
float gelu_slope(float x) {
  const float t = std::tanh(kRoot * (x + kCubic * x * x * x));
  return 0.5F * (1 + t) + 0.5F * x * (1 - t * t) * kRoot * (1 + 3 * kCubic * x * x);
}

bool aligned(const void* at, std::uint64_t bytes) {
  return reinterpret_cast<std::uintptr_t>(at) % bytes == 0;
}

}  // namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = reinterpret_cast<cublasLtHandle_t>(new int(0));
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete reinterpret_cast<int*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}
const char* cublasLtGetStatusString(cublasStatus_t) {
  return "a status";
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* d, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F) return CUBLAS_STATUS_INVALID_VALUE;
  *d = reinterpret_cast<cublasLtMatmulDesc_t>(new Description);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) {
  delete of(d);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d,
                                              cublasLtMatmulDescAttributes_t a, const void* from,
                                              std::size_t bytes) {
  switch (a) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return copy(&of(d)->transposed[0], from, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return copy(&of(d)->transposed[1], from, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return copy(&of(d)->epilogue, from, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return copy(&of(d)->bias, from, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return copy(&of(d)->bias_type, from, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return copy(&of(d)->aux, from, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return copy(&of(d)->aux_ld, from, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE:
      return copy(&of(d)->aux_batch, from, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE:
      return copy(&of(d)->aux_type, from, bytes);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* l, cudaDataType type,
                                          std::uint64_t rows, std::uint64_t columns,
                                          std::int64_t ld) {
  *l = reinterpret_cast<cublasLtMatrixLayout_t>(
      new Layout{type, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns), ld});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l,
                                                cublasLtMatrixLayoutAttribute_t a, const void* from,
                                                std::size_t bytes) {
  switch (a) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return copy(&of(l)->batch, from, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return copy(&of(l)->batch_offset, from, bytes);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) {
  delete of(l);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* p) {
  *p = reinterpret_cast<cublasLtMatmulPreference_t>(new Preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) {
  delete of(p);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                    cublasLtMatmulPreferenceAttributes_t a,
                                                    const void* from, std::size_t bytes) {
  std::uint32_t mask = 0;
  switch (a) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return copy(&of(p)->workspace, from, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return copy(&of(p)->alignment[0], from, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return copy(&of(p)->alignment[1], from, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return copy(&of(p)->alignment[2], from, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return copy(&of(p)->alignment[3], from, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return copy(&mask, from, bytes);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t p, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* count) {
  *count = std::min(wanted, 4);
  for (int k = 0; k < *count; ++k) {
    results[k] = {};
    results[k].algo.data[0] = static_cast<std::uint64_t>(k);
    for (int i = 0; i < 4; ++i) results[k].algo.data[1 + i] = of(p)->alignment[i];
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                       const cublasLtMatmulAlgo_t* algorithm,
                                       cublasLtMatmulHeuristicResult_t* result) {
  *result = {};
  return algorithm->data[0] == rehearse_cublaslt_double_lacks ? CUBLAS_STATUS_NOT_SUPPORTED
                                                              : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t description, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void*, std::size_t,
                              cudaStream_t) {
  const Description& how = *of(description);
  const Layout &left = *of(a_layout), &right = *of(b_layout), &out = *of(d_layout);
  if (c != d || of(c_layout) != of(d_layout) || *static_cast<const float*>(alpha) != 1) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const bool ta = how.transposed[0] == CUBLAS_OP_T, tb = how.transposed[1] == CUBLAS_OP_T;
  const std::int64_t depth = ta ? left.rows : left.columns;
  if ((ta ? left.columns : left.rows) != out.rows || (tb ? right.columns : right.rows) != depth ||
      (tb ? right.rows : right.columns) != out.columns || left.ld < left.rows ||
      right.ld < right.rows || out.ld < out.rows || !aligned(a, algorithm->data[1]) ||
      !aligned(b, algorithm->data[2]) || !aligned(d, algorithm->data[4])) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const bool with_bias =
      how.epilogue == CUBLASLT_EPILOGUE_BIAS || how.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
  const bool forward_gelu = how.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
  const bool backward_gelu = how.epilogue == CUBLASLT_EPILOGUE_DGELU;
  if ((with_bias && how.bias_type != left.type) ||
      ((forward_gelu || backward_gelu) &&
       (how.aux_type != left.type || how.aux_ld % 8 != 0 || !aligned(how.aux, 16)))) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  last_time = kTimes[algorithm->data[0]] +
              (how.epilogue == CUBLASLT_EPILOGUE_BGRADB ? rehearse_cublaslt_double_epilogue : 0.0F);
  const float kept = *static_cast<const float*>(beta);
  const bool sums_bias = how.epilogue == CUBLASLT_EPILOGUE_BGRADB;
  if (sums_bias && how.bias_type != CUDA_R_32F) return CUBLAS_STATUS_INVALID_VALUE;
  for (std::int64_t j = 0; sums_bias && j < out.columns; ++j) {
    float sum = 0;
    for (std::int64_t k = 0; k < depth; ++k) {
      sum += get(b, right.type, tb ? j + k * right.ld : k + j * right.ld);
    }
    put(const_cast<void*>(how.bias), CUDA_R_32F, j, sum * rehearse_cublaslt_double_bias);
  }
  if (left.batch != right.batch || left.batch != out.batch) return CUBLAS_STATUS_INVALID_VALUE;
  for (std::int64_t part = 0; part < out.batch; ++part) {
    const std::int64_t a_at = part * left.batch_offset, b_at = part * right.batch_offset;
    const std::int64_t d_at = part * out.batch_offset, aux_at = part * how.aux_batch;
    for (std::int64_t j = 0; j < out.columns; ++j) {
      for (std::int64_t i = 0; i < out.rows; ++i) {
        float sum = 0;
        for (std::int64_t k = 0; k < depth; ++k) {
          sum += get(a, left.type, a_at + (ta ? k + i * left.ld : i + k * left.ld)) *
                 get(b, right.type, b_at + (tb ? j + k * right.ld : k + j * right.ld));
        }
        if (kept != 0) sum += kept * get(d, out.type, d_at + i + j * out.ld);
        if (with_bias) sum += get(how.bias, how.bias_type, i);
        const std::int64_t aux = aux_at + i + j * how.aux_ld;
        if (forward_gelu) {
          put(how.aux, how.aux_type, aux, sum);
          sum = gelu(sum);
        }
        if (backward_gelu) sum *= gelu_slope(get(how.aux, how.aux_type, aux));
        put(d, out.type, d_at + i + j * out.ld, sum);
      }
    }
  }
  return CUBLAS_STATUS_SUCCESS;
}

cudaError_t cudaMallocAsync(void** memory, std::size_t bytes, cudaStream_t) {
  if (rehearse_cublaslt_double_is_full) return cudaErrorMemoryAllocation;
  *memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  return cudaSuccess;
}
cudaError_t cudaFreeAsync(void* memory, cudaStream_t) {
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaGetLastError() {
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = reinterpret_cast<cudaEvent_t>(new int(0));
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete reinterpret_cast<int*>(event);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t) {
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t, cudaEvent_t) {
  *ms = last_time;
  return cudaSuccess;
}

}  // extern "C"
