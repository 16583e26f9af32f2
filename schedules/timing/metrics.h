// SPDX-License-Identifier: Apache-2.0
// The figures by which orders are compared: makespan, bubbles, activations alive.
#pragma once

#include <vector>

#include "schedules/timing/compute_timing.h"

namespace rehearse {

struct ScheduleMetrics {
  Nanoseconds makespan{0};        // [ticks]
  std::vector<Nanoseconds> busy;  // per row: sum of its ops
  double bubble_ratio = 0;        // idle / (rows * makespan)
  double bubble_overhead = 0;     // idle / busy, over all rows
  double span_bubble_ratio = 0;   // max over rows of (span - busy) / span; span: own first start to
                                  // own last end (the zero-bubble papers' measure)
  // Per row, most stage-chunk activations alive at once in program order: from F to B or W;
  // weighted: I frees half, W the other half. A sequence slice counts as its share.
  std::vector<double> peak_activations, peak_activations_weighted;

  double largest_peak() const;
  double largest_weighted_peak() const;
};

// REQUIRES: the timing is that schedule's (start and end per op); rows have compute ops only, or
// ops of other streams besides, which count for nothing but the makespan.
ScheduleMetrics measure(const Schedule& schedule, const ComputeTiming& timing);

}  // namespace rehearse
