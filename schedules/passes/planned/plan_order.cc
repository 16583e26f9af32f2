// SPDX-License-Identifier: Apache-2.0
#include "schedules/passes/planned/plan_order.h"

#include <algorithm>

#include "schedules/formats/schedule_file.h"
#include "schedules/order/order_bound.h"
#include "schedules/order/place_recompute.h"
#include "schedules/order/registry.h"
#include "schedules/passes/lower.h"
#include "schedules/passes/planned/recompute_room.h"
#include "schedules/scenario/memory/recompute_parts.h"
#include "schedules/scenario/plan_shape.h"
#include "schedules/scenario/reader/plan_reader.h"
#include "schedules/scenario/stage_layers.h"
#include "schedules/timing/metrics.h"

namespace rehearse {
namespace {

constexpr std::array kUsualLimits{1.0, 2.0, 4.0};             // of 1F1B's activations
constexpr std::int64_t kMostPlanned = std::int64_t{1} << 20;  // ops that `auto` plans itself

std::int32_t stages_of(const ScheduleInfo& info, const Plan& plan, std::int32_t v) {
  const bool one_each = info.chunks == ChunkRule::One || info.chunks == ChunkRule::Bidirectional;
  return plan.pipeline_parallel * (one_each ? 1 : v);
}

class Candidates {
 public:
  Candidates(const Transformer& model, const Plan& plan) : model_(model), plan_(plan) {}

  std::vector<Plan> of_auto() {
    for (const ScheduleInfo& info : schedule_table()) {
      if (info.planned) continue;
      // At p = 1 all names are micro-batches one after another, with or without a split backward.
      const bool alone = plan_.pipeline_parallel == 1 && plan_.virtual_stages == 1;
      if (alone && !info.sliced && !info.one_stage) continue;
      if (!alone && (info.one_stage || info.serial)) continue;
      add_named(info);
    }
    if (plan_.sequence_slices > 1) return std::move(found_);  // planned orders have none
    const ScheduleInfo& own = *find_schedule(plan_.schedule);
    for (const double limit : limits(plan_.memory_limit)) {
      add(own, plan_.virtual_stages, 1, limit);
      if (plan_.chunks_open) add(own, 2, 1, limit);
    }
    return std::move(found_);
  }

  std::vector<Plan> of_zero_bubble() {
    const ScheduleInfo& own = *find_schedule(plan_.schedule);
    for (const double limit : limits(plan_.memory_limit)) add(own, 1, 1, limit);
    return std::move(found_);
  }

 private:
  // The limits that orders are planned for, smallest first: where one is asked for, those of one
  // ladder that it reaches, so that more memory means more orders to choose from. Its steps are
  // quarters of 1F1B's peak, in halves of an activation, which is what the planner counts; from
  // twice the peak on, to four times, whole peaks.
  std::vector<double> limits(double asked) const {
    if (asked <= 0) return {kUsualLimits.begin(), kUsualLimits.end()};
    const std::int32_t peak = 2 * std::min(plan_.pipeline_parallel, plan_.microbatches());
    const std::int32_t step = std::max(1, peak / 4);
    const auto most = static_cast<std::int32_t>(std::min(asked, 4.0) * peak + 1e-9);
    std::vector<double> ladder;
    for (std::int32_t h = asked >= 1 ? peak : 1 + (peak - 1) % step; h <= most;) {
      ladder.push_back(static_cast<double>(h) / peak);
      h = h + step <= 2 * peak ? h + step : (h / peak + 1) * peak;
    }
    if (ladder.empty()) ladder.push_back(asked);
    return ladder;
  }

  void add_named(const ScheduleInfo& info) {
    const std::int32_t slices = info.sliced && plan_.slices_open ? 4 : plan_.sequence_slices;
    if (info.sliced != (slices > 1)) return;
    switch (info.chunks) {
      case ChunkRule::One:
      case ChunkRule::Bidirectional:
        if (plan_.virtual_stages == 1) add(info, 1, slices, 0);
        break;
      case ChunkRule::Many:
        if (plan_.chunks_open) add(info, 2, slices, 0);
        if (plan_.virtual_stages > 1) add(info, plan_.virtual_stages, slices, 0);
        break;
      case ChunkRule::Waves:
        if (plan_.chunks_open) add(info, 2, slices, 0);
        if (plan_.virtual_stages > 1 && plan_.virtual_stages % 2 == 0)
          add(info, plan_.virtual_stages, slices, 0);
        break;
      case ChunkRule::V:
      case ChunkRule::BidirectionalV:
        if (plan_.chunks_open || plan_.virtual_stages == 2) add(info, 2, slices, 0);
        break;
      case ChunkRule::Any:
        break;
    }
  }

  void add(const ScheduleInfo& info, std::int32_t v, std::int32_t slices, double limit) {
    if (v > 1 && plan_.pipeline_parallel == 1) return;
    const std::int32_t stages = stages_of(info, plan_, v);
    const std::int64_t ops = 3 * std::int64_t{stages} * plan_.microbatches();
    if (info.chunks == ChunkRule::Any && ops > kMostPlanned) return;
    Plan made = plan_;
    made.order = info.name;
    made.virtual_stages = v;
    settle_transfers(made);
    made.sequence_slices = slices;
    made.memory_limit = limit;
    made.chunks_open = made.slices_open = false;
    if (static_cast<std::size_t>(stages) != plan_.stage_layers.size()) {
      if (!plan_.chunks_open || stages > model_.layers + 2) return;
      made.stage_layers = default_stage_layers(static_cast<std::int32_t>(model_.layers), stages);
    }
    if (!slices_fit(made) || !shape_of(made)) return;
    if (info.planned || plan_.memory_limit <= 0 || keeps_to_limit(made)) {
      found_.push_back(std::move(made));
    }
  }

  // As the reader checks sequence_slices.
  static bool slices_fit(const Plan& plan) {
    const std::int64_t s = plan.sequence_length, c = plan.context_parallel;
    if (plan.sequence_slices == 1) return true;
    if (s % plan.sequence_slices != 0) return false;
    const std::int64_t slice = s / plan.sequence_slices;
    if (c > 1 && slice % (2 * c) != 0) return false;
    return !plan.sequence_parallel || slice % (plan.tensor_parallel * c) == 0;
  }

  // 1F1B keeps min(p, m) micro-batches on position 0.
  bool keeps_to_limit(Plan& plan) const {
    const Result<Schedule> order = order_of(model_, plan);
    if (!order) return false;
    const Result<ComputeTiming> timing = time_compute(order.value(), {});
    if (!timing) return false;
    const double most = plan_.memory_limit * std::min(plan.pipeline_parallel, plan.microbatches());
    return measure(order.value(), timing.value()).largest_weighted_peak() <=
           most * visited_chunks(order.value()) + 1e-9;
  }

  const Transformer& model_;
  const Plan& plan_;
  std::vector<Plan> found_;
};

}  // namespace

Result<Schedule> order_of(const Transformer& model, Plan& plan) {
  if (plan.schedule.starts_with("file:")) {
    return order_of_file(plan, static_cast<std::int32_t>(model.layers));
  }
  Result<ScheduleShape> shape = shape_of(plan);
  if (!shape) return shape.error();
  ScheduleShape asked = std::move(shape).value();
  fill_planned_times({model, plan}, asked);
  Result<Schedule> order = generate(name_of_order(plan), asked);
  if (!order || !recomputes_in_advance(plan)) return order;
  return place_recompute(order.value(),
                         {.stages = asked.stage_times, .transfer = asked.times.transfer},
                         recompute_room({model, plan}, order.value()));
}

Growing growing_of(const Plan& plan) {
  if (recomputes_in_advance(plan)) return {};  // by times, of which nobody knows if they repeat
  const ScheduleInfo* info = find_schedule(name_of_order(plan));
  if (info == nullptr) return {};
  const Result<ScheduleShape> shape = shape_of(plan);
  return shape ? growing_of(*info, shape.value()) : Growing{};
}

bool leaves_order_open(const Plan& plan) {
  const ScheduleInfo* info = find_schedule(plan.schedule);
  if (info == nullptr) return false;
  return info->planned ? plan.order.empty()
                       : recomputes_in_advance(plan) && plan.planned_stages.empty();
}

std::vector<Plan> order_candidates(const Transformer& model, const Plan& plan) {
  if (!leaves_order_open(plan)) return {plan};
  Plan base = plan;
  const ScheduleInfo& info = *find_schedule(plan.schedule);
  if (!info.planned) {  // its own, with recomputation where priced times have it wait
    base.order = plan.schedule;
    return {base};
  }
  base.places_recompute = false;
  Candidates candidates(model, base);
  std::vector<Plan> found =
      info.chunks == ChunkRule::Any ? candidates.of_auto() : candidates.of_zero_bubble();
  const bool apart = plan.may_place_recompute() || recomputes_in_advance(plan);
  for (std::size_t i = 0, named = found.size(); apart && i < named; ++i) {
    if (plan.pipeline_parallel == 1) break;
    Plan placed = found[i];
    placed.places_recompute = true;
    // What is computed again counts to the limit, too, which the order alone has kept to.
    if (placed.memory_limit == 0) placed.memory_limit = plan.memory_limit;
    found.push_back(std::move(placed));
  }
  return found;
}

std::optional<double> above_bound(const Plan& plan, const Schedule& order) {
  const ScheduleInfo* info = find_schedule(name_of_order(plan));
  if (info == nullptr || !info->planned || plan.planned_stages.empty()) return {};
  Result<ScheduleShape> shape = shape_of(plan);
  if (!shape) return {};
  ScheduleShape asked = std::move(shape).value();
  asked.stage_times = plan.planned_stages;
  asked.times.transfer = plan.planned_transfer;
  const std::optional<OrderBound> bound = bound_of(order, asked);
  if (!bound) return {};
  return bound->above();
}

}  // namespace rehearse
