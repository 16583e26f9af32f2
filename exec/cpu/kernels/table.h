// SPDX-License-Identifier: Apache-2.0
// The kernels of one instruction set, as function pointers: row-major, single-threaded, for
// elements of each type that a CPU computes in.
//
// One source is compiled for several instruction sets (kernels.inc); dispatch.cc chooses once at
// run time. Equal inputs give equal bits, with AVX2, AVX-512 and AVX-512 BF16 the same; AMX adds in
// an order of its own. A thread's first product takes 1.8 MB for packed blocks, once, and its first
// of bf16 as much again with the last two.
#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>
#include <vector>

#include "exec/backend/element.h"
#include "exec/backend/shapes.h"
#include "exec/cpu/kernels/instruction_set.h"

namespace rehearse::exec {

// What AdamW takes of one step, rounded once: g = gradient * scale; m = beta1 m + rest1 g;
// v = beta2 v + rest2 g^2; p = keep p - size m / (root sqrt(v) + epsilon).
struct AdamwFactors {
  float scale = 1, beta1 = 0, rest1 = 1, beta2 = 0, rest2 = 1;
  float keep = 1, size = 0, root = 1, epsilon = 0;
};
// What Lion takes of one step, rounded once: g = gradient * scale; c = beta1 m + rest1 g;
// p = keep p - size sign(c); m = beta2 m + rest2 g.
struct LionFactors {
  float scale = 1, beta1 = 0, rest1 = 1, beta2 = 0, rest2 = 1;
  float keep = 1, size = 0;
};

template <class Of>
struct KernelsOf {
  using Element = Of;
#define KERNEL(name, parameters, arguments) void(*name) parameters = nullptr;
#include "exec/backend/kernel_rows.inc"
};

// What is named without a type is fp32's.
struct KernelTable : KernelsOf<float> {
  std::string_view instruction_set;  // one of kInstructionSets
  KernelsOf<BFloat16> bfloat16;
  KernelsOf<Float16> float16;
  template <class Of>
  const KernelsOf<Of>& of() const {
    if constexpr (std::is_same_v<Of, BFloat16>) {
      return bfloat16;
    } else if constexpr (std::is_same_v<Of, Float16>) {
      return float16;
    } else {
      return *this;
    }
  }
  double (*sum_of_squares)(std::int64_t count, const float* x) = nullptr;
  void (*adamw)(std::int64_t count, const AdamwFactors& factors, const float* gradient,
                float* parameter, float* m, float* v) = nullptr;
  void (*lion)(std::int64_t count, const LionFactors& factors, const float* gradient,
               float* parameter, float* m) = nullptr;
  std::int64_t (*room_bytes)(const KernelRoom& room) = nullptr;  // kernel_room_bytes()
};

// Calls a kernel of the table with arguments as the interface has them: void* has a type here.
template <class... Parameters, class... Arguments>
void call_kernel(void (*kernel)(Parameters...), const Arguments&... arguments) {
  kernel(static_cast<Parameters>(arguments)...);
}

// Those that this machine can run, the slowest (generic, products by Eigen) first.
const std::vector<KernelTable>& kernel_tables();
// The one that was chosen. REQUIRES: instruction_set_as_asked()
const KernelTable& kernels();

KernelTable generic_kernels();
KernelTable avx2_kernels();
KernelTable avx512_kernels();

}  // namespace rehearse::exec
