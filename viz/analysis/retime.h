// SPDX-License-Identifier: Apache-2.0
// What if an op took another time: the step timed anew, in the order and with the waits that the
// trace has. An op begins when all that it waited for has ended, and as much later as it did.
// Not here: what else would change (which transfers share a link, what a power limit allows).
#pragma once

#include <cstdint>
#include <vector>

#include "viz/analysis/causality.h"

namespace rehearse::viz {

class Retiming {
 public:
  // REQUIRES: both outlive it.
  Retiming(const Trace& trace, const Causality& causes);

  // False: the trace's waits go in a circle, as those of no schedule do.
  bool possible() const { return possible_; }
  // The step's length [ns] if ops took `factor` of their time: `op` alone (on every rank that its
  // row stands for), or all of its kind and stage. REQUIRES: possible().
  std::int64_t step_if(OpId op, double factor) const;
  std::int64_t step_if_all_like(OpId op, double factor) const;
  bool alike(OpId a, OpId b) const;  // of one kind, stage and payload

 private:
  template <class Duration>
  std::int64_t step(const Duration& duration_of) const;

  const Trace* trace_;
  const Causality* causes_;
  bool possible_ = false;
  std::vector<std::int32_t> order_;  // nodes: each after those that it waits for
  // Per node [ns]: how long it lasts; how long after the last of those it begins, or after the
  // step's begin.
  std::vector<std::int64_t> duration_, lag_;
};

}  // namespace rehearse::viz
