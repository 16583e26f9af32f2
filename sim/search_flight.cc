#include "sim/search_flight.h"

#include <algorithm>

#include "schedules/stage_index.h"
#include "sim/memory_script.h"
#include "sim/memory_states.h"
#include "sim/predict.h"
#include "sim/search_bound.h"

namespace rehearse::sim {
namespace {

std::string key_of(const Plan& plan) {
  std::string key = plan.schedule;
  for (const std::int32_t number :
       {plan.pipeline_parallel, plan.virtual_stages, plan.microbatches(),
        plan.microbatch_group_size, plan.extra_warmup, plan.sequence_slices}) {
    key += ' ' + std::to_string(number);
  }
  return key + ' ' + std::to_string(plan.memory_limit);
}

}  // namespace

std::int64_t Flights::lower_bound(const SearchSetup& setup, const Plan& plan,
                                  const Cluster& cluster) {
  if (plan.runtime == Runtime::Rehearse) return 0;
  const Transformer& model = setup.space->base.model;
  BoundTables tables(&setup.tables.profile(plan), model, cluster);
  const CoreBound core = tables.core(plan);
  const std::int64_t closed = tables.lower_bound(core, plan);
  if (core.may_count || plan.pipeline_parallel == 1 || plan.sequence_slices > 1) return closed;

  const std::string key = key_of(plan);
  std::vector<Row> rows;
  {
    const std::lock_guard lock(mutex_);
    const auto found = rows_.find(key);
    if (found != rows_.end()) rows = found->second;
  }
  if (rows.empty()) {
    const Result<Schedule> order = order_of(model, plan);
    if (!order) return closed;
    const Schedule& s = order.value();
    const auto stages = stages_of_rows(s);
    for (std::int32_t r = 0; r < s.num_rows(); ++r) {
      Row row;
      for (const Stage stage : stages[static_cast<std::size_t>(r)]) {
        row.stages.push_back(stage.value);
      }
      std::int64_t alive = 0;
      const auto count = [&](const Op& op, OpKind kind, int sign) {
        if (op.kind == kind) alive += sign * plan.stage_layers[op.stage.index()];
      };
      for (const Op& op : s.program({r})) {
        const auto work = work_of(s, op);
        for (const Op& one : work) {  // of a pair, what ends before what begins
          count(one, OpKind::Backward, -1);
          count(one, OpKind::InputGradient, -1);
        }
        for (const Op& one : work) count(one, OpKind::Forward, 1);
        row.layers = std::max(row.layers, alive);
      }
      rows.push_back(std::move(row));
    }
    const std::lock_guard lock(mutex_);
    rows_.emplace(key, rows);
  }
  std::int64_t bound = closed;
  for (const Row& row : rows) {
    bound = std::max(bound, tables.row_bound(plan, row.stages, row.layers));
  }
  return bound;
}

}  // namespace rehearse::sim
