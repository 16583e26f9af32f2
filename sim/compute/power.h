// SPDX-License-Identifier: Apache-2.0
// The clock that a GPU settles at under its power limit.
#pragma once

#include "sim/compute/kernel_scalars.h"

namespace rehearse::sim {

// What a GPU does over a stretch of the step, at full clock.
struct PowerUse {
  double flops16 = 0;  // in units of one 16-bit FLOP's energy
  double hbm_bytes = 0;
  double tensor_ns = 0;  // products that slow down with the clock
  double other_ns = 0;   // memory-bound work, communication, idle
};

// P(c) = P0 + (pj_per_flop * FLOPs * c^clock_exponent + pj_per_byte * bytes) / (tensor/c + other)
// [W].
double power_w(const KernelScalars& scalars, const PowerUse& use, double clock);

// Largest clock in (0, 1] with P(clock) <= limit_w; 1 where nothing is limited or known.
double sustained_clock(const KernelScalars& scalars, const PowerUse& use, double limit_w);

}  // namespace rehearse::sim
