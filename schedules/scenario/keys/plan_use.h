// SPDX-License-Identifier: Apache-2.0
// What `run` does with every key of a scenario beside the model file, as config_keys.h says it of
// the model: a plan's keys say it in their rows (plan_rows.h, trait_rows.h), the others here. A
// test walks the keys of scenarios/schema/scenario.json and fails on one that is in no column.
// Keys that are named but not built yet: `later` of the tables in plan_rows.cc and
// scenario_keys.cc.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/base/json_reader.h"
#include "schedules/base/key_use.h"
#include "schedules/model/model.h"
#include "schedules/scenario/keys/plan_rows.h"
#include "schedules/scenario/plan.h"

namespace rehearse {

// Keys of one use, their paths between blanks.
struct PlanKey {
  std::string keys;
  RunUse run;
};

std::vector<PlanKey> run_keys(std::span<const PlanRow> rows = plan_rows());  // of a scenario
const RunUse* find_run_use(std::string_view path);                           // nullptr: no such key

// What the scenario asks for that `run` refuses. REQUIRES: its kinds are checked.
std::vector<Unperformed> unperformed_of(const JsonValue& scenario, const std::string& file);
// Pairs of a model's form and a plan's layout that it does not perform together, though it performs
// each alone; named by the plan's key.
std::vector<Unperformed> unperformed_pairs(const Transformer& model, const Plan& plan,
                                           const JsonValue& scenario, const std::string& file);

// What `run` does otherwise, one line each; precision and dropout are said where they are decided.
std::vector<std::string> said_of(const JsonValue& scenario);

// The table, and the words that are not built yet, as docs/scenario.md has them.
std::string plan_keys_text(std::span<const PlanRow> rows = plan_rows());
std::string later_keys_text();

}  // namespace rehearse
