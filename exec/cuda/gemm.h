// Matrix products on an NVIDIA GPU by cuBLASLt, in the forms that a linear layer needs.
//
// Arrays are row-major. bf16: products in bf16, sums in fp32. fp32: no TF32, for exact tests. A plan
// (layouts and algorithm) is made once per shape and kept; the algorithm is the fastest of the
// library's first suggestions, timed on the first call with that shape.
#pragma once

#include <cstdint>
#include <memory>

#include "exec/cuda/kernels.h"

namespace rehearse::exec::cuda {

// Scratch of one lane's products: one product of a lane runs at a time.
struct GemmWorkspace {
  void* data = nullptr;
  std::int64_t bytes = 0;
};
inline constexpr std::int64_t kGemmWorkspaceBytes = std::int64_t{32} << 20;

// All calls enqueue on `stream` and return 0 or an error code of the runtime (cudaError_t).
class Gemm {
 public:
  Gemm();
  ~Gemm();
  // y(m, n) = x(m, k) w(n, k)^T + bias(n); bias may be null
  int linear(Stream stream, Type type, std::int64_t m, std::int64_t n, std::int64_t k, const void* x,
             const void* w, const void* bias, void* y, GemmWorkspace workspace);
  // As linear without a bias, y(m, n) in fp32
  int logits(Stream stream, Type type, std::int64_t m, std::int64_t n, std::int64_t k, const void* x,
             const void* w, float* y, GemmWorkspace workspace);
  // dx(m, k) = dy(m, n) w(n, k)
  int linear_input(Stream stream, Type type, std::int64_t m, std::int64_t n, std::int64_t k,
                   const void* dy, const void* w, void* dx, GemmWorkspace workspace);
  // dw(n, k) += dy(m, n)^T x(m, k), fp32
  int linear_weight(Stream stream, Type type, std::int64_t m, std::int64_t n, std::int64_t k,
                    const void* dy, const void* x, float* dw, GemmWorkspace workspace);

 private:
  struct Plans;
  std::unique_ptr<Plans> plans_;
};

}  // namespace rehearse::exec::cuda
