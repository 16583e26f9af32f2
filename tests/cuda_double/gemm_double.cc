// SPDX-License-Identifier: Apache-2.0
// exec/cuda/calls/gemm.h on a double's streams: the CPU's products, in fp32 or on operands rounded
// to bf16.
#include <bit>
#include <cstring>
#include <limits>
#include <vector>

#include "exec/cpu/kernels/table.h"
#include "exec/cuda/calls/gemm.h"
#include "tests/cuda_double/device.h"

namespace rehearse::exec::cuda {
namespace {

std::uint16_t to_bf16(float value) {  // to nearest even
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

std::vector<float> floats(Type type, const void* data, std::int64_t count) {
  std::vector<float> out(static_cast<std::size_t>(count));
  if (type == Type::Float32) {
    std::memcpy(out.data(), data, out.size() * sizeof(float));
  } else {
    const auto* halves = static_cast<const std::uint16_t*>(data);
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = std::bit_cast<float>(static_cast<std::uint32_t>(halves[i]) << 16);
  }
  return out;
}

void store(Type type, const std::vector<float>& from, void* to) {
  if (type == Type::Float32) {
    std::memcpy(to, from.data(), from.size() * sizeof(float));
  } else {
    for (std::size_t i = 0; i < from.size(); ++i)
      static_cast<std::uint16_t*>(to)[i] = to_bf16(from[i]);
  }
}

// Operands and the workspace, which a library may use for any product.
cuda_double::Touched product(const GemmWorkspace& workspace, std::initializer_list<const void*> in,
                             std::initializer_list<void*> out) {
  cuda_double::Touched all("product");
  for (const void* x : in) all.reads(x);
  for (void* y : out) all.writes(y);
  all.writes(workspace.data);
  return all;
}

}  // namespace

struct Gemm::Plans {};
Gemm::Gemm(Say) {}
Gemm::~Gemm() = default;

int Gemm::linear(Stream s, Type t, std::int64_t m, std::int64_t n, std::int64_t k, const void* x,
                 const void* w, const void* bias, void* y, GemmWorkspace space) {
  cuda_double::enqueue(s, product(space, {x, w, bias}, {y}), [=] {
    std::vector<float> out(static_cast<std::size_t>(m * n));
    kernels().linear(m, n, k, floats(t, x, m * k).data(), floats(t, w, n * k).data(),
                     bias == nullptr ? nullptr : floats(t, bias, n).data(), out.data());
    store(t, out, y);
  });
  return 0;
}
int Gemm::linear_fp32(Stream s, Type t, std::int64_t m, std::int64_t n, std::int64_t k,
                      const void* x, const void* w, float* y, GemmWorkspace space) {
  cuda_double::enqueue(s, product(space, {x, w}, {y}), [=] {
    kernels().linear(m, n, k, floats(t, x, m * k).data(), floats(t, w, n * k).data(), nullptr, y);
  });
  return 0;
}
int Gemm::logits(Stream s, Type t, std::int64_t m, std::int64_t n, std::int64_t k,
                 std::int64_t stride, const void* x, const void* w, void* y, GemmWorkspace space) {
  cuda_double::enqueue(s, product(space, {x, w}, {y}), [=] {
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
  cuda_double::enqueue(s, product(space, {dy, w}, {dx}), [=] {
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
  cuda_double::enqueue(s, product(space, {dy, x}, {dw}), [=] {
    kernels().logits_weight(m, n, k, stride, floats(t, dy, m * stride).data(),
                            floats(t, x, m * k).data(), dw);
  });
  return 0;
}
int Gemm::linear_input(Stream s, Type t, std::int64_t m, std::int64_t n, std::int64_t k,
                       const void* dy, const void* w, void* dx, GemmWorkspace space) {
  cuda_double::enqueue(s, product(space, {dy, w}, {dx}), [=] {
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
  if (t != Type::BFloat16) return cudaErrorNotSupported;
  cuda_double::enqueue(s, product(space, {x, w, bias}, {u, y}), [=] {
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
  if (t != Type::BFloat16) return cudaErrorNotSupported;
  cuda_double::enqueue(s, product(space, {dy, w, u}, {du}), [=] {
    std::vector<float> out(static_cast<std::size_t>(m * k));
    kernels().linear_input(m, n, k, floats(t, dy, m * n).data(), floats(t, w, n * k).data(),
                           out.data());
    kernels().activation_backward(ActivationKind::GeluTanh, m * k, out.data(),
                                  floats(t, u, m * k).data(), out.data());
    store(t, out, du);
  });
  return 0;
}
int Gemm::linear_weight(Stream s, Type t, std::int64_t m, std::int64_t n, std::int64_t k,
                        const void* dy, const void* x, float* dw, GemmWorkspace space) {
  cuda_double::enqueue(s, product(space, {dy, x}, {dw}), [=] {
    kernels().linear_weight(m, n, k, floats(t, dy, m * n).data(), floats(t, x, m * k).data(), dw);
  });
  return 0;
}

}  // namespace rehearse::exec::cuda
