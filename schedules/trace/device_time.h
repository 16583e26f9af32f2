// SPDX-License-Identifier: Apache-2.0
// What the device of one row does, moment by moment, in a profile: every nanosecond counts once.
//
// Streams overlap. A moment in which anything computes is computing, whatever else is under way
// (of kernels side by side the product, then attention); else it is communication that nothing
// hides, a collective before a transfer before a copy; else nothing runs.
#pragma once

#include <cstdint>

#include "schedules/trace/trace.h"

namespace rehearse {

struct DeviceTime {
  // [ns]; all add up to the span that was asked for.
  std::int64_t products = 0, attention = 0, memory_bound = 0;
  std::int64_t unknown = 0;  // a profile without kernels: what a host's thread does, whatever it is
  std::int64_t collectives = 0, transfers = 0, copies = 0;
  std::int64_t nothing = 0;

  std::int64_t computing() const { return products + attention + memory_bound + unknown; }
  std::int64_t sum() const { return computing() + collectives + transfers + copies + nothing; }
};

// The device time of a foreign trace's row, within [begin, end).
DeviceTime device_time(const Trace& trace, RankClass row, std::int64_t begin, std::int64_t end);

}  // namespace rehearse
