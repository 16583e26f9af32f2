// SPDX-License-Identifier: Apache-2.0
#include "sim/compute/power.h"

#include <cmath>

namespace rehearse::sim {

double power_w(const KernelScalars& scalars, const PowerUse& use, double clock) {
  const double joule =
      1e-12 * (scalars.pj_per_flop * use.flops16 * std::pow(clock, scalars.clock_exponent) +
               scalars.pj_per_byte * use.hbm_bytes);
  const double seconds = 1e-9 * (use.tensor_ns / clock + use.other_ns);
  return scalars.power_idle_w + (seconds > 0 ? joule / seconds : 0);
}

double sustained_clock(const KernelScalars& scalars, const PowerUse& use, double limit_w) {
  if (limit_w <= 0 || scalars.pj_per_flop <= 0 || power_w(scalars, use, 1) <= limit_w) return 1;
  double low = 0.1, high = 1;  // below a tenth nothing is believed
  for (int i = 0; i < 50; ++i) {
    const double middle = (low + high) / 2;
    (power_w(scalars, use, middle) > limit_w ? high : low) = middle;
  }
  return low;
}

}  // namespace rehearse::sim
