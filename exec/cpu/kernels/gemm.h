// SPDX-License-Identifier: Apache-2.0
// Matrix products of fp32 row-major arrays, in the three forms that a linear layer needs.
//
// One source compiled for several instruction sets (product.inc, own kernels; product_eigen.inc for
// the rest), chosen once at run time (dispatch.cc): generic, AVX2 + FMA, AVX-512.
// Single-threaded; equal inputs give equal bits, with AVX2 and AVX-512 the same. A thread's first
// product takes 1.8 MB for packed blocks, once.
#pragma once

#include <cstdint>
#include <string_view>

#include "schedules/base/result.h"

namespace rehearse::exec {

// y(m, n) = x(m, k) w(n, k)^T
void linear(std::int64_t m, std::int64_t n, std::int64_t k, const float* x, const float* w,
            float* y);
// ... + bias(n); bias may be null
void linear_bias(std::int64_t m, std::int64_t n, std::int64_t k, const float* x, const float* w,
                 const float* bias, float* y);
// dx(m, k) = dy(m, n) w(n, k)
void linear_input(std::int64_t m, std::int64_t n, std::int64_t k, const float* dy, const float* w,
                  float* dx);
// dw(n, k) += dy(m, n)^T x(m, k)
void linear_weight(std::int64_t m, std::int64_t n, std::int64_t k, const float* dy, const float* x,
                   float* dw);

std::string_view instruction_set();  // "avx512", "avx2", "generic"
// Fails where the environment's REHEARSE_ISA names a set that this machine lacks: says what it has.
Result<> instruction_set_as_asked();
// What a thread keeps of a product's and an attention's operands [B].
std::int64_t kernel_room_bytes(std::int64_t head_dim);

}  // namespace rehearse::exec
