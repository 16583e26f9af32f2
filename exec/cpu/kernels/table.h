// SPDX-License-Identifier: Apache-2.0
// The kernels of one instruction set, as function pointers; dispatch.cc chooses once at run time.
#pragma once

#include <string_view>
#include <vector>

#include "exec/cpu/kernels/gemm.h"
#include "exec/cpu/kernels/kernels.h"

namespace rehearse::exec {

struct KernelTable {
  std::string_view name;  // "avx512", "avx2", "generic"
  decltype(&exec::linear_bias) linear_bias = nullptr;
  decltype(&exec::linear_input) linear_input = nullptr;
  decltype(&exec::linear_weight) linear_weight = nullptr;
  decltype(&exec::layer_norm) layer_norm = nullptr;
  decltype(&exec::layer_norm_backward) layer_norm_backward = nullptr;
  decltype(&exec::rms_norm) rms_norm = nullptr;
  decltype(&exec::rms_norm_backward) rms_norm_backward = nullptr;
  decltype(&exec::add_residual) add_residual = nullptr;
  decltype(&exec::add_column_sums) add_column_sums = nullptr;
  decltype(&exec::gelu) gelu = nullptr;
  decltype(&exec::gelu_backward) gelu_backward = nullptr;
  decltype(&exec::swiglu) swiglu = nullptr;
  decltype(&exec::swiglu_backward) swiglu_backward = nullptr;
  decltype(&exec::attention) attention = nullptr;
  decltype(&exec::attention_backward) attention_backward = nullptr;
  decltype(&exec::attention_part) attention_part = nullptr;
  decltype(&exec::attention_part_backward) attention_part_backward = nullptr;
  decltype(&exec::row_maxima) row_maxima = nullptr;
  decltype(&exec::row_sums) row_sums = nullptr;
  decltype(&exec::loss_and_gradient) loss_and_gradient = nullptr;
  double (*sum_of_squares)(std::int64_t count, const float* x) = nullptr;
  void (*adamw)(std::int64_t count, const AdamwFactors& factors, const float* gradient,
                float* parameter, float* m, float* v) = nullptr;
  std::int64_t (*room_bytes)(std::int64_t head_dim) = nullptr;  // kernel_room_bytes()
};

// Those that this machine can run, the slowest (generic, products by Eigen) first.
const std::vector<KernelTable>& kernel_tables();
// The fastest of them, or the one that REHEARSE_ISA names.
// REQUIRES: instruction_set_as_asked()
const KernelTable& kernels();

KernelTable generic_kernels();
KernelTable avx2_kernels();
KernelTable avx512_kernels();

}  // namespace rehearse::exec
