// SPDX-License-Identifier: Apache-2.0
// When every op began and ended, as an engine found it.
#pragma once

#include <cstdint>
#include <vector>

#include "schedules/base/units.h"
#include "schedules/trace/trace.h"
#include "sim/cost/cost.h"

namespace rehearse::sim {

struct Timeline {
  std::vector<Nanoseconds> start, end;  // per op of the schedule
  Nanoseconds begin{}, finish{};        // first start, last end; both 0 without ops

  // Event engine only (empty: none lost any), per op:
  // end - start = time alone (jitter included) + contended + slowed, exactly.
  std::vector<Nanoseconds> contended;  // because its shared resources were taken by others
  std::vector<ResourceId> limited_by;  // the one that the longest piece of that was lost to
  std::vector<Nanoseconds> slowed;     // because communication ran on the same row
  std::vector<Nanoseconds> late;       // part of the time alone that jitter or a straggler added
  // part of `late` in which the mean rank of the row waits for the slowest of its group
  std::vector<Nanoseconds> held;

  // Load of each resource, on request: samples of resource k are [load_begin[k], load_begin[k+1]).
  std::vector<std::int32_t> load_begin;
  std::vector<LinkSample> load;

  std::int64_t events = 0;  // what the event queue handed out; 0 for the sweep

  Nanoseconds step() const { return finish - begin; }
};

}  // namespace rehearse::sim
