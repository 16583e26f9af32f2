// SPDX-License-Identifier: Apache-2.0
// The table of a scenario's keys: all of the schema are in a column, what a column says is so, and
// what is named but not built yet is refused by a line that says so.
#include "schedules/scenario/keys/plan_use.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "schedules/scenario/keys/scenario_keys.h"
#include "schedules/scenario/scenario.h"

namespace rehearse {
namespace {

using Json = nlohmann::ordered_json;

Json scenario() {
  return {{"model", "tiny-gpt"}, {"cluster", "dgx-a100-80gb"}, {"gpus", 1}};
}
Result<Scenario> read(const Json& json, std::optional<std::string> runtime = "rehearse") {
  return parse_scenario(json.dump(), "s.json", 1, {.runtime = runtime});
}
// "plan.overlap.x" as a pointer of the document
Json with(const std::string& path, const Json& value) {
  Json json = scenario();
  std::string pointer = "/" + path;
  for (char& c : pointer) c = c == '.' ? '/' : c;
  json[Json::json_pointer(pointer)] = value;
  return json;
}

// The schema files are another way to the keys than the loader's tables.
void walk(const Json& schema, const std::string& path, std::vector<std::string>& keys) {
  if (!schema.contains("properties")) return;
  for (const auto& [key, rule] : schema["properties"].items()) {
    const std::string at = path.empty() ? key : path + "." + key;
    keys.push_back(at);
    walk(rule.contains("anyOf") ? rule["anyOf"][0] : rule, at, keys);
  }
}

TEST(PlanUse, EveryKeyOfTheSchemaIsInAColumn) {
  std::ifstream in("scenarios/schema/scenario.json");
  std::vector<std::string> keys;
  walk(Json::parse(in), "", keys);
  EXPECT_GE(keys.size(), 50u);
  for (const std::string& key : keys) {
    if (key == "plan" || key == "train" || key == "plan.overlap") continue;  // their members are
    EXPECT_NE(find_run_use(key), nullptr) << key;
  }
}

TEST(PlanUse, WhatIsNotPerformedIsNamedAndWhatIsDoneOtherwiseIsSaid) {
  int tried = 0;
  for (const auto& [keys, row] : run_keys()) {
    if (row.runs.empty()) continue;
    const std::string& key = keys;
    const auto beyond = read(with(key, Json::parse(row.example)));
    ASSERT_TRUE(beyond) << beyond.error().message;
    const std::size_t bar = row.runs.rfind("| ");
    const std::size_t last = bar == std::string_view::npos ? 0 : bar + 2;
    const auto within = read(with(key, Json::parse(row.runs.substr(last))));
    ASSERT_TRUE(within) << within.error().message;
    if (row.use == KeyUse::Priced) {
      ASSERT_EQ(beyond.value().unperformed.size(), 1u) << key;
      EXPECT_EQ(beyond.value().unperformed[0].key, key);
      EXPECT_EQ(beyond.value().notes().size(), 1u);
      EXPECT_TRUE(within.value().unperformed.empty()) << key;
    } else {
      ASSERT_EQ(beyond.value().run_notes.size(), 1u) << key;
      EXPECT_TRUE(beyond.value().run_notes[0].starts_with(key + " "));
      EXPECT_TRUE(within.value().run_notes.empty()) << key;
    }
    ++tried;
  }
  EXPECT_GE(tried, 4);
}

TEST(PlanUse, DropoutIsThePlansEverywhereElseTheModelFilesByPlace) {
  Json json = scenario();
  json["model"] = {
      {"model_type", "gpt2"}, {"attn_pdrop", 0.1}, {"embd_pdrop", 0.2}, {"resid_pdrop", 0.0}};
  const auto rates = [&] { return read(json).value().plan.dropouts; };
  EXPECT_EQ(rates(), (DropoutRates{.attention = 0.1, .embedding = 0.2}));
  json["plan"]["dropout"] = 0;  // the plan wins
  EXPECT_EQ(rates(), DropoutRates{});
  json["plan"]["dropout"] = 0.3;
  EXPECT_EQ(rates(), (DropoutRates{0.3, 0.3, 0.3}));
  EXPECT_TRUE(read(json).value().warnings.empty());
}

// A stage without kernels would hand on what nobody wrote. The ends have the embedding and the
// head.
TEST(PlanUse, StagesWithoutLayersAreTheEndsAlone) {
  const auto refused = [](const Json& layers) {
    Json json = scenario();
    json["model"] = {{"model_type", "llama"}, {"num_hidden_layers", 4}};
    json["gpus"] = 2;
    json["plan"].update({{"pipeline_parallel", 2}, {"schedule", "zb_v"}, {"stage_layers", layers}});
    const auto made = read(json);
    EXPECT_TRUE(made) << made.error().message;
    return made.value().unperformed.empty() ? "" : made.value().unperformed.front().key;
  };
  EXPECT_EQ(refused({0, 2, 2, 0}), "");
  EXPECT_EQ(refused({2, 0, 1, 1}), "plan.stage_layers");
  EXPECT_EQ(refused({2, 1, 0, 1}), "plan.stage_layers");
}

// Windows, ALiBi and what drops go round a ring; chunks must divide the sequence.
TEST(PlanUse, WhatModelsHaveGoesWithLayoutsButForChunksThatLeaveARest) {
  const auto refused = [](Json model, const char* key, int value) {
    Json json = scenario();
    json["model"] = std::move(model);
    json["plan"][key] = value;
    json["gpus"] = value;
    const auto made = read(json);
    return made.value().unperformed.empty() ? "" : made.value().unperformed.front().key;
  };
  const char* ring = "context_parallel";
  EXPECT_EQ(refused({{"model_type", "mistral"}, {"sliding_window", 3}}, ring, 2), "");
  EXPECT_EQ(refused({{"model_type", "bloom"}}, ring, 2), "");
  EXPECT_EQ(refused({{"model_type", "gpt2"}, {"attn_pdrop", 0.1}}, ring, 2), "");
  EXPECT_EQ(refused({{"model_type", "llama4_text"}, {"attention_chunk_size", 8}}, ring, 2), "");
  EXPECT_EQ(refused({{"model_type", "llama4_text"}, {"attention_chunk_size", 7}}, ring, 1),
            "plan.sequence_length");
  EXPECT_EQ(refused({{"model_type", "olmo2"}, {"num_key_value_heads", 1}}, "tensor_parallel", 2),
            "");
}

void expect_later(const std::string& key, const Json& value) {
  const auto refused = read(with(key, value), std::nullopt);
  ASSERT_FALSE(refused) << key;
  EXPECT_TRUE(refused.error().unsupported) << refused.error().message;  // `validate` skips it
  EXPECT_NE(refused.error().message.find("not built yet"), std::string::npos)
      << refused.error().message;
  EXPECT_NE(refused.error().message.find(key), std::string::npos) << refused.error().message;
}

void walk_later(const KeyTable& table, const std::string& path, int& tried) {
  for (const std::string_view key : table.later) {
    EXPECT_EQ(find_key(table, key), nullptr) << key;
    expect_later(join_key(path, key), 1);
    ++tried;
  }
  for (const KeySpec& spec : table.keys) {
    for (const std::string_view word : spec.later) {
      expect_later(join_key(path, spec.name), word);
      if (spec.searchable && spec.name != "schedule") {
        expect_later(join_key(path, spec.name), Json::array({word}));
      }
      ++tried;
    }
    if (spec.members != nullptr) walk_later(*spec.members, join_key(path, spec.name), tried);
  }
}

TEST(PlanUse, ARuntimeThatNobodyKnowsIsAMistake) {
  const auto mistake = read(with("plan.runtime", "megatro"), std::nullopt);
  ASSERT_FALSE(mistake);
  EXPECT_FALSE(mistake.error().unsupported);
  EXPECT_NE(mistake.error().message.find("the nearest known one is megatron"), std::string::npos);
}

TEST(PlanUse, WhatIsNotBuiltYetSaysSo) {
  int tried = 0;
  walk_later(scenario_key_table(), "", tried);
  // As many as the docs list, behind what each line is about.
  const std::string listed = later_keys_text();
  std::ptrdiff_t names = 0;
  for (std::size_t line = 0; line < listed.size(); line = listed.find('\n', line) + 1) {
    const std::string_view words =
        std::string_view(listed).substr(listed.find(": ", line), listed.find('\n', line));
    names += std::ranges::count(words.substr(0, words.find('\n')), '`') / 2;
  }
  EXPECT_EQ(tried, names);
  EXPECT_GT(tried, 0);
}

// The names of the second part of the interface, one by one: each is performed, priced or refused.
TEST(PlanUse, EveryNameOfVersion02IsKnown) {
  for (const char* key : {"padding"}) {
    expect_later(std::string("plan.") + key, 1);
  }
  for (const char* key : {"adapter", "trainable", "freeze"}) {
    expect_later(key, 1);
  }
}

// Megatron-LM's and torch's words make the plan that our own make, in a file and behind --set.
TEST(PlanUse, WordsOfOtherProgramsAreKeys) {
  const auto plan = [](const std::string& keys, std::vector<std::string> sets = {}) {
    const std::string text = R"({"model": "llama2-7b", "cluster": "dgx-a100-80gb", "gpus": 16,
        "plan": {)" + keys + "}}";
    Result<Scenario> read = parse_scenario(text, "words.json", 1, {.overrides = std::move(sets)});
    EXPECT_TRUE(read) << read.error().message;
    return read ? plan_json(read.value().plan, -1) : std::string();
  };
  const std::string ours = plan(R"("tensor_parallel": 2, "pipeline_parallel": 4, "micro_batch": 1,
      "global_batch": 16, "sequence_length": 2048, "virtual_stages": 2,
      "schedule": "interleaved_1f1b")");
  EXPECT_EQ(plan(R"("tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 4,
      "micro_batch_size": 1, "global_batch_size": 16, "seq_length": 2048,
      "num_layers_per_virtual_pipeline_stage": 4)"),
            ours);
  EXPECT_EQ(plan(R"("tensor_parallel_degree": 8, "pipeline_parallel_degree": 4, "micro_batch": 1,
      "global_batch": 16, "seq_len": 2048, "pipeline_parallel_schedule": "Interleaved1F1B")",
                 {"plan.tensor_model_parallel_size=2"}),
            ours);
  const Result<Scenario> twice = parse_scenario(
      R"({"model": "llama2-7b", "cluster": "dgx-a100-80gb",
          "plan": {"tensor_parallel": 2, "tensor_model_parallel_size": 4}})",
      "words.json", 1, {});
  ASSERT_FALSE(twice);
  EXPECT_NE(twice.error().message.find("says tensor_parallel once more"), std::string::npos);
}

// UPDATE_GOLDEN=1 rewrites both lists.
TEST(PlanUse, TheTablesOfTheDocsAreTheCodes) {
  const std::string path = "docs/scenario.md";
  std::ifstream in(path);
  std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  const struct {
    const char *begin, *end;
    std::string wanted;
  } lists[] = {
      {"<!-- table of keys -->\n", "<!-- end of the table -->\n", plan_keys_text()},
      {"<!-- keys that are not built yet -->\n", "<!-- end of the list -->\n", later_keys_text()}};
  for (const auto& list : lists) {
    const std::size_t from = text.find(list.begin), to = text.find(list.end);
    ASSERT_NE(from, std::string::npos);
    ASSERT_NE(to, std::string::npos);
    const std::size_t first = from + std::string(list.begin).size();
    if (std::getenv("UPDATE_GOLDEN") != nullptr) {
      text.replace(first, to - first, list.wanted);
    } else {
      EXPECT_EQ(text.substr(first, to - first), list.wanted);
    }
  }
  if (std::getenv("UPDATE_GOLDEN") != nullptr) std::ofstream(path) << text;
}

}  // namespace
}  // namespace rehearse
