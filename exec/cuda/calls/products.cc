// SPDX-License-Identifier: Apache-2.0
// Matrix products, with a GELU where the library fuses it.
#include "exec/cuda/calls/cuda_kernels.h"

namespace rehearse::exec::cuda {

void CudaKernels::linear(Lane l, std::int64_t m, std::int64_t n, std::int64_t k, const void* x,
                         const void* w, const void* bias, void* y) {
  device_.check(gemm_.linear(on(l), type_, m, n, k, x, w, bias, y, workspace(l)), "gemm");
}

void CudaKernels::logits(Lane l, std::int64_t m, std::int64_t n, std::int64_t k,
                         std::int64_t stride, const void* x, const void* w, void* y) {
  device_.check(gemm_.logits(on(l), type_, m, n, k, stride, x, w, y, workspace(l)), "gemm logits");
}

void CudaKernels::logits_input(Lane l, std::int64_t m, std::int64_t n, std::int64_t k,
                               std::int64_t stride, const void* dy, const void* w, void* dx) {
  device_.check(gemm_.logits_input(on(l), type_, m, n, k, stride, dy, w, dx, workspace(l)),
                "gemm logits' input gradient");
}

void CudaKernels::logits_weight(Lane l, std::int64_t m, std::int64_t n, std::int64_t k,
                                std::int64_t stride, const void* dy, const void* x, float* dw) {
  device_.check(gemm_.logits_weight(on(l), type_, m, n, k, stride, dy, x, dw, workspace(l)),
                "gemm logits' weight gradient");
}

void CudaKernels::linear_input(Lane l, std::int64_t m, std::int64_t n, std::int64_t k,
                               const void* dy, const void* w, void* dx) {
  device_.check(gemm_.linear_input(on(l), type_, m, n, k, dy, w, dx, workspace(l)),
                "gemm input gradient");
}

void CudaKernels::linear_gelu(Lane l, std::int64_t m, std::int64_t n, std::int64_t k, const void* x,
                              const void* w, const void* bias, void* u, void* g) {
  const int error = gemm_.linear_gelu(on(l), type_, m, n, k, x, w, bias, u, g, workspace(l));
  if (error != cudaErrorNotSupported) return device_.check(error, "gemm with gelu");
  linear(l, m, n, k, x, w, bias, u);
  activation(l, ActivationKind::GeluTanh, m * n, u, g);
}

void CudaKernels::linear_input_gelu(Lane l, std::int64_t m, std::int64_t n, std::int64_t k,
                                    const void* dy, const void* w, const void* u, void* du) {
  const int error = gemm_.linear_input_gelu(on(l), type_, m, n, k, dy, w, u, du, workspace(l));
  if (error != cudaErrorNotSupported) {
    return device_.check(error, "gemm input gradient with gelu");
  }
  linear_input(l, m, n, k, dy, w, du);
  activation_backward(l, ActivationKind::GeluTanh, m * k, du, u, du);
}

void CudaKernels::linear_weight_bias(Lane l, std::int64_t m, std::int64_t n, std::int64_t k,
                                     const void* dy, const void* x, float* dw, float* sums) {
  device_.check(gemm_.linear_weight_bias(on(l), type_, m, n, k, dy, x, dw, sums, workspace(l),
                                         scratch(l, Gemm::bias_scratch(m, n))),
                "gemm weight and bias gradient");
}

void CudaKernels::linear_piece(Lane l, const PieceShape& p, const void* x, const void* w,
                               const void* bias, void* y) {
  device_.check(gemm_.linear_piece(on(l), type_, p, x, w, bias, y, workspace(l)),
                "gemm of a piece");
}

void CudaKernels::linear_input_piece(Lane l, const PieceShape& p, const void* dy, const void* w,
                                     void* dx) {
  device_.check(gemm_.linear_input_piece(on(l), type_, p, dy, w, dx, workspace(l)),
                "gemm input gradient of a piece");
}

void CudaKernels::linear_gelu_piece(Lane l, const PieceShape& p, const void* x, const void* w,
                                    const void* bias, void* u, void* g) {
  const int error = gemm_.linear_gelu_piece(on(l), type_, p, x, w, bias, u, g, workspace(l));
  if (error != cudaErrorNotSupported) return device_.check(error, "gemm with gelu of a piece");
  linear_piece(l, p, x, w, bias, u);
  const auto at = [&](void* array, std::int64_t part) {
    return static_cast<std::byte*>(array) + part * p.apart * p.n * cuda::bytes_of(type_);
  };
  for (std::int64_t part = 0; part < p.parts; ++part) {
    activation(l, ActivationKind::GeluTanh, p.rows * p.n, at(u, part), at(g, part));
  }
}

void CudaKernels::linear_input_gelu_piece(Lane l, const PieceShape& p, const void* dy,
                                          const void* w, const void* u, void* du) {
  const int error = gemm_.linear_input_gelu_piece(on(l), type_, p, dy, w, u, du, workspace(l));
  if (error != cudaErrorNotSupported) {
    return device_.check(error, "gemm input gradient with gelu of a piece");
  }
  linear_input_piece(l, p, dy, w, du);
  for (std::int64_t part = 0; part < p.parts; ++part) {
    const std::int64_t at = part * p.apart * p.k * cuda::bytes_of(type_);
    auto* d = static_cast<std::byte*>(du) + at;
    activation_backward(l, ActivationKind::GeluTanh, p.rows * p.k, d,
                        static_cast<const std::byte*>(u) + at, d);
  }
}

void CudaKernels::linear_weight(Lane l, std::int64_t m, std::int64_t n, std::int64_t k,
                                const void* dy, const void* x, float* dw) {
  device_.check(gemm_.linear_weight(on(l), type_, m, n, k, dy, x, dw, workspace(l)),
                "gemm weight gradient");
}

}  // namespace rehearse::exec::cuda
