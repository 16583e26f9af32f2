// SPDX-License-Identifier: Apache-2.0
// exec/cuda/calls/gemm.h on a double's streams: the CPU's products, in fp32 or on operands rounded
// to 16 bits.
#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "exec/cpu/kernels/table.h"
#include "exec/cuda/calls/gemm.h"
#include "tests/cuda_double/device.h"

namespace rehearse::exec::cuda {
namespace {

std::vector<float> floats(Type type, const void* data, std::int64_t count) {
  std::vector<float> out(static_cast<std::size_t>(count));
  const auto copy = [&](const auto* from) { std::copy_n(from, count, out.begin()); };
  if (type == Type::Float32) copy(static_cast<const float*>(data));
  if (type == Type::BFloat16) copy(static_cast<const BFloat16*>(data));
  if (type == Type::Float16) copy(static_cast<const Float16*>(data));
  return out;
}

void store(Type type, const std::vector<float>& from, void* to) {
  const auto copy = [&](auto* out) { std::ranges::copy(from, out); };
  if (type == Type::Float32) copy(static_cast<float*>(to));
  if (type == Type::BFloat16) copy(static_cast<BFloat16*>(to));
  if (type == Type::Float16) copy(static_cast<Float16*>(to));
}

constexpr const void* kNone = nullptr;

// Operands, and the workspace, which a library may use for any product.
namespace extents = cuda_double::kernel_extents;
#define PRODUCT_TOUCHES(name, ...)                                                                 \
  cuda_double::Touched::arguments("product", extents::name(bytes_of(t), __VA_ARGS__), __VA_ARGS__) \
      .writes(space.data, space.bytes)

// Row `first` of (rows, columns).
template <class Void>
Void* row(Type type, Void* array, std::int64_t first, std::int64_t columns) {
  using Byte = std::conditional_t<std::is_const_v<Void>, const std::byte, std::byte>;
  return static_cast<Byte*>(array) + first * columns * bytes_of(type);
}

}  // namespace

struct Gemm::Plans {
  bool only = false;
};
Gemm::Gemm(Say) : plans_(std::make_unique<Plans>()) {}
Gemm::~Gemm() = default;
// Products of the CPU are made in one way.
void Gemm::only_plan(bool on) {
  plans_->only = on;
}
std::string Gemm::choices() const {
  return {};
}
void Gemm::take(const std::string&) {}

int Gemm::linear(Stream s, Type t, std::int64_t m, std::int64_t n, std::int64_t k, const void* x,
                 const void* w, const void* bias, void* y, GemmWorkspace space) {
  if (plans_->only) return 0;
  cuda_double::enqueue(s, PRODUCT_TOUCHES(linear, m, n, k, x, w, bias, y), [=] {
    std::vector<float> out(static_cast<std::size_t>(m * n));
    kernels().linear(m, n, k, floats(t, x, m * k).data(), floats(t, w, n * k).data(),
                     bias == nullptr ? nullptr : floats(t, bias, n).data(), out.data());
    store(t, out, y);
  });
  return 0;
}
int Gemm::linear_fp32(Stream s, Type t, std::int64_t m, std::int64_t n, std::int64_t k,
                      const void* x, const void* w, float* y, GemmWorkspace space) {
  if (plans_->only) return 0;
  cuda_double::enqueue(s, PRODUCT_TOUCHES(router_logits, m, n, k, x, w, kNone, y), [=] {
    kernels().linear(m, n, k, floats(t, x, m * k).data(), floats(t, w, n * k).data(), nullptr, y);
  });
  return 0;
}
int Gemm::logits(Stream s, Type t, std::int64_t m, std::int64_t n, std::int64_t k,
                 std::int64_t stride, const void* x, const void* w, void* y, GemmWorkspace space) {
  if (plans_->only) return 0;
  cuda_double::enqueue(s, PRODUCT_TOUCHES(logits, m, n, k, stride, x, w, y), [=] {
    std::vector<float> out = floats(t, y, m * stride);
    kernels().logits(m, n, k, stride, floats(t, x, m * k).data(), floats(t, w, n * k).data(),
                     out.data());
    store(t, out, y);
  });
  return 0;
}
int Gemm::logits_input(Stream s, Type t, std::int64_t m, std::int64_t n, std::int64_t k,
                       std::int64_t stride, const void* dy, const void* w, void* dx,
                       GemmWorkspace space) {
  if (plans_->only) return 0;
  cuda_double::enqueue(s, PRODUCT_TOUCHES(logits_input, m, n, k, stride, dy, w, dx), [=] {
    std::vector<float> out(static_cast<std::size_t>(m * k));
    kernels().logits_input(m, n, k, stride, floats(t, dy, m * stride).data(),
                           floats(t, w, n * k).data(), out.data());
    store(t, out, dx);
  });
  return 0;
}
int Gemm::logits_weight(Stream s, Type t, std::int64_t m, std::int64_t n, std::int64_t k,
                        std::int64_t stride, const void* dy, const void* x, float* dw,
                        GemmWorkspace space) {
  if (plans_->only) return 0;
  cuda_double::enqueue(s, PRODUCT_TOUCHES(logits_weight, m, n, k, stride, dy, x, dw), [=] {
    kernels().logits_weight(m, n, k, stride, floats(t, dy, m * stride).data(),
                            floats(t, x, m * k).data(), dw);
  });
  return 0;
}
int Gemm::linear_input(Stream s, Type t, std::int64_t m, std::int64_t n, std::int64_t k,
                       const void* dy, const void* w, void* dx, GemmWorkspace space) {
  if (plans_->only) return 0;
  cuda_double::enqueue(s, PRODUCT_TOUCHES(linear_input, m, n, k, dy, w, dx), [=] {
    std::vector<float> out(static_cast<std::size_t>(m * k));
    kernels().linear_input(m, n, k, floats(t, dy, m * n).data(), floats(t, w, n * k).data(),
                           out.data());
    store(t, out, dx);
  });
  return 0;
}
// As the epilogues: GELU of the sum in fp32, beside the rounded u that is kept. A tile is written
// while others are still read: where y lies on what is read, the double spoils that.
int Gemm::linear_gelu(Stream s, Type t, std::int64_t m, std::int64_t n, std::int64_t k,
                      const void* x, const void* w, const void* bias, void* u, void* y,
                      GemmWorkspace space) {
  if (t == Type::Float32) return cudaErrorNotSupported;
  if (plans_->only) return 0;
  cuda_double::enqueue(s, PRODUCT_TOUCHES(linear_gelu, m, n, k, x, w, bias, u, y), [=] {
    std::vector<float> out(static_cast<std::size_t>(m * n),
                           std::numeric_limits<float>::quiet_NaN());
    store(t, out, y);
    kernels().linear(m, n, k, floats(t, x, m * k).data(), floats(t, w, n * k).data(),
                     floats(t, bias, n).data(), out.data());
    store(t, out, u);
    kernels().activation(ActivationKind::GeluTanh, m * n, out.data(), out.data());
    store(t, out, y);
  });
  return 0;
}
int Gemm::linear_input_gelu(Stream s, Type t, std::int64_t m, std::int64_t n, std::int64_t k,
                            const void* dy, const void* w, const void* u, void* du,
                            GemmWorkspace space) {
  if (t == Type::Float32) return cudaErrorNotSupported;
  if (plans_->only) return 0;
  cuda_double::enqueue(s, PRODUCT_TOUCHES(linear_input_gelu, m, n, k, dy, w, u, du), [=] {
    std::vector<float> out(static_cast<std::size_t>(m * k));
    kernels().linear_input(m, n, k, floats(t, dy, m * n).data(), floats(t, w, n * k).data(),
                           out.data());
    kernels().activation_backward(ActivationKind::GeluTanh, m * k, out.data(),
                                  floats(t, u, m * k).data(), out.data());
    store(t, out, du);
  });
  return 0;
}
std::int64_t Gemm::bias_scratch(std::int64_t m, std::int64_t n) {
  return column_sums_scratch(m, n);
}
int Gemm::linear_weight_bias(Stream s, Type t, std::int64_t m, std::int64_t n, std::int64_t k,
                             const void* dy, const void* x, float* dw, float* sums,
                             GemmWorkspace space, void* scratch) {
  const int status = linear_weight(s, t, m, n, k, dy, x, dw, space);
  return status != 0 || plans_->only ? status : add_column_sums(s, t, m, n, dy, sums, scratch);
}
// Of all parts at once: what is between them nobody reads or writes.
int Gemm::linear_piece(Stream s, Type t, const PieceShape& p, const void* x, const void* w,
                       const void* bias, void* y, GemmWorkspace space) {
  for (std::int64_t part = 0; part < p.parts; ++part) {
    linear(s, t, p.rows, p.n, p.k, row(t, x, part * p.apart, p.k), w, bias,
           row(t, y, part * p.apart, p.n), space);
  }
  return 0;
}
int Gemm::linear_input_piece(Stream s, Type t, const PieceShape& p, const void* dy, const void* w,
                             void* dx, GemmWorkspace space) {
  for (std::int64_t part = 0; part < p.parts; ++part) {
    linear_input(s, t, p.rows, p.n, p.k, row(t, dy, part * p.apart, p.n), w,
                 row(t, dx, part * p.apart, p.k), space);
  }
  return 0;
}
int Gemm::linear_gelu_piece(Stream s, Type t, const PieceShape& p, const void* x, const void* w,
                            const void* bias, void* u, void* y, GemmWorkspace space) {
  int status = 0;
  for (std::int64_t part = 0; part < p.parts && status == 0; ++part) {
    const std::int64_t at = part * p.apart;
    status = linear_gelu(s, t, p.rows, p.n, p.k, row(t, x, at, p.k), w, bias, row(t, u, at, p.n),
                         row(t, y, at, p.n), space);
  }
  return status;
}
int Gemm::linear_input_gelu_piece(Stream s, Type t, const PieceShape& p, const void* dy,
                                  const void* w, const void* u, void* du, GemmWorkspace space) {
  int status = 0;
  for (std::int64_t part = 0; part < p.parts && status == 0; ++part) {
    const std::int64_t at = part * p.apart;
    status = linear_input_gelu(s, t, p.rows, p.n, p.k, row(t, dy, at, p.n), w, row(t, u, at, p.k),
                               row(t, du, at, p.k), space);
  }
  return status;
}
int Gemm::linear_weight(Stream s, Type t, std::int64_t m, std::int64_t n, std::int64_t k,
                        const void* dy, const void* x, float* dw, GemmWorkspace space) {
  if (plans_->only) return 0;
  cuda_double::enqueue(s, PRODUCT_TOUCHES(linear_weight, m, n, k, dy, x, dw), [=] {
    kernels().linear_weight(m, n, k, floats(t, dy, m * n).data(), floats(t, x, m * k).data(), dw);
  });
  return 0;
}

}  // namespace rehearse::exec::cuda
