// SPDX-License-Identifier: Apache-2.0
// A key of a plan is a row: a made-up one, added to the rows and nowhere else, is checked, read,
// printed, noted, documented and changed. docs/add_a_key.md is the page.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "schedules/runtime/trait_rows.h"
#include "schedules/scenario/keys/plan_notes.h"
#include "schedules/scenario/keys/plan_rows.h"
#include "schedules/scenario/keys/plan_use.h"
#include "schedules/scenario/keys/scenario_keys.h"
#include "schedules/scenario/scenario.h"
#include "sim/search/space/plan_changes.h"

namespace rehearse::sim {
namespace {

// `lookahead`: as a newcomer would add it. It fills a field that the plan has already, since a test
// cannot add one.
std::vector<PlanRow> with_lookahead() {
  const std::span<const PlanRow> rows = plan_rows();
  std::vector<PlanRow> all(rows.begin(), rows.end());
  all.push_back({.key = {.name = "lookahead",
                         .types = kInteger,
                         .min = 1,
                         .max = 8,
                         .searchable = true,
                         .about = "steps that are looked ahead"},
                 .run = {KeyUse::Priced, "null | 1", "2", "a longer view is priced"},
                 .field = &Plan::extra_warmup,
                 .idle = {{{[](const JsonValue&) { return true; },
                            [](const Plan& plan) { return plan.pipeline_parallel == 1; },
                            "there is one position"}}},
                 .smaller = [](const Plan&) { return std::vector<std::string>{"1"}; }});
  return all;
}

JsonValue json(const std::string& text) {
  return parse_json(text, "").value();
}

TEST(PlanRows, AMadeUpKeyIsFoundWhereverAKeyMustBe) {
  const std::vector<PlanRow> rows = with_lookahead();
  // Checked, and in the schema.
  std::vector<KeySpec> keys;
  for (const PlanRow& row : rows) keys.push_back(row.key);
  const KeyTable table{.title = "plan", .keys = keys};
  JsonReport bad("x.json"), good("x.json");
  check_keys(json(R"({"lookahead": 9})"), table, "plan", bad);
  EXPECT_FALSE(bad.ok());
  check_keys(json(R"({"lookahead": 3})"), table, "plan", good);
  EXPECT_TRUE(good.ok());
  EXPECT_NE(json_schema(table).find("steps that are looked ahead"), std::string::npos);
  // Read, and in a report's plan.
  Plan plan;
  take_plain_keys(json(R"({"lookahead": 3})"), plan, rows);
  EXPECT_EQ(plan.extra_warmup, 3);
  EXPECT_NE(plan_json(plan, 0, rows).find(R"("lookahead": 3)"), std::string::npos);
  ASSERT_NE(given_in(json(R"({"lookahead": 3})"), rows.back()), nullptr);
  EXPECT_EQ(given_in(json(R"({"lookahead": 3})"), rows.back())->integer, 3);
  EXPECT_EQ(path_of(rows.back()), "lookahead");
  // Noted where it changes nothing.
  const std::vector<IdleKey> idle = keys_without_effect(json(R"({"lookahead": 3})"), plan, rows);
  ASSERT_EQ(idle.size(), 1u);
  EXPECT_EQ(idle[0].key, "lookahead");
  EXPECT_EQ(idle[0].why, "there is one position");
  // In the docs' table of what `run` does.
  EXPECT_NE(plan_keys_text(rows).find(
                "| `plan.lookahead` | priced | `null`, `1` | a longer view is priced |"),
            std::string::npos);
  // Named where a plan is changed in it.
  Plan changed = plan;
  changed.extra_warmup = 1;
  const std::vector<PlanChange> changes = changes_of(plan, changed, true, rows);
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].key, "lookahead");
  EXPECT_EQ(changes[0].from, "3");
  EXPECT_EQ(changes[0].to, "1");
  // And in none of these without its row.
  EXPECT_EQ(plan_json(plan, 0).find("lookahead"), std::string::npos);
  EXPECT_TRUE(changes_of(plan, changed, true).empty());
}

TEST(PlanRows, EveryKeyOfTheTableIsOneRow) {
  std::set<std::string_view> names;
  for (const PlanRow& row : plan_rows()) {
    EXPECT_TRUE(names.insert(row.key.name).second) << row.key.name;
    EXPECT_EQ(find_plan_row(row.key.name), &row);
    EXPECT_FALSE(row.key.about.empty()) << row.key.name;
  }
  for (const TraitRow& row : kTraitRows) {
    if (row.of_plan) {
      EXPECT_TRUE(names.insert(row.key.name).second) << row.key.name;
    }
  }
  for (const KeySpec& spec : plan_key_table().keys) {
    EXPECT_EQ(names.erase(spec.name), 1u) << spec.name;
  }
  EXPECT_TRUE(names.empty());
  EXPECT_EQ(find_plan_row("overlap.pipeline")->key.name, "pipeline");
  EXPECT_EQ(find_plan_row("precision.compute"), find_plan_row("precision"));
  EXPECT_EQ(find_plan_row("no_such_key"), nullptr);
  EXPECT_EQ(find_plan_row("overlap.no_such_key"), nullptr);
}

// Code names keys by their fields; a row says the word.
TEST(PlanRows, AFieldIsOneKeys) {
  for (const auto rows : {plan_rows(), overlap_rows()}) {
    for (const PlanRow& row : rows) {
      if (row.field.index() == 0) continue;
      EXPECT_EQ(&plan_row(row.field), &row) << row.key.name;
      EXPECT_EQ(find_plan_row(path_of(row.field)), &row) << path_of(row.field);
    }
  }
  EXPECT_EQ(key_of(&Plan::zero_stage), "zero_stage");
  EXPECT_EQ(key_of(&Plan::overlap_pipeline), "pipeline");
  EXPECT_EQ(path_of(&Plan::overlap_pipeline), "overlap.pipeline");
  const JsonValue plan = json(R"({"zero_stage": null, "overlap": {"pipeline": true}})");
  EXPECT_EQ(given_in(plan, &Plan::zero_stage), nullptr);
  EXPECT_EQ(given_in(plan, &Plan::overlap_gradient_reduce), nullptr);
  ASSERT_NE(given_in(plan, &Plan::overlap_pipeline), nullptr);
  EXPECT_TRUE(given_in(plan, &Plan::overlap_pipeline)->boolean);
}

// A value that is none of the field's kind is for a step of the reader.
TEST(PlanRows, OnlyPlainValuesGoInAsTheyStand) {
  Plan plan;
  take_plain_keys(json(R"({"micro_batch": "auto", "expert_routing": 1.3, "stage_layers": [1, 2],
                           "schedule": "gpipe", "memory_limit": 2})"),
                  plan);
  EXPECT_EQ(plan.micro_batch, 1);
  EXPECT_EQ(plan.expert_routing, ExpertRouting::Uniform);
  EXPECT_TRUE(plan.stage_layers.empty());
  EXPECT_EQ(plan.schedule, "gpipe");
  EXPECT_EQ(plan.memory_limit, 2);
}

// What a report prints of a plan's fields is what the reader takes.
TEST(PlanRows, WhatIsPrintedIsWhatIsRead) {
  Plan plan;
  plan.tensor_parallel = 2;
  plan.sequence_parallel = true;
  plan.zero_stage = 1;
  plan.extra_warmup = 3;
  plan.memory_limit = 1.5;
  plan.expert_dispatch = ExpertDispatch::Deduplicated;
  plan.data_parallel_algorithm = DataParallelAlgorithm::ParameterServer;
  plan.global_batch = std::int64_t{1} << 33;
  plan.schedule = "interleaved_1f1b";
  plan.shard_group = 4;
  plan.attention_kernel = AttentionKernel::Flash3;
  plan.expert_capacity = 1.5;
  Plan read;
  take_plain_keys(json(plan_json(plan, 0)), read);
  for (const PlanRow& row : plan_rows()) {
    if (row.field.index() == 0) continue;
    EXPECT_EQ(value_json(row, read), value_json(row, plan)) << row.key.name;
  }
}

}  // namespace
}  // namespace rehearse::sim
