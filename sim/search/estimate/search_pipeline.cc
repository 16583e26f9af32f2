// SPDX-License-Identifier: Apache-2.0
#include "sim/search/estimate/search_pipeline.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "schedules/order/registry.h"

namespace rehearse::sim {
namespace {

constexpr double kUnit = 1'000'000;  // ticks of a forward
constexpr double kTransfer = 0.02;   // of a forward: small, so that the answer is the slope
constexpr std::size_t kMostOrderOps = 1'000'000;  // of orders that are remembered
constexpr std::int32_t kRatioSteps = 4, kPairSteps = 20;

std::int32_t rounded(double ratio, std::int32_t steps) {
  return static_cast<std::int32_t>(std::lround(ratio * steps));
}

struct Timed {
  double makespan = 0, hops = 0;
};

// Empty numbers (NaN) where there is no order.
Timed time_order(const Schedule* order, const PositionTimes& times) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  if (order == nullptr) return {kNone, kNone};
  const std::int32_t chunks = visited_chunks(*order);
  const Result<ComputeTiming> plain =
      time_compute(*order, divide(times, chunks, std::max(1, order->slices)));
  PositionTimes moved = times;
  moved.transfer = {static_cast<std::int64_t>(kUnit * kTransfer)};
  const Result<ComputeTiming> with =
      time_compute(*order, divide(moved, chunks, std::max(1, order->slices)));
  if (!plain || !with) return {kNone, kNone};
  const auto makespan = static_cast<double>(plain.value().makespan.value);
  return {makespan,
          (static_cast<double>(with.value().makespan.value) - makespan) / (kUnit * kTransfer)};
}

}  // namespace

PipelineTimes::Order PipelineTimes::order_of(const Plan& plan, const Key& key, std::int32_t m,
                                             const PositionTimes& times) {
  const ScheduleInfo& info = schedule_table()[static_cast<std::size_t>(key[0])];
  // Nobody asks twice for an order of one backward; a planned order is planned for its times.
  const bool remember = info.splits_backward && !info.planned;
  const std::array<std::int32_t, 7> which{key[0], key[1], key[2], key[3], key[4], key[5], m};
  if (remember) {
    const std::lock_guard lock(mutex_);
    const auto found = orders_.find(which);
    if (found != orders_.end()) return found->second;
  }
  Result<Schedule> made = generate(info.name, {.positions = key[1],
                                               .microbatches = m,
                                               .chunks = key[2],
                                               .group_size = key[3],
                                               .extra_warmup = key[4],
                                               .slices = key[5],
                                               .memory_limit = plan.memory_limit,
                                               .times = times});
  const Order order = made ? std::make_shared<const Schedule>(std::move(made).value()) : Order{};
  if (remember) {
    const std::lock_guard lock(mutex_);
    const std::size_t ops = order ? order->ops.size() : 0;
    if (ops_ + ops <= kMostOrderOps && orders_.emplace(which, order).second) ops_ += ops;
  }
  return order;
}

PipelineTimes::Line PipelineTimes::measure(const Plan& plan, const Key& key) {
  PositionTimes times;
  const auto ticks = [](std::int32_t quarters) {
    return Nanoseconds{static_cast<std::int64_t>(kUnit) * std::max(quarters, 1) / kRatioSteps};
  };
  times.forward = {static_cast<std::int64_t>(kUnit)};
  times.input_gradient = ticks(key[7]);
  times.weight_gradient = ticks(key[8]);
  const double sum =
      kUnit + static_cast<double>(times.input_gradient.value + times.weight_gradient.value);
  if (key[9] > 0) {
    times.pair = {static_cast<std::int64_t>(sum * (1 - static_cast<double>(key[9]) / kPairSteps))};
  }
  const std::int32_t p = key[1], m1 = key[6];
  Line line{.m1 = m1};
  const Timed first = time_order(order_of(plan, key, m1, times).get(), times);
  if (std::isnan(first.makespan)) {  // 1F1B's, for want of anything better
    line.at = m1 + p - 1;
    line.hops_at = 2.0 * (p - 1);
    return line;
  }
  line.at = first.makespan / sum;
  line.hops_at = first.hops;
  if (key[10] == 0) return line;  // the very number that is asked for
  const Timed second = time_order(order_of(plan, key, m1 + p, times).get(), times);
  if (std::isnan(second.makespan)) return line;
  line.slope = (second.makespan / sum - line.at) / p;
  line.hops_slope = (second.hops - line.hops_at) / p;
  return line;
}

// Orders are measured on at most this many positions: what a pipeline waits for grows with p - 1.
constexpr std::int32_t kMostPositions = 8;

PipelineTime PipelineTimes::of(const Plan& plan, const PipelineWork& work) {
  const std::int32_t p = plan.pipeline_parallel, m = plan.microbatches();
  const ScheduleInfo* info = find_schedule(plan.schedule);
  if (p == 1 || info == nullptr) return {.turns = static_cast<double>(m)};
  // q positions and m1 micro-batches stand for p and m: the same parity, the same share of a round.
  const std::int32_t q = p <= kMostPositions ? p : kMostPositions - p % 2;
  const bool far = m > 3 * p || (p > q && m >= 2 * p);
  std::int32_t m1 = far ? 2 * p + m % p : m;
  if (q < p) {
    m1 = std::max<std::int32_t>(1, static_cast<std::int32_t>(std::int64_t{m1} * q / p));
    if (m % 2 == 0) m1 += m1 % 2;
  }
  const bool split = info->splits_backward;
  const double forward = std::max(work.forward, 1e-9);
  Key key{static_cast<std::int32_t>(info - schedule_table().data()),
          q,
          plan.virtual_stages,
          plan.microbatch_group_size == p || q < p ? 0 : plan.microbatch_group_size,
          plan.extra_warmup,
          info->sliced ? plan.sequence_slices : 0,
          m1,
          split ? std::clamp(rounded(work.input / forward, kRatioSteps), 1, 40) : kRatioSteps,
          split ? std::clamp(rounded(work.weight / forward, kRatioSteps), 1, 40) : kRatioSteps,
          split ? std::clamp(rounded(work.pair_saving, kPairSteps), 0, kPairSteps / 2) : 0,
          far ? 1 : 0};
  if (key[3] > m1) key[3] = 0;
  Line line;
  bool known = false;
  {
    const std::lock_guard lock(mutex_);
    const auto found = lines_.find(key);
    if (found != lines_.end()) {
      line = found->second;
      known = true;
    }
  }
  if (!known) {
    line = measure(plan, key);
    const std::lock_guard lock(mutex_);
    lines_.emplace(key, line);
  }
  const double longer = static_cast<double>(p - 1) / std::max(q - 1, 1);
  PipelineTime time;
  time.turns = line.slope * m;
  time.fill = (line.at - line.slope * line.m1) * longer;
  time.hops = std::max(
      0.0, line.hops_at * longer + line.hops_slope * (m - static_cast<double>(line.m1) * p / q));
  return time;
}

}  // namespace rehearse::sim
