// SPDX-License-Identifier: Apache-2.0
// What `run` does with every key of a scenario beside the model file: one table, as config_keys.h
// is for the model. A test walks the keys of scenarios/schema/scenario.json and fails on one that
// is in no column. Keys that are named but not built yet: `later` of the tables in
// plan_keys.cc and scenario_keys.cc.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/base/json_reader.h"
#include "schedules/base/key_use.h"
#include "schedules/model/model.h"
#include "schedules/scenario/plan.h"

namespace rehearse {

struct PlanKey {
  std::string_view keys;  // their paths, between blanks
  KeyUse use = KeyUse::Executed;
  std::string_view runs{};     // Priced: the values that `run` performs; Said: that need no word
  std::string_view example{};  // Priced: one that it does not
  std::string_view about{};    // Priced: what `simulate` prices; Said, NoMeaning: what is said, why
};

std::span<const PlanKey> plan_keys();
const PlanKey* find_plan_key(std::string_view path);  // nullptr: in no column

// What the scenario asks for that `run` refuses. REQUIRES: its kinds are checked.
std::vector<Unperformed> unperformed_of(const JsonValue& scenario, const std::string& file);
// Pairs of a model's form and a plan's layout that it does not perform together, though it performs
// each alone; named by the plan's key.
std::vector<Unperformed> unperformed_pairs(const Transformer& model, const Plan& plan,
                                           const JsonValue& scenario, const std::string& file);

// What `run` does otherwise, one line each; precision and dropout are said where they are decided.
std::vector<std::string> said_of(const JsonValue& scenario);

// The table, and the words that are not built yet, as docs/scenario.md has them.
std::string plan_keys_text();
std::string later_keys_text();

}  // namespace rehearse
