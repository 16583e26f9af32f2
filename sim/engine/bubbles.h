// SPDX-License-Identifier: Apache-2.0
// Why a compute stream is idle: every idle nanosecond of every row has exactly one cause.
//
// Idle is what is not busy between the step's first start and last end; busy is a node that
// computes (program.h), less the part in which its body waits for its own collectives. A gap is
// explained backwards from what ends it: ask what arrived last, book the time that this took, go on
// with what *that* waited for, until the gap's beginning.
//
//   last arrival                                     cause
//   host issued the op late                          host
//   event that only lets memory be used again        resource (as far as it came after all others)
//   transfer that stood behind another transfer      contention (from when its data was there)
//   communication or copy, as long as alone          communication; what sharing added: contention
//   (under a collective of the row's own compute stream: communication, whatever came last)
//   what computes elsewhere (or adds, on dp)         dependency
//   what arrived last was later, for what jitter     straggler: as much as its lateness is more
//   and slow GPUs added to it and before it          than the row's own, of what computes elsewhere
//   after the row's last op, until the step's end    cooldown
//
// Before a row's first pipeline op (F B I W R OVERLAP) transfers and computing elsewhere count as
// warmup, after its last one as cooldown: the filling and draining of the pipeline.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "schedules/trace/trace.h"
#include "sim/cost/cost.h"
#include "sim/engine/program.h"
#include "sim/engine/repetition.h"
#include "sim/engine/timeline.h"

namespace rehearse::sim {

using Causes = std::array<std::int64_t, kNumIdleCauses>;  // [ns], indexed by IdleCause

struct RowBubbles {
  std::int64_t busy = 0, idle = 0;  // [ns]; busy + idle = step
  Causes causes{};                  // add up to idle
  std::int64_t in_body = 0;         // of idle: inside compute ops, for their own collectives

  void add(const RowBubbles& other, std::int64_t times);
};

struct Bubbles {
  std::vector<RowBubbles> rows;  // one rank of each row
  // The same of one period of what repeats, from the end of the gap before its first op on. Empty:
  // no repetition was given.
  std::vector<RowBubbles> of_period;
  // Sums over ranks: each row counts as often as it stands for ranks.
  std::int64_t ranks = 0, busy = 0, idle = 0;  // busy + idle = ranks * step
  Causes causes{};                             // add up to idle

  // Per op of the program: idle time of all ranks that was booked on it [ns over ranks]: transfers,
  // collectives and copies, and compute ops for what their own bodies waited. A transfer's
  // time stands at its SEND, a collective's at its first member. Inside it, `exposed_in_fill`:
  // booked as warmup or cooldown. So sum(exposed) - sum(exposed_in_fill) = causes[communication] +
  // causes[contention].
  std::vector<std::int64_t> exposed, exposed_in_fill;

  // Gaps of each row in order of time, where no op is on the compute stream (for the trace);
  // spans of row r are [span_begin[r], span_begin[r+1]).
  std::vector<std::int64_t> span_begin;
  std::vector<IdleSpan> spans;
};

// REQUIRES: the timeline is of this program and these costs; `repetition`, or null, of both.
Bubbles attribute(const Program& program, const CostTable& costs, const Timeline& timeline,
                  const Repetition* repetition = nullptr);
// Counts one period `times` times more: what the step is as a whole where so many were left out.
// Exposed times stay those of the ops that were performed. REQUIRES: of_period.
void add_periods(Bubbles& bubbles, const std::vector<std::int32_t>& multiplicity,
                 std::int64_t times);

}  // namespace rehearse::sim
