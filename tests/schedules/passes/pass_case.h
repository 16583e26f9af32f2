// SPDX-License-Identifier: Apache-2.0
// docs/ir.md's example after some of the lowering's passes: what each pass promises is looked at
// behind it, by the validator or on the row itself.
#pragma once

#include <algorithm>
#include <set>
#include <string_view>
#include <vector>

#include "schedules/order/registry.h"
#include "schedules/passes/row_draft.h"
#include "schedules/proof/validate.h"
#include "schedules/scenario/plan_shape.h"
#include "tests/schedules/ir/example_case.h"

namespace rehearse {

using Pass = void (*)(RowDraft&);
inline const std::vector<Pass> kAllPasses{split_parts,     hold_parameters,  compute_parts,
                                          place_transfers, shard_parameters, sync_gradients,
                                          offload,         end_step};
inline std::vector<Pass> passes_without(std::set<Pass> left_out) {
  std::vector<Pass> passes = kAllPasses;
  std::erase_if(passes, [&](Pass pass) { return left_out.contains(pass); });
  return passes;
}
inline std::vector<Pass> passes_until(Pass last) {
  return {kAllPasses.begin(), std::find(kAllPasses.begin(), kAllPasses.end(), last) + 1};
}

struct PassCase {
  explicit PassCase(Plan of) : plan(std::move(of)), draft(make_draft(order, layout, {})) {
    make_buckets(draft);
  }
  PassCase(const PassCase&) = delete;

  RowDraft row(std::int32_t number, const std::vector<Pass>& passes) {
    RowDraft row(draft, {number});
    for (const Pass pass : passes) pass(row);
    return row;
  }
  // The program of these passes on all rows, with its waits.
  Schedule program(const std::vector<Pass>& passes) {
    const auto rows = static_cast<std::int32_t>(draft.schedule.rows.size());
    for (std::int32_t r = 0; r < rows; ++r) {
      RowDraft made = row(r, passes);
      weave(made);
    }
    Ordered ordered = rehearse::order(std::move(draft));
    plan_lifetimes(ordered.schedule, {}, ordered.duration, true);
    add_waits(ordered);
    return ordered.schedule;
  }

  Transformer model = example_model();
  Plan plan;
  Schedule order = generate(plan.schedule, shape_of(plan).value()).value();
  Layout layout{model, plan};
  Draft draft;
};

// Rules that a program breaks.
inline std::set<std::string_view> broken(const Schedule& program) {
  std::set<std::string_view> rules;
  for (const Violation& violation : validate(program).violations) rules.insert(violation.rule);
  return rules;
}

}  // namespace rehearse
