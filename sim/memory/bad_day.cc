// SPDX-License-Identifier: Apache-2.0
#include "sim/memory/bad_day.h"

#include <cmath>

#include "sim/formulas/expert_load.h"

namespace rehearse::sim {
namespace {

Plan with_samples_of(Plan plan, std::int64_t tokens) {
  if (tokens > 0) plan.sequence_length = tokens;
  return plan;
}

}  // namespace

DayLoad day_load(const Layout& layout) {
  const Plan& plan = layout.plan;
  if (plan.runtime.performer().plans_arena) return {};
  DayLoad load;
  // A capacity is reserved whatever comes (size_letters).
  if (layout.model.experts.count > 0 && balance_of(layout).capacity <= 0) {
    load.rows = balance_of(layout).rows(static_cast<double>(layout.shape.experts.tokens)).busiest;
  }
  if (plan.document_maximum > plan.sequence_length) load.sample = plan.document_maximum;
  return load;
}

LoadedLayout::LoadedLayout(const Layout& of, const DayLoad& load)
    : plan_(with_samples_of(of.plan, load.sample)), layout_(of.model, plan_) {
  std::int64_t& rows = layout_.shape.experts.rows;
  rows = static_cast<std::int64_t>(std::ceil(static_cast<double>(rows) * load.rows));
}

}  // namespace rehearse::sim
