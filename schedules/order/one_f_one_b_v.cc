// SPDX-License-Identifier: Apache-2.0
// 1F1B-V: 1F1B with two chunks per position in a V and whole backwards, for two thirds of 1F1B's
// activation memory.
// Source: Qi et al., "Pipeline Parallelism with Controllable Memory", NeurIPS 2024 (arXiv
// 2405.15362), appendix; sail-sg/zero-bubble-pipeline-parallelism v1f1b.py.
//
// Without W there is nothing to fill gaps with, so what counts is a block that fits together on
// every position: the best of a few, with strides found by trying, and of blocks packed op by op.
#include <algorithm>

#include "schedules/order/orders.h"
#include "schedules/order/v_block.h"
#include "schedules/planner/planner.h"
#include "schedules/planner/planner_shift.h"

namespace rehearse::order {
namespace {

// Found by trying all strides up to 5 at p = 2 ... 14.
constexpr std::array kBlocks{
    Block{{1, 1, 3, 3}, {3, 6, 3}, 6},  Block{{1, 1, 2, 3}, {1, 4, 4}, 12},
    Block{{1, 1, 3, 4}, {1, 2, 3}, 18}, Block{{1, 2, 3, 4}, {1, 1, 2}, 18},
    Block{{1, 2, 2, 5}, {2, 4, 3}, 18}, Block{{1, 1, 2, 4}, {3, 7, 4}, 18},
    Block{{2, 1, 3, 3}, {2, 3, 2}, 12}, Block{{1, 1, 4, 3}, {3, 8, 3}, 18},
};

constexpr std::int32_t kBackward = 2;       // units of one backward
constexpr std::int32_t kShiftOps = 12'000;  // larger orders are not improved
constexpr std::int32_t kShiftRounds = 8;

using Slots = std::array<bool, kInterval>;  // units of the interval that a position has taken

bool free_at(const Slots& slots, std::int64_t time, std::int32_t length) {
  for (std::int64_t t = time; t < time + length; ++t) {
    if (slots[static_cast<std::size_t>(t % kInterval)]) return false;
  }
  return true;
}
void take(Slots& slots, std::int64_t time, std::int32_t length) {
  for (std::int64_t t = time; t < time + length; ++t) {
    slots[static_cast<std::size_t>(t % kInterval)] = true;
  }
}

// Every op of the chain at the first time that its position has free in the interval; a position's
// first backward leaves two units side by side for the second. The block is then what it is: the
// strides follow from the packing.
GreedyRule packed_block(std::int32_t p, std::int32_t first_turn) {
  GreedyRule rule;
  rule.interval = kInterval;
  rule.forward_place.resize(2 * static_cast<std::size_t>(p));
  rule.backward_place = rule.forward_place;
  std::vector<Slots> taken(static_cast<std::size_t>(p), Slots{});
  std::int64_t time = 0;
  for (std::int32_t i = 0; i < 4 * p; ++i) {
    const bool forward = i < 2 * p;
    const std::int32_t stage = forward ? i : 4 * p - 1 - i;
    Slots& slots = taken[static_cast<std::size_t>(stage < p ? stage : 2 * p - 1 - stage)];
    const std::int32_t length = forward ? 1 : kBackward;
    const auto fits = [&](std::int64_t at) {
      if (!free_at(slots, at, length)) return false;
      if (forward || stage < p) return true;
      Slots then = slots;
      take(then, at, length);
      for (std::int64_t t = 0; t < kInterval; ++t) {
        if (free_at(then, t, kBackward)) return true;
      }
      return false;
    };
    if (i == p) time += first_turn - 1;
    for (std::int32_t tries = 0; tries < kInterval && !fits(time); ++tries) ++time;
    take(slots, time, length);
    (forward ? rule.forward_place : rule.backward_place)[static_cast<std::size_t>(stage)] = time;
    time += length;
  }
  return rule;
}

// Each position's ops in the order of the repeated block.
Schedule in_order(const PlanTask& task, const GreedyRule& rule) {
  struct Placed {
    std::int64_t time;
    Op op;
  };
  std::vector<std::vector<Placed>> rows(static_cast<std::size_t>(task.placement.positions));
  for (Stage s{0}; s.value < task.placement.stages(); ++s.value) {
    std::vector<Placed>& row = rows[task.placement.down[s.index()].index()];
    for (Microbatch b{0}; b.value < task.microbatches; ++b.value) {
      const std::int64_t base = kInterval * b.value;
      row.push_back({base + rule.forward_place[s.index()], compute_op(OpKind::Forward, s, b)});
      row.push_back({base + rule.backward_place[s.index()], compute_op(OpKind::Backward, s, b)});
    }
  }
  Schedule schedule;
  schedule.placement = task.placement;
  schedule.microbatches = task.microbatches;
  for (std::vector<Placed>& row : rows) {
    std::ranges::stable_sort(row, {}, &Placed::time);
    for (const Placed& placed : row) schedule.ops.push_back(placed.op);
    schedule.end_row();
  }
  return schedule;
}

// Candidate k of the task: the blocks' greedy orders, then the packed ones.
constexpr std::size_t kCandidates = kBlocks.size() + 2;
GreedyRule candidate_rule(std::size_t k, std::int32_t p) {
  if (k < kBlocks.size()) return rule_of(kBlocks[k], p);
  return packed_block(p, k == kBlocks.size() ? 1 : 3);
}
Schedule candidate(const PlanTask& task, std::size_t k) {
  const GreedyRule rule = candidate_rule(k, task.placement.positions);
  return k < kBlocks.size() ? greedy_order(task, rule) : in_order(task, rule);
}

bool large(const PlanTask& task) {
  return std::int64_t{2} * task.placement.stages() * task.microbatches > kShiftOps;
}

Schedule improved(Schedule order, const PlanTask& task) {
  if (order.ops.empty() || large(task)) return order;
  return shift_ops(order, task, Objective::Makespan, kShiftRounds);
}

PlanTask task_of(const ScheduleShape& shape) {
  const std::int32_t p = shape.positions;
  const std::int64_t peak = 2 * (2 * p / 3) + 2;  // stage-chunks; 1F1B has 2p
  return {.placement = v_placement(p),
          .microbatches = shape.microbatches,
          .limit_halves = 2 * peak,
          .split = false};
}

struct Entry {
  PlanValue value;
  std::size_t candidate = 0;
  Schedule order;
};
// The candidates that get to the end, the best first. Micro-batches enough to see the block repeat,
// few enough to try all.
std::vector<Entry> tried(const PlanTask& task) {
  PlanTask trial = task;
  trial.microbatches = std::min(task.microbatches, 2 * task.placement.positions + 4);
  std::vector<Entry> entries;
  for (std::size_t k = 0; k < kCandidates; ++k) {
    Schedule order = improved(candidate(trial, k), trial);
    const PlanValue value = value_of(order, trial, Objective::Makespan);
    if (value != PlanValue{}) entries.push_back({value, k, std::move(order)});
  }
  std::ranges::stable_sort(entries, {}, &Entry::value);
  return entries;
}

// A block that does not fit together loses a little with every micro-batch: so the best two of the
// trial, on all. Beyond kMeasured micro-batches each takes as long as it did behind half of these.
constexpr std::int32_t kMeasured = 2048;
PlanValue value_on_all(const PlanTask& task, std::size_t candidate_number) {
  if (task.microbatches <= kMeasured) {
    return value_of(improved(candidate(task, candidate_number), task), task, Objective::Makespan);
  }
  const auto value = [&](std::int32_t microbatches) {
    PlanTask some = task;
    some.microbatches = microbatches;
    return value_of(candidate(some, candidate_number), some, Objective::Makespan);
  };
  const PlanValue all = value(kMeasured), half = value(kMeasured / 2);
  if (all == PlanValue{} || half == PlanValue{}) return {};
  const auto reckoned = [&](std::int64_t end, std::int64_t before) {
    return end + (end - before) * (task.microbatches - kMeasured) / (kMeasured / 2);
  };
  return {reckoned(all.first, half.first), reckoned(all.second, half.second)};
}

std::size_t best_on_all(const PlanTask& task, std::vector<Entry>& entries) {
  entries.resize(std::min<std::size_t>(entries.size(), 2));
  for (Entry& entry : entries) entry.value = value_on_all(task, entry.candidate);
  return std::ranges::min_element(entries, {}, &Entry::value)->candidate;
}

}  // namespace

Result<Schedule> one_f_one_b_v(const ScheduleShape& shape) {
  const PlanTask task = task_of(shape);
  std::vector<Entry> entries = tried(task);
  if (entries.empty()) return Schedule{};
  if (entries.front().order.microbatches == task.microbatches) {
    return std::move(entries.front().order);
  }
  return improved(candidate(task, best_on_all(task, entries)), task);
}

Growing one_f_one_b_v_growing(const ScheduleShape& shape) {
  const PlanTask task = task_of(shape);
  if (!large(task)) return {};  // its order is improved op by op
  std::vector<Entry> entries = tried(task);
  if (entries.empty()) return {};
  const std::size_t best = best_on_all(task, entries);
  GreedyRule rule = candidate_rule(best, shape.positions);
  if (best < kBlocks.size()) return growing_of(task, std::move(rule));
  const std::int64_t last = rule.backward_place.front();  // in the block
  return {.repeated = 1,
          .least = static_cast<std::int32_t>(last / kInterval) + 2,
          .with = [task, best](std::int32_t microbatches) -> Result<Schedule> {
            PlanTask fewer = task;
            fewer.microbatches = microbatches;
            return candidate(fewer, best);
          }};
}

}  // namespace rehearse::order
