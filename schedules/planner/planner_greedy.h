// SPDX-License-Identifier: Apache-2.0
// List scheduling of a pipeline under a memory limit: one pass over time, no look-ahead but rules.
//
// Every position takes, whenever it is free, the best op that is ready: forwards and backwards by a
// key, W only where nothing else can start or memory is needed. Micro-batches go through a stage in
// order, so a row is a sequence of (stage, kind). What the result is worth is for the caller to
// measure: a portfolio of rules and the better of them is what makes a planner (planner.h).
#pragma once

#include <cstdint>
#include <vector>

#include "schedules/ir/schedule.h"
#include "schedules/timing/compute_timing.h"
#include "schedules/timing/recurrence.h"

namespace rehearse {

// What is planned. Memory counts activations of one stage-chunk in halves, so that I can free one.
struct PlanTask {
  Placement placement;  // REQUIRES: one direction (no `up`)
  std::int32_t microbatches = 1;
  ComputeTimes times;
  std::int64_t limit_halves = 0;   // alive at most, per position
  bool split = true;               // I and W apart, else B
  bool held_until_weight = false;  // I frees nothing, W all (peak_activations); else half each
};

struct GreedyRule {
  // Place of each stage's forward and backward of micro-batch 0 in a pattern that repeats every
  // `interval`; the smallest place goes first. interval 0: the numbers are plain priorities.
  std::vector<std::int64_t> forward_place, backward_place;
  std::int64_t interval = 0;
  // A forward may overtake the earliest missing op of its position by this much of the pattern.
  std::int64_t ahead = INT64_MAX;
  bool alternate =
      false;            // forward after backward and backward after forward, where both are ready
  double patience = 0;  // an op is put off for a better one that is ready within this share of it
  double filler = 0;    // W may delay the next op by this share of W
  // Forwards of a position's first chunk that may be under way, per position; empty: no bound but
  // the memory limit.
  std::vector<std::int32_t> in_flight;
};

// A schedule at Level::Compute without name, or one without ops where the rule runs into a dead end
// (too little memory for what it put first).
Schedule greedy_order(const PlanTask& task, const GreedyRule& rule);
// How the rule's orders grow; nobody knows where its state does not come again within the task's
// micro-batches.
Repeats greedy_repeats(const PlanTask& task, const GreedyRule& rule);

// Priorities instead of a pattern: the smallest number goes first. `forward[c]`, `backward[c]` of
// the c-th stage of a position, counted from the first that a micro-batch visits.
GreedyRule priorities(const Placement& placement, const std::vector<std::int64_t>& forward,
                      const std::vector<std::int64_t>& backward);

}  // namespace rehearse
