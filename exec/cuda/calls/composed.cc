// SPDX-License-Identifier: Apache-2.0
// Kernels that take scratch, that are two launches, or that a copy may replace.
#include "exec/cuda/calls/cuda_kernels.h"

namespace rehearse::exec::cuda {

void CudaKernels::layer_norm_backward(Lane l, std::int64_t rows, std::int64_t h, const void* dy,
                                      const void* x, const float* statistics, const void* weight,
                                      const void* residual, void* dx, float* d_weight,
                                      float* d_bias) {
  device_.check(
      cuda::layer_norm_backward(on(l), type_, rows, h, dy, x, statistics, weight, residual, dx,
                                d_weight, d_bias, scratch(l, norm_backward_scratch(rows, h, 2))),
      "layer norm backward");
}

void CudaKernels::rms_norm_backward(Lane l, std::int64_t rows, std::int64_t h, const void* dy,
                                    const void* x, const float* statistics, const void* weight,
                                    double weight_offset, const void* residual, void* dx,
                                    float* d_weight) {
  device_.check(cuda::rms_norm_backward(on(l), type_, rows, h, dy, x, statistics, weight,
                                        weight_offset, residual, dx, d_weight,
                                        scratch(l, norm_backward_scratch(rows, h, 1))),
                "rms norm backward");
}

void CudaKernels::strided_norm_backward(Lane l, const StridedNorm& s, const void* dy, const void* x,
                                        const float* statistics, const float* sums,
                                        const void* weight, void* dx, float* d_weight) {
  device_.check(
      cuda::strided_norm_backward(on(l), type_, s, dy, x, statistics, sums, weight, dx, d_weight,
                                  scratch(l, column_sums_scratch(s.rows * s.groups, s.width))),
      "strided norm backward");
}

void CudaKernels::shared_norm_backward(Lane l, const SharedNorm& s, const void* dy, const void* x,
                                       const float* statistics, const float* sums,
                                       const void* weight, const void* residual, void* dx,
                                       float* d_weight, float* d_bias) {
  device_.check(cuda::shared_norm_backward(on(l), type_, s, dy, x, statistics, sums, weight,
                                           residual, dx, d_weight, d_bias,
                                           scratch(l, 2 * column_sums_scratch(s.rows, s.h))),
                "shared norm backward");
}

void CudaKernels::add_column_sums(Lane l, std::int64_t rows, std::int64_t cols, const void* y,
                                  float* sums) {
  device_.check(cuda::add_column_sums(on(l), type_, rows, cols, y, sums,
                                      scratch(l, column_sums_scratch(rows, cols))),
                "bias gradient");
}

void CudaKernels::add_positions(Lane l, std::int64_t rows, std::int64_t cols, std::int64_t first,
                                std::int64_t sequence, const void* x, const void* positions,
                                void* out) {
  if (positions == nullptr) return device_.copy(l, out, x, rows * cols * cuda::bytes_of(type_));
  device_.check(cuda::add_positions(on(l), type_, rows, cols, first, sequence, x, positions, out),
                "positions");
}

void CudaKernels::embed_backward(Lane l, std::int64_t tokens, std::int64_t h,
                                 const std::int32_t* ids, const void* dy, const VocabularyShape& v,
                                 std::int32_t* order, float* d_table) {
  device_.check(sort_tokens(on(l), tokens, ids, v, order, scratch(l, sort_tokens_scratch(tokens))),
                "sort tokens");
  device_.check(cuda::embed_backward(on(l), type_, tokens, h, ids, dy, v, order, d_table),
                "embedding gradient");
}

void CudaKernels::router_logits(Lane l, std::int64_t m, std::int64_t n, std::int64_t k,
                                const void* x, const void* w, const void* bias, float* y) {
  device_.check(gemm_.linear_fp32(on(l), type_, m, n, k, x, w, y, workspace(l)), "router logits");
  if (bias != nullptr) device_.check(add_router_bias(on(l), type_, m, n, bias, y), "router bias");
}

void CudaKernels::sort_copies(Lane l, const CopiesShape& s, const std::int32_t* chosen,
                              std::int32_t* row, std::int32_t* token, std::int32_t* begin) {
  device_.check(
      cuda::sort_copies(on(l), s, chosen, row, token, begin, scratch(l, sort_copies_scratch(s))),
      "sort copies");
}

void CudaKernels::drop_copies(Lane l, const DropShape& s, const std::int32_t* chosen,
                              const float* weights, std::int32_t* kept) {
  device_.check(
      cuda::drop_copies(on(l), s, chosen, weights, kept, scratch(l, drop_copies_scratch(s))),
      "drop copies");
}

void CudaKernels::sort_visits(Lane l, const VisitsShape& s, const std::int32_t* chosen,
                              std::int32_t* token, std::int32_t* sent, std::int32_t* row,
                              std::int32_t* weight, std::int32_t* begins, std::int32_t* arrived) {
  device_.check(cuda::sort_visits(on(l), s, chosen, token, sent, row, weight, begins, arrived,
                                  scratch(l, sort_visits_scratch(s))),
                "sort visits");
}

void CudaKernels::count_choices(Lane l, const CountShape& s, std::int64_t copies,
                                const std::int32_t* chosen, double* most) {
  device_.check(
      cuda::count_choices(on(l), s, copies, chosen, most, scratch(l, count_choices_scratch(s))),
      "count choices");
}

void CudaKernels::sort_rows(Lane l, const ArrivedShape& s, const std::int32_t* begins,
                            std::int32_t* from, std::int32_t* begin) {
  device_.check(cuda::sort_rows(on(l), s, begins, from, begin, scratch(l, sort_rows_scratch(s))),
                "sort rows");
}

void CudaKernels::add(Lane l, std::int64_t count, const float* from, float* to) {
  const void* in[] = {to, from};
  void* out[] = {to};
  device_.check(reduce_arrays(on(l), Type::Float32, Reduction::Sum, count, in, out), "add");
}

void CudaKernels::cast(Lane l, std::int64_t count, const float* from, void* to) {
  device_.check(cuda::cast(on(l), Type::Float32, type_, count, from, to), "cast");
}

void CudaKernels::copy_columns(Lane l, std::int64_t rows, std::int64_t cols, const void* from,
                               std::int64_t from_stride, void* to, std::int64_t to_stride) {
  const std::int64_t element = cuda::bytes_of(type_);
  const auto size = [](std::int64_t bytes) { return static_cast<std::size_t>(bytes); };
  device_.check(
      cudaMemcpy2DAsync(to, size(to_stride * element), from, size(from_stride * element),
                        size(cols * element), size(rows), cudaMemcpyDeviceToDevice, on(l)),
      "copy columns");
}

}  // namespace rehearse::exec::cuda
