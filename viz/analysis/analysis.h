// SPDX-License-Identifier: Apache-2.0
// Numbers about a trace: where the time of each row went, per kind and cause; which ops a step's
// length rests on; what differs between two traces of one schedule. No drawing.
#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "viz/analysis/index.h"

namespace rehearse::viz {

// Where the time of rows [first_row, last_row) went within [begin, end), on their compute lanes.
// Rows count as often as they stand for ranks. busy + idle = span * ranks, exactly.
struct Summary {
  std::int64_t span = 0, ranks = 0;                   // [ns], ranks
  std::array<std::int64_t, kNumOpKinds> kinds{};      // time under ops of each kind
  std::array<std::int64_t, kNumIdleCauses> causes{};  // idle between ops, by cause
  std::array<std::int64_t, kNumOpKinds> in_body{};    // of `kinds`: bodies that wait for their
                                                      //   own collectives (idle)
  // Bodies have collectives, and the trace does not say how long ops wait for them, as a measured
  // one: that time counts as busy.
  bool inside_unknown = false;
  std::int64_t unexplained = 0;  // idle between ops for which the trace has no cause

  std::int64_t total() const { return span * ranks; }
  std::int64_t busy() const;  // `kinds` less in_body
  std::int64_t idle() const { return total() - busy(); }
  // Idle between ops that compute, what stands there on their lane included, and idle inside them:
  // of a prediction they add up to idle(), a measurement knows the first alone.
  std::int64_t between_ops() const;
  std::int64_t inside_ops() const;
  double share(std::int64_t time) const {
    return total() == 0 ? 0 : static_cast<double>(time) / static_cast<double>(total());
  }
  // idle / (ranks * span), report key `bubble_ratio`
  double bubble_ratio() const { return share(idle()); }
};
// "74.5 % of all ranks' time, 71.5 % inside ops", "3.0 % of all ranks' time, between ops: ...".
std::string bubbles_text(const Summary& summary);
Summary summarize(const TraceIndex& index, std::int64_t begin, std::int64_t end,
                  std::int32_t first_row, std::int32_t last_row);

// Ops of one class name ("F", "SEND_F", "ALL_REDUCE"): counts and times over all rows.
struct KindStatistics {
  OpKind kind{};
  Payload payload{};
  std::int64_t count = 0, total = 0, shortest = 0, longest = 0;  // [ns]
  std::int64_t median = 0;
  std::vector<std::int64_t> histogram;  // equal bins from shortest to longest
};
// `kept`: of those ops alone that are not 0 there; empty: of all.
std::vector<KindStatistics> statistics(const Trace& trace, std::int32_t bins,
                                       std::span<const std::uint8_t> kept = {});

// Fills trace.idle: a cause for every gap of every compute lane, for traces that come without
// (measured ones). Needs waits; without them it leaves the trace as it is.
// Rule, explained backwards from the op that ends the gap: what arrived last. Its own duration, if
// it is a transfer, collective or copy: communication; before that, the op that it waited for:
// dependency, or straggler as far as that op ran longer than the median of its kind and stage; all
// had arrived before: host. Before a row's first compute op transfers and dependencies are warmup,
// after its last one cooldown, as in a prediction: what replicas wait for there, a straggler is.
void attribute_idle(Trace& trace);

// A chain of ops from the step's begin to its end of which each waited for the one before.
struct CriticalPath {
  std::vector<OpId> ops;                 // in order of time
  std::int64_t in_ops = 0, waiting = 0;  // [ns]; add up to the step
  std::vector<std::int64_t> slack;       // per op: how much later it could have ended [ns]
};
CriticalPath critical_path(const Trace& trace);

// Two traces of one schedule (equal op ids): predicted and measured, or two runs.
struct OpDifference {
  OpId op{};
  std::int64_t a = 0, b = 0;  // durations [ns]
  std::int64_t start_a = 0, start_b = 0;
};
struct KindDifference {
  OpKind kind{};
  Payload payload{};
  std::int64_t count = 0, a = 0, b = 0;  // summed durations [ns]
  std::int64_t bytes = 0;                // payload of all of them [B]; 0: not known, or none
  double mean_abs_error = 0;             // of op durations, |b - a| / a over ops with a > 0
};
struct TraceDifference {
  std::int64_t step_a = 0, step_b = 0;
  std::vector<KindDifference> kinds;
  std::vector<OpDifference> ops;  // that differ, largest |b - a| first
  bool empty() const { return ops.empty() && step_a == step_b; }
};
Result<TraceDifference> difference(const Trace& a, const Trace& b);

}  // namespace rehearse::viz
