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

std::int64_t end_of(const Schedule& order) {
  const ComputeTimes times{.stages = {{.forward = {1}, .backward = {2}}}};
  const Result<ComputeTiming> timing = time_compute(order, times);
  return timing ? std::ranges::max(timing.value().end).value : std::int64_t{1} << 62;
}

}  // namespace

Result<Schedule> bitpipe(const ScheduleShape& shape) {
  const std::int32_t p = shape.positions, m = shape.microbatches;
  const auto greedy = [&] {
    Schedule order = greedy_order(mirrored(v_placement(p), m / 2), m, p / 2 + 1);
    order.microbatches = m;
    return order;
  };
  if (m % p != 0) return greedy();
  Schedule units = Units(shape).run();
  units.microbatches = m;
  if (m == p) return units;
  Schedule other = greedy();
  return end_of(other) < end_of(units) ? std::move(other) : std::move(units);
}

}  // namespace rehearse::order
