// SPDX-License-Identifier: Apache-2.0
// Matrix products on an NVIDIA GPU by cuBLASLt, in the forms that a linear layer needs.
//
// Arrays are row-major. 16 bits: products in bf16 or fp16, sums in fp32. fp32: no TF32, for exact
// tests. A plan (layouts and algorithm) is made once per shape and alignment and kept. In 16 bits
// the algorithm is the fastest of the library's first suggestions, timed on the first call with
// that shape: that call waits for the device, and another run may choose another algorithm, hence
// other last bits. In fp32, and in 16 bits after tune(false), it is the first suggestion. Parts of
// a split product are added in fp32, in order: one plan gives equal bits for equal inputs. Not
// thread-safe.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "exec/cuda/calls/kernels.h"

namespace rehearse::exec::cuda {

// Scratch of one lane's products: one product of a lane runs at a time.
struct GemmWorkspace {
  void* data = nullptr;
  std::int64_t bytes = 0;
};
inline constexpr std::int64_t kGemmWorkspaceBytes = std::int64_t{32} << 20;

enum class Product : std::uint8_t {
  Linear,
  LinearFp32,
  LinearBias,
  LinearBiasGelu,
  InputGradient,
  InputGradientGelu,
  WeightGradient,
  WeightGradientBias,
};

// What a plan belongs to.
struct GemmKey {
  Type type{};
  Product product{};
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t stride = 0;  // from a row of n elements to the next: of y, or of dy
  // Largest power of two, at most 256, that divides the addresses of cuBLASLt's A, B and D.
  std::int32_t left = 0, right = 0, out = 0;
  std::int64_t workspace = 0;
  std::int64_t parts = 1, apart = 0;  // PieceShape's; m: rows of a part
  auto operator<=>(const GemmKey&) const = default;
};

// All calls enqueue on `stream` and return 0 or an error code of the runtime (cudaError_t): 801,
// cudaErrorNotSupported, where the library has no algorithm, 999 for its other errors.
class Gemm {
 public:
  using Say = std::function<void(const std::string&)>;
  explicit Gemm(Say say = {});  // takes a line where a trial had no memory; may be null
  ~Gemm();
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;

  // y(m, n) = x(m, k) w(n, k)^T + bias(n); bias may be null
  int linear(Stream stream, Type type, std::int64_t m, std::int64_t n, std::int64_t k,
             const void* x, const void* w, const void* bias, void* y, GemmWorkspace workspace);
  // u = as linear, y = gelu(u), in one pass. REQUIRES: 16 bits; n divides by 8; bias, u and y
  // aligned to 16 bytes (else 801).
  int linear_gelu(Stream stream, Type type, std::int64_t m, std::int64_t n, std::int64_t k,
                  const void* x, const void* w, const void* bias, void* u, void* y,
                  GemmWorkspace workspace);
  // As linear without a bias, y(m, n) in fp32
  int linear_fp32(Stream stream, Type type, std::int64_t m, std::int64_t n, std::int64_t k,
                  const void* x, const void* w, float* y, GemmWorkspace workspace);
  // dx(m, k) = dy(m, n) w(n, k)
  int linear_input(Stream stream, Type type, std::int64_t m, std::int64_t n, std::int64_t k,
                   const void* dy, const void* w, void* dx, GemmWorkspace workspace);
  // du(m, k) = gelu'(u(m, k)) * (dy(m, n) w(n, k)). REQUIRES: 16 bits; k divides by 8; u aligned to
  // 16 bytes (else 801).
  int linear_input_gelu(Stream stream, Type type, std::int64_t m, std::int64_t n, std::int64_t k,
                        const void* dy, const void* w, const void* u, void* du,
                        GemmWorkspace workspace);
  // dw(n, k) += dy(m, n)^T x(m, k), fp32
  int linear_weight(Stream stream, Type type, std::int64_t m, std::int64_t n, std::int64_t k,
                    const void* dy, const void* x, float* dw, GemmWorkspace workspace);
  // As linear_weight, and sums(n) += the column sums of dy: by the product's epilogue where a trial
  // found that to be faster than a pass of its own, and to give the same (to 2 % of the largest);
  // in fp32 always by a pass. scratch: bias_scratch(m, n) bytes.
  int linear_weight_bias(Stream stream, Type type, std::int64_t m, std::int64_t n, std::int64_t k,
                         const void* dy, const void* x, float* dw, float* sums,
                         GemmWorkspace workspace, void* scratch);
  static std::int64_t bias_scratch(std::int64_t m, std::int64_t n);
  // As linear without a bias, linear_input and linear_weight, rows of y and dy `stride` apart
  int logits(Stream stream, Type type, std::int64_t m, std::int64_t n, std::int64_t k,
             std::int64_t stride, const void* x, const void* w, void* y, GemmWorkspace workspace);
  int logits_input(Stream stream, Type type, std::int64_t m, std::int64_t n, std::int64_t k,
                   std::int64_t stride, const void* dy, const void* w, void* dx,
                   GemmWorkspace workspace);
  int logits_weight(Stream stream, Type type, std::int64_t m, std::int64_t n, std::int64_t k,
                    std::int64_t stride, const void* dy, const void* x, float* dw,
                    GemmWorkspace workspace);

  // As the four of them, in one launch: a strided batch.
  int linear_piece(Stream stream, Type type, const PieceShape& piece, const void* x, const void* w,
                   const void* bias, void* y, GemmWorkspace workspace);
  int linear_gelu_piece(Stream stream, Type type, const PieceShape& piece, const void* x,
                        const void* w, const void* bias, void* u, void* y, GemmWorkspace workspace);
  int linear_input_piece(Stream stream, Type type, const PieceShape& piece, const void* dy,
                         const void* w, void* dx, GemmWorkspace workspace);
  int linear_input_gelu_piece(Stream stream, Type type, const PieceShape& piece, const void* dy,
                              const void* w, const void* u, void* du, GemmWorkspace workspace);

  void tune(bool on);  // of shapes that come from now on; on at first
  // From now on calls make their plans, and multiply only in trials.
  void only_plan(bool on);
  // A line for each plan that was made by trial: its key, and cuBLASLt's algorithm; and one for
  // each bias gradient: whether an epilogue computes it. A line that is taken is for the plan of
  // that key, whenever it is made, where this device runs the algorithm.
  std::string choices() const;
  void take(const std::string& line);
  std::int64_t plans() const;
  std::int64_t timed() const;  // candidates, over all plans

 private:
  struct Plans;
  std::unique_ptr<Plans> plans_;
};

}  // namespace rehearse::exec::cuda
