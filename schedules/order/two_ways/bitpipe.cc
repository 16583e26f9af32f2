// SPDX-License-Identifier: Apache-2.0
// BitPipe: two Vs in opposite directions. Position r holds stages r and 2p-1-r of one replica and
// p-1-r and p+r of the other: four chunks, the parameters twice.
// Source: Wu, Chen, Yu, "BitPipe: Bidirectional Interleaved Pipeline Parallelism for Accelerating
// Large Models Training", arXiv 2410.19367: bubble (p-2)/(3m+p-2); the order of a unit of p
// micro-batches is the authors' figure. For more the paper concatenates units, whose bubbles add
// up; that or the greedy order, whichever ends earlier for F = 1, B = 2 per chunk, is taken: 53, 78
// and 103 at p = 4 and m = 8, 12, 16, where the formula has 52, 76 and 100; further from it at
// larger p.
#include <algorithm>
#include <array>

#include "schedules/order/greedy.h"
#include "schedules/order/orders.h"
#include "schedules/timing/compute_timing.h"

namespace rehearse::order {
namespace {

// A step of a unit, told by chunk and by whether it is the direction that begins nearer.
struct UnitStep {
  bool own = false;
  std::int32_t chunk = 0;
};

void add_steps(std::vector<UnitStep>& steps, std::int32_t times,
               std::initializer_list<UnitStep> of) {
  for (std::int32_t i = 0; i < times; ++i) steps.insert(steps.end(), of);
}

class Units {
 public:
  explicit Units(const ScheduleShape& shape)
      : p_(shape.positions), half_(shape.microbatches / 2), units_(shape.microbatches / p_) {
    schedule_.placement = mirrored(v_placement(p_), half_);
  }

  Schedule run() {
    for (std::int32_t r = 0; r < p_; ++r) row(r);
    return std::move(schedule_);
  }

 private:
  void row(std::int32_t r) {
    const std::int32_t h = p_ / 2, first = r < h ? h - r : r - h + 1;
    constexpr UnitStep kD0{true, 0}, kD1{true, 1}, kO0{false, 0}, kO1{false, 1};
    std::vector<UnitStep> forwards, backwards;
    add_steps(forwards, first, {kD0});
    add_steps(forwards, h - first, {kO0, kD0});
    add_steps(forwards, first, {kO0, kO1});
    add_steps(forwards, h - first, {kD1, kO1});
    add_steps(forwards, first, {kD1});
    add_steps(backwards, first, {kD1});
    add_steps(backwards, h - first, {kO1, kD1});
    add_steps(backwards, first, {kO1, kO0});
    add_steps(backwards, h - first, {kD0, kO0});
    add_steps(backwards, first, {kD0});
    const std::size_t ahead =
        std::min(forwards.size(), static_cast<std::size_t>(p_ + h + std::min(r, p_ - 1 - r)));
    std::array<std::array<std::int32_t, 4>, 2> next{};  // number, by kind, by direction and chunk
    for (std::int32_t unit = 0; unit < units_; ++unit) {
      for (std::size_t i = 0; i < forwards.size() + ahead; ++i) {
        if (i < forwards.size()) add(r, OpKind::Forward, forwards[i], next[0]);
        if (i >= ahead) add(r, OpKind::Backward, backwards[i - ahead], next[1]);
      }
    }
    schedule_.end_row();
  }

  void add(std::int32_t r, OpKind kind, UnitStep step, std::array<std::int32_t, 4>& next) {
    const bool up = step.own == (r >= p_ / 2);
    const std::int32_t along = up ? p_ - 1 - r : r;  // the position, seen in its direction
    const std::int32_t stage = step.chunk == 0 ? along : 2 * p_ - 1 - along;
    std::int32_t& number = next[static_cast<std::size_t>(2 * (up ? 1 : 0) + step.chunk)];
    schedule_.ops.push_back(compute_op(kind, {stage}, {(up ? half_ : 0) + number++}));
  }

  std::int32_t p_, half_, units_;
  Schedule schedule_;
};

GreedyTask first_to_start(const ScheduleShape& shape) {
  const std::int32_t p = shape.positions;
  return {.placement = [p](std::int32_t m) { return mirrored(v_placement(p), m / 2); },
          .rule = {.in_flight = p / 2 + 1, .slot = backwards_first}};
}

Schedule units(const ScheduleShape& shape, std::int32_t microbatches) {
  ScheduleShape asked = shape;
  asked.microbatches = microbatches;
  Schedule order = Units(asked).run();
  order.microbatches = microbatches;
  return order;
}

// When every position ends each of the units; empty: the order waits for itself.
std::vector<std::vector<std::int64_t>> ends_of_units(const Schedule& order, std::int32_t units) {
  const ComputeTimes times{.stages = {{.forward = {1}, .backward = {2}}}};
  const Result<ComputeTiming> timing = time_compute(order, times);
  if (!timing) return {};
  std::vector<std::vector<std::int64_t>> ends(static_cast<std::size_t>(units));
  for (RankClass row{0}; row.value < order.num_rows(); ++row.value) {
    const std::size_t ops = order.program(row).size() / ends.size();
    for (std::size_t unit = 0; unit < ends.size(); ++unit) {
      const std::size_t last = order.first_op(row) + (unit + 1) * ops - 1;
      ends[unit].push_back(timing.value().end[last].value);
    }
  }
  return ends;
}

// A unit waits for the one before on its own position alone: if that one ended a constant later
// than the one before it on all of them, so does every unit behind.
std::int64_t end_of(const ScheduleShape& shape) {
  constexpr std::int32_t kFew = 8;
  const std::int32_t p = shape.positions, all = shape.microbatches / p;
  const std::int32_t made = std::min(all, kFew);
  const auto ends = ends_of_units(units(shape, made * p), made);
  if (ends.empty()) return std::int64_t{1} << 62;
  const std::int64_t end = std::ranges::max(ends.back());
  if (made == all) return end;
  const std::vector<std::int64_t>&last = ends[kFew - 1], &before = ends[kFew - 2];
  const std::int64_t later = last[0] - before[0];
  for (std::size_t r = 0; r < last.size(); ++r) {
    if (last[r] - before[r] == later) continue;
    return std::ranges::max(ends_of_units(units(shape, shape.microbatches), all).back());
  }
  return end + (all - kFew) * later;
}

// Whether units, one behind the other, are taken: they end no later than the other order.
bool takes_units(const ScheduleShape& shape, std::int64_t end_of_other) {
  const std::int32_t p = shape.positions, m = shape.microbatches;
  return m % p == 0 && (m == p || end_of_other >= end_of(shape));
}

}  // namespace

Result<Schedule> bitpipe(const ScheduleShape& shape) {
  const std::int32_t m = shape.microbatches;
  if (m == shape.positions) return units(shape, m);
  GreedyOrder order = greedy_order(first_to_start(shape), m);
  if (takes_units(shape, order.end)) return units(shape, m);
  return std::move(order.schedule);
}

Growing bitpipe_growing(const ScheduleShape& shape) {
  const GreedyTask task = first_to_start(shape);
  const std::int32_t p = shape.positions, m = shape.microbatches;
  const Repeats repeats = greedy_repeats(task, m);
  if (!takes_units(shape, greedy_end(task, repeats, m))) return greedy_growing(task, repeats);
  return {.repeated = p, .least = p, .with = [shape](std::int32_t fewer) -> Result<Schedule> {
            return units(shape, fewer);
          }};
}

}  // namespace rehearse::order
