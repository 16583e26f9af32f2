// SPDX-License-Identifier: Apache-2.0
// A plan from JSON: every default filled in, every check of the plan table made (docs/scenario.md).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "schedules/base/json_reader.h"
#include "schedules/model/model.h"
#include "schedules/scenario/plan.h"
#include "schedules/scenario/plan_size.h"

namespace rehearse {

// What a plan is resolved against.
struct PlanContext {
  const Transformer* model = nullptr;  // nullptr: a schedule alone; what needs a model is left out
  std::optional<std::int32_t> gpus;    // the scenario's `gpus`, where given
  std::int32_t gpus_line = 0;
  std::int32_t gpus_per_node = 1;  // default of `gpus` where nothing says more
  // Default of the command, or what default_runtime says of the file; the plan's key wins.
  std::optional<std::string> runtime;
  std::span<const RuntimeTraits> runtimes{};    // read before, by name; others are read from files
  std::span<const MeasuredRouting> routings{};  // read before, by path; others likewise
};

// `plan` may be an empty object; its kinds and ranges have been checked (check_keys). On failure
// the report has the error. `warnings` gets what the user should hear though nothing is wrong.
Plan resolve_plan(const JsonValue& plan, const PlanContext& context, JsonReport& report,
                  std::vector<std::string>& warnings);

// GPUs of one replica, as a plan says its sizes: t p c, t by its grid where that alone is said;
// 2^20 at most.
std::int32_t said_gpus_of_a_replica(const JsonValue& plan);

// What `runtime` is where a scenario's document names none (default_runtime): of a list of stages
// the lowest counts. Asked before anything is set over the document.
std::string runtime_of_file(const JsonValue& scenario);

// Whether the plan's transfers overlap, which may depend on its chunks: again where these are
// chosen later.
bool overlaps_transfers(const Plan& plan);
// What follows from it and from what the plan says of transfers: Plan::overlap_pipeline, transfers.
void settle_transfers(Plan& plan);

}  // namespace rehearse
