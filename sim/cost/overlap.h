// SPDX-License-Identifier: Apache-2.0
// What communication costs where compute runs beside it: one rule for bodies, pairs of ops and the
// search's estimate.
//
// Communication hides as far as there is compute, and what is hidden takes a share of itself from
// that compute (SMs, bandwidth). The event engine does the same as time goes on: compute runs at
// rate 1 - share while the collective lasts, so it loses share x the time that both run.
#pragma once

#include <algorithm>

namespace rehearse::sim {

struct Hidden {
  double exposed = 0;     // [ns] of the communication, after all compute
  double contention = 0;  // [ns] that the compute takes longer
};
constexpr Hidden hide(double communication_ns, double compute_ns, double share) {
  const double hidden = std::min(communication_ns, compute_ns);
  return {communication_ns - hidden, share * hidden};
}

// The same of compute that would take `slowed_ns` if the communication lasted throughout, which has
// so long a part of the device: compute goes at its own pace again once it is over.
constexpr Hidden beside(double communication_ns, double compute_ns, double slowed_ns) {
  const double both = std::min(communication_ns, slowed_ns);
  const double lost = slowed_ns > 0 ? 1 - compute_ns / slowed_ns : 0;
  return {communication_ns - both, both * lost};
}

// Both over and over, unit after unit, each unit's communication beside its neighbour's compute:
// the slower of the two sets the pace. [ns] of all units.
constexpr double pace(double communication_ns, double compute_ns, double share) {
  return std::max(compute_ns + hide(communication_ns, compute_ns, share).contention,
                  communication_ns);
}

}  // namespace rehearse::sim
