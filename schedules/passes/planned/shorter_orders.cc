// SPDX-License-Identifier: Apache-2.0
#include "schedules/passes/planned/shorter_orders.h"

#include <algorithm>
#include <array>
#include <utility>

#include "schedules/ir/stage_index.h"
#include "schedules/passes/planned/plan_order.h"

namespace rehearse {
namespace {

// Micro-batches of one direction that a repetition is tried with, at most.
constexpr std::int32_t kMostTried = 64;

std::int32_t directions(const Placement& placement) {
  return placement.up.empty() ? 1 : 2;
}

bool is_work(OpKind kind) {
  return traits(kind).op_class == OpClass::Compute;
}

// Every forward once, and every backward, whole or in halves.
bool complete(const Schedule& order) {
  const auto stages = static_cast<std::size_t>(order.placement.stages());
  const auto per_stage =
      static_cast<std::size_t>(order.microbatches) * static_cast<std::size_t>(order.slices);
  constexpr std::size_t kKinds = static_cast<std::size_t>(OpKind::Recompute) + 1;
  std::vector<bool> seen(kKinds * stages * per_stage);
  std::array<std::size_t, kKinds> count{};
  for (RankClass row{0}; row.value < order.num_rows(); ++row.value) {
    for (const Op& op : order.program(row)) {
      for (const Op& work : work_of(order, op)) {
        if (work.stage.value < 0 || work.stage.value >= order.placement.stages()) return false;
        if (work.microbatch.value < 0 || work.microbatch.value >= order.microbatches) return false;
        const auto kind = static_cast<std::size_t>(work.kind);
        if (kind >= kKinds) return false;
        const auto slice = static_cast<std::size_t>(std::max<std::int32_t>(work.slice, 0));
        const std::size_t at = (kind * stages + work.stage.index()) * per_stage +
                               work.microbatch.index() * static_cast<std::size_t>(order.slices) +
                               slice;
        if (seen[at]) return false;
        seen[at] = true;
        ++count[kind];
      }
    }
  }
  const auto of = [&](OpKind kind) { return count[static_cast<std::size_t>(kind)]; };
  const std::size_t all = stages * per_stage;
  return of(OpKind::Forward) == all && of(OpKind::Backward) + of(OpKind::InputGradient) == all &&
         of(OpKind::InputGradient) == of(OpKind::WeightGradient);
}

}  // namespace

Numbered numbered(const Placement& placement, Microbatch microbatch) {
  const bool up = !placement.up.empty() && microbatch.value >= placement.first_up;
  return {up, microbatch.value - (up ? placement.first_up : 0)};
}

bool same_work(const Schedule& a, const Op& x, const Schedule& b, const Op& y, std::int32_t later) {
  if (x.kind != y.kind) return false;
  const auto one = work_of(a, x), other = work_of(b, y);
  for (std::size_t w = 0; w < one.size(); ++w) {
    const Numbered here = numbered(a.placement, one[w].microbatch),
                   there = numbered(b.placement, other[w].microbatch);
    if (one[w].kind != other[w].kind || one[w].stage != other[w].stage ||
        one[w].slice != other[w].slice || here.up != there.up ||
        here.number != there.number + later) {
      return false;
    }
  }
  return true;
}

ShorterOrders ShorterOrders::of_plan(const Plan& plan) {
  ShorterOrders orders;
  orders.growing_ = growing_of(plan);
  orders.repeated_ = orders.growing_.repeated;
  orders.least_ = orders.growing_.least;
  return orders;
}

ShorterOrders ShorterOrders::cut_from(const Schedule& whole) {
  ShorterOrders orders;
  orders.whole_ = &whole;
  // A file may list what is no work of a stage.
  const bool works = std::ranges::all_of(whole.ops, [](const Op& op) { return is_work(op.kind); });
  const std::int32_t m = whole.microbatches / directions(whole.placement);
  if (!works || whole.level != Level::Compute || !whole.groups.empty()) return orders;
  for (std::int32_t later = 1; later <= std::min(kMostTried, m / 4); ++later) {
    if (!orders.find_phases(later)) continue;
    orders.repeated_ = later * directions(whole.placement);
    const std::int32_t most =
        std::ranges::min_element(orders.phases_, {}, &Phase::repetitions)->repetitions();
    if (complete(orders.without(most))) return orders;
    orders.repeated_ = 0;
  }
  return orders;
}

// Around the middle of every row.
bool ShorterOrders::find_phases(std::int32_t later) {
  const Schedule& whole = *whole_;
  const std::int32_t m = whole.microbatches / directions(whole.placement);
  phases_.clear();
  for (RankClass row{0}; row.value < whole.num_rows(); ++row.value) {
    const auto program = whole.program(row);
    // About so many ops lie between an op and its like.
    const std::size_t most =
        2 * (program.size() / static_cast<std::size_t>(m) + 1) * static_cast<std::size_t>(later);
    const std::size_t middle = program.size() / 2;
    Phase phase;
    for (std::size_t period = 1; period <= most && middle + period < program.size(); ++period) {
      if (!same_work(whole, program[middle + period], whole, program[middle], later)) continue;
      phase.period = period;
      break;
    }
    if (phase.period == 0) return false;
    const auto alike = [&](std::size_t i) {
      return same_work(whole, program[i + phase.period], whole, program[i], later);
    };
    phase.begin = phase.end = middle;
    while (phase.end + phase.period < program.size() && alike(phase.end)) ++phase.end;
    while (phase.begin > 0 && alike(phase.begin - 1)) --phase.begin;
    if (2 * std::int64_t{phase.repetitions()} * later < m) return false;  // not worth it
    phases_.push_back(phase);
  }
  return true;
}

// What stands behind is of earlier micro-batches then, of each direction.
Schedule ShorterOrders::without(std::int32_t repetitions) const {
  const Schedule& whole = *whole_;
  const std::int32_t both = directions(whole.placement);
  const std::int32_t less = repetitions * repeated_ / both;
  Schedule shorter;
  shorter.name = whole.name;
  shorter.slices = whole.slices;
  shorter.placement = whole.placement;
  shorter.microbatches = whole.microbatches - repetitions * repeated_;
  if (both == 2) shorter.placement.first_up -= less;
  const auto renumbered = [&](Op op, bool behind) {
    const Numbered at = numbered(whole.placement, op.microbatch);
    op.microbatch.value =
        (at.up ? shorter.placement.first_up : 0) + at.number - (behind ? less : 0);
    return op;
  };
  for (RankClass row{0}; row.value < whole.num_rows(); ++row.value) {
    const auto program = whole.program(row);
    const Phase& phase = phases_[row.index()];
    const std::size_t resume = phase.begin + static_cast<std::size_t>(repetitions) * phase.period;
    for (std::size_t i = 0; i < program.size(); ++i) {
      if (i == phase.begin) i = resume;
      if (i >= program.size()) break;
      const bool behind = i >= resume;
      Op op = program[i];
      if (op.kind == OpKind::Overlap && op.child >= 0) {
        const auto children = work_of(whole, op);
        op.child = static_cast<std::int32_t>(shorter.children.size());
        for (const Op& child : children) shorter.children.push_back(renumbered(child, behind));
      }
      shorter.ops.push_back(op.microbatch ? renumbered(op, behind) : op);
    }
    shorter.end_row();
  }
  return shorter;
}

std::optional<Schedule> ShorterOrders::with(std::int32_t microbatches) const {
  if (whole_ == nullptr) {
    Result<Schedule> order = growing_.with(microbatches);
    if (!order) return {};
    return std::move(order).value();
  }
  const std::int32_t repetitions = (whole_->microbatches - microbatches) / repeated_;
  const bool there = std::ranges::all_of(
      phases_, [&](const Phase& phase) { return repetitions <= phase.repetitions(); });
  if (!there) return {};
  Schedule shorter = without(repetitions);
  if (!complete(shorter)) return {};
  return shorter;
}

}  // namespace rehearse
