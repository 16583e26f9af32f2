// SPDX-License-Identifier: Apache-2.0
// The table of a model file's keys: every key of transformers' configuration classes is in a
// column, and what a column says is so.
#include "schedules/model/config/config_keys.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "schedules/model/config/hf_config.h"

namespace rehearse {
namespace {

using Json = nlohmann::ordered_json;

// Made by tests/data/configs/make_config_keys.py.
const Json& classes() {
  static const Json read = [] {
    std::ifstream in("tests/data/configs/keys.json");
    return Json::parse(in);
  }();
  return read["versions"];
}

struct Read {
  Transformer model;
  ConfigUse use;
  std::string error;
};
Read read(const Json& config) {
  const Result<JsonValue> root = parse_json(config.dump(), "m.json");
  JsonReport report("m.json");
  ModelFile file = parse_model_file(root.value(), "inline", "", report);
  return {std::move(file.model), std::move(file.use), report.ok() ? "" : report.error().message};
}

bool finds(const Read& read, const std::string& key) {
  return std::ranges::any_of(read.use.unperformed,
                             [&](const Unperformed& found) { return found.key == key; });
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    if (end > at) words.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

// A file that leaves out what it can. The class of deepseek_v2 has experts, but not how many a
// token takes.
Json smallest(std::string_view dialect) {
  Json config = {{"model_type", dialect}};
  if (dialect == "deepseek_v2") config["num_experts_per_tok"] = 6;
  return config;
}

// What else a key needs, for its value to count.
Json beside(const std::string& dialect, const std::string& key) {
  Json config = smallest(dialect);
  if (key.find("experts") != std::string::npos && key != "num_experts_per_tok") {
    config["num_experts_per_tok"] = 2;
  }
  if (key == "mlp_bias") config.update({{"n_routed_experts", 8}, {"num_experts_per_tok", 2}});
  if (key == "max_window_layers") config["sliding_window"] = 8;
  if (key == "sliding_window" || key == "max_window_layers") config["use_sliding_window"] = true;
  return config;
}

TEST(ConfigKeys, EveryKeyOfTransformersIsInAColumn) {
  std::size_t keys = 0;
  for (const auto& [version, dialects] : classes().items()) {
    EXPECT_EQ(dialects.size(), known_model_types().size());
    for (const auto& [dialect, one] : dialects.items()) {
      for (const char* part : {"defaults", "also"}) {
        for (const auto& [key, value] : one[part].items()) {
          ++keys;
          EXPECT_NE(find_config_key(dialect, key), nullptr)
              << key << " of " << dialect << " in transformers " << version;
        }
      }
    }
  }
  EXPECT_GE(classes().size(), 2u);
  EXPECT_GE(keys, 1000u);
}

// What a class writes when nobody has said anything is a file like another.
TEST(ConfigKeys, TheDefaultsOfEveryClassAreTaken) {
  for (const auto& [version, dialects] : classes().items()) {
    for (const auto& [dialect, one] : dialects.items()) {
      const Read taken = read(one["defaults"]);
      if (dialect == "deepseek_v2") {  // its experts per token are null: no model either
        EXPECT_NE(taken.error.find("num_experts_per_tok"), std::string::npos) << taken.error;
        continue;
      }
      EXPECT_EQ(taken.error, "") << dialect << ", transformers " << version;
      EXPECT_TRUE(taken.use.notes.empty()) << dialect << ": " << taken.use.notes.front();
    }
  }
}

// docs/models.md: what is left out has the class's default, in every dialect. Dropout and
// prediction layers alone are what the file says: transformers makes no such layers, whatever its
// default.
TEST(ConfigKeys, WhatIsLeftOutHasTheDefaultOfItsClass) {
  const Json& newest = classes().back();
  for (const auto& [dialect, one] : newest.items()) {
    Json all = one["defaults"];
    all.update(smallest(dialect));
    Read given = read(all), left_out = read(smallest(dialect));
    EXPECT_EQ(given.error + left_out.error, "") << dialect;
    for (Transformer* model : {&given.model, &left_out.model}) {
      model->dropouts = {};
      model->prediction_layers = 0;
      if (model->sliding_window == 0) model->windowed_layers.clear();  // of no window
    }
    EXPECT_EQ(given.model, left_out.model) << dialect;
    EXPECT_EQ(total_parameters(given.model), total_parameters(left_out.model)) << dialect;
  }
}

// transformers 5.23.0 counts them: sum(p.numel() for p in AutoModelForCausalLM).
TEST(ConfigKeys, DeepseekV2HasExpertsWhereTheFileDoesNotSaySo) {
  EXPECT_EQ(total_parameters(read(smallest("deepseek_v2")).model), 38'612'307'968);
  const Read none = read({{"model_type", "deepseek_v2"}});
  EXPECT_NE(none.error.find("m.json:1: num_experts_per_tok: is required"), std::string::npos)
      << none.error;
  for (const Json& dense : {Json(0), Json(nullptr)}) {
    const Read taken = read({{"model_type", "deepseek_v2"}, {"n_routed_experts", dense}});
    EXPECT_EQ(taken.error, "");
    EXPECT_EQ(taken.model.experts.count, 0);
  }
}

// A rate of 1 leaves nothing, and is refused by the word that the file has for it.
TEST(ConfigKeys, EveryDropoutIsBelowOne) {
  for (const auto& [dialect, key] : {std::pair{"gpt2", "resid_pdrop"},
                                     {"gpt2", "attn_pdrop"},
                                     {"gpt2", "embd_pdrop"},
                                     {"llama", "attention_dropout"},
                                     {"gpt_neox", "hidden_dropout"}}) {
    const Read taken = read({{"model_type", dialect}, {key, 1}});
    EXPECT_NE(taken.error.find(std::string("m.json:1: ") + key + ": must be less than 1"),
              std::string::npos)
        << taken.error;
  }
}

// What transformers' classes have otherwise is taken as the file says, with a note.
TEST(ConfigKeys, WhatAClassHasOtherwiseIsSaid) {
  const Json mpt = {{"model_type", "mpt"}, {"d_model", 32}, {"n_heads", 4}};
  Json wide = mpt;
  wide["expansion_ratio"] = 4;
  EXPECT_TRUE(read(wide).use.notes.empty());
  wide["expansion_ratio"] = 2;
  ASSERT_EQ(read(wide).use.notes.size(), 1u);
  EXPECT_NE(read(wide).use.notes.front().find("always 4 d_model wide"), std::string::npos);
  EXPECT_EQ(read(wide).model.ffn_hidden, 64);
  Json heads = {{"model_type", "olmoe"},
                {"hidden_size", 64},
                {"num_attention_heads", 4},
                {"num_key_value_heads", 4},
                {"head_dim", 16}};
  EXPECT_TRUE(read(heads).use.notes.empty());
  heads["head_dim"] = 32;
  ASSERT_EQ(read(heads).use.notes.size(), 1u);
  EXPECT_NE(read(heads).use.notes.front().find("model.head_dim 32: "), std::string::npos);
  // mpt's swiglu is a gated MLP, three matrices instead of two: what is said is what is priced.
  Json gated = mpt;
  gated["hidden_act"] = "swiglu";
  const Read taken = read(gated);
  EXPECT_EQ(taken.model.mlp, MlpKind::Gated);
  ASSERT_EQ(taken.use.unperformed.size(), 1u);
  EXPECT_NE(taken.use.unperformed.front().priced.find("what the file says is priced"),
            std::string::npos);
}

// The whole table, row by row: a value beyond what is performed is found by its name, one within
// is not.
TEST(ConfigKeys, WhatIsNotPerformedIsNamed) {
  std::size_t tried = 0;
  for (const ConfigKey& row : config_keys()) {
    if (row.use != KeyUse::Priced && row.use != KeyUse::Refused) continue;
    for (const std::string_view dialect : known_model_types()) {
      for (const std::string& key : words_of(row.keys)) {
        if (find_config_key(dialect, key) != &row) continue;
        const std::string where = key + " of " + std::string(dialect);
        Json config = beside(std::string(dialect), key);
        if (key != "model_type") {
          ASSERT_FALSE(row.example.empty()) << where;
          config[key] = Json::parse(row.example);
        }
        const Read beyond = read(config);
        ++tried;
        if (row.use == KeyUse::Refused) {
          EXPECT_NE(beyond.error.find("m.json:1: " + key + ": "), std::string::npos)
              << where << ": " << beyond.error;
          continue;
        }
        ASSERT_EQ(beyond.error, "") << where;
        ASSERT_TRUE(finds(beyond, key)) << where;
        const std::string line = not_performed(beyond.use.unperformed).message;
        EXPECT_NE(line.find(key), std::string::npos) << line;
        EXPECT_NE(line.find("not performed by `run`"), std::string::npos) << line;
        if (row.runs.empty() || row.runs.starts_with("@")) continue;
        config[key] = Json::parse(row.runs.substr(0, row.runs.find(" | ")));
        const Read within = read(config);
        EXPECT_EQ(within.error, "") << where;
        EXPECT_FALSE(finds(within, key)) << where;
      }
    }
  }
  EXPECT_GE(tried, 200u);
}

// The executor looks at no such field: whatever file sets one must be found.
TEST(ConfigKeys, NoStructureThatTheExecutorLacksGoesUnnamed) {
  for (const std::string_view dialect : known_model_types()) {
    for (const char* more : {"{}", R"({"position_embedding_type": "alibi"})"}) {
      Json config = smallest(dialect);
      config.update(Json::parse(more));
      const Read taken = read(config);
      ASSERT_EQ(taken.error, "") << config;
      const Transformer& m = taken.model;
      const bool lacks =
          m.positions == PositionKind::Alibi && dialect != "bloom" && dialect != "mpt";
      EXPECT_EQ(lacks, lacks && !taken.use.unperformed.empty()) << config;
    }
  }
}

TEST(ConfigKeys, ThetaIsReadWhereverItStands) {
  EXPECT_EQ(read({{"model_type", "llama"},
                  {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 500000.0}}}})
                .model.rotary.theta,
            500000);
  EXPECT_EQ(read({{"model_type", "llama"}, {"rope_theta", 7}}).model.rotary.theta, 7);
  EXPECT_EQ(read({{"model_type", "gpt_neox"}, {"rotary_emb_base", 7}}).model.rotary.theta, 7);
  EXPECT_NE(
      read({{"model_type", "llama"}, {"rope_theta", 7}, {"rope_parameters", {{"rope_theta", 8}}}})
          .error,
      "");
  EXPECT_NE(read({{"model_type", "llama"},
                  {"rope_scaling", {{"rope_type", "default"}}},
                  {"rope_parameters", {{"rope_theta", 8}}}})
                .error,
            "");
}

TEST(ConfigKeys, MalformedRotaryParametersAreRefusedEverywhere) {
  for (const char* rope :
       {R"({"rope_type": "linear", "factor": "abc"})", R"({"rope_type": "linear", "factor": -1})",
        R"({"rope_type": "spiral"})", R"({"rope_type": 3})", R"("linear")", "[1]", "2.0",
        R"({"rope_theta": 0})", R"({"partial_rotary_factor": 2})",
        R"({"full_attention": {"rope_theta": 5}})", R"({"long_factor": "x"})",
        R"({"rope_type": "linear"})", R"({"rope_type": "longrope", "short_factor": [1]})"}) {
    for (const char* key : {"rope_scaling", "rope_parameters"}) {
      const Read taken = read({{"model_type", "llama"}, {key, Json::parse(rope)}});
      EXPECT_NE(taken.error.find(std::string("m.json:1: ") + key), std::string::npos)
          << key << " " << rope << ": " << taken.error;
    }
  }
}

TEST(ConfigKeys, DropoutIsReadByEachClassesWords) {
  const auto rates = [](const Json& config) { return read(config).model.dropouts; };
  EXPECT_EQ(rates({{"model_type", "gpt2"}, {"attn_pdrop", 0.1}, {"embd_pdrop", 0.2}}),
            (DropoutRates{-1, 0.1, 0.2}));
  EXPECT_EQ(rates({{"model_type", "gpt2"}}), (DropoutRates{-1, -1, -1}));  // not the class's 0.1
  EXPECT_EQ(rates({{"model_type", "gpt2"}, {"attn_pdrop", 0}}), (DropoutRates{-1, 0, -1}));
  EXPECT_EQ(rates({{"model_type", "llama"}, {"attention_dropout", 0.5}}),
            (DropoutRates{-1, 0.5, -1}));
  // One dropout of GPT-NeoX is behind the embedding too.
  EXPECT_EQ(rates({{"model_type", "gpt_neox"}, {"hidden_dropout", 0.25}}),
            (DropoutRates{0.25, -1, 0.25}));
  EXPECT_EQ(rates({{"model_type", "starcoder2"},
                   {"residual_dropout", 0.1},
                   {"attention_dropout", 0.2},
                   {"embedding_dropout", 0.3}}),
            (DropoutRates{0.1, 0.2, 0.3}));
  EXPECT_TRUE(finds(read({{"model_type", "llama"}, {"hidden_dropout", 0.5}}), "hidden_dropout"));
}

TEST(ConfigKeys, WindowsAreReadByLayer) {
  const auto windows = [](Json config) {
    config["num_hidden_layers"] = 4;
    const Transformer model = read(config).model;
    std::vector<std::int64_t> all;
    for (std::int64_t layer = 0; layer < 4; ++layer) all.push_back(model.window(layer));
    return all;
  };
  using Windows = std::vector<std::int64_t>;
  EXPECT_EQ(windows({{"model_type", "mistral"}, {"sliding_window", 8}}), (Windows{8, 8, 8, 8}));
  EXPECT_EQ(windows({{"model_type", "llama"}}), (Windows{0, 0, 0, 0}));
  const Json qwen = {{"model_type", "qwen2"}, {"use_sliding_window", true}, {"sliding_window", 8}};
  EXPECT_EQ(windows(qwen), (Windows{0, 0, 0, 0}));  // from layer 28 on
  Json from_two = qwen;
  from_two["max_window_layers"] = 2;
  EXPECT_EQ(windows(from_two), (Windows{0, 0, 8, 8}));
  EXPECT_EQ(windows({{"model_type", "gemma2"}, {"sliding_window", 8}}), (Windows{8, 0, 8, 0}));
  EXPECT_EQ(
      windows(
          {{"model_type", "gemma3_text"}, {"sliding_window", 8}, {"sliding_window_pattern", 3}}),
      (Windows{8, 8, 0, 8}));
  const std::string full = "full_attention", sliding = "sliding_attention";
  EXPECT_EQ(windows({{"model_type", "gemma2"},
                     {"sliding_window", 8},
                     {"layer_types", {full, full, sliding, full}}}),
            (Windows{0, 0, 8, 0}));
  for (const Json& types : {Json{full}, Json{full, full, full, "chunked_attention"}}) {
    const Read taken =
        read({{"model_type", "gemma2"}, {"num_hidden_layers", 4}, {"layer_types", types}});
    EXPECT_NE(taken.error.find("m.json:1: layer_types"), std::string::npos) << taken.error;
  }
}

TEST(ConfigKeys, StrangersAndOurOwnWordsAreSaid) {
  const Read stranger = read({{"model_type", "llama"}, {"colour", "red"}, {"cheese", 3}});
  ASSERT_EQ(stranger.use.notes.size(), 1u);
  EXPECT_NE(stranger.use.notes[0].find("model.colour, model.cheese: "), std::string::npos);
  EXPECT_EQ(read({{"model_type", "mistral"}, {"attention_bias", true}}).use.notes.size(), 1u);
  EXPECT_TRUE(read({{"model_type", "mistral"}, {"attention_bias", false}}).use.notes.empty());
  EXPECT_EQ(read({{"model_type", "gpt2"}, {"num_key_value_heads", 6}}).use.notes.size(), 1u);
  EXPECT_TRUE(read({{"model_type", "gpt2"}, {"num_key_value_heads", 12}}).use.notes.empty());
}

// The line of what `run` refuses has the flag that switches it off, where one does.
TEST(ConfigKeys, WhatCanBeSwitchedOffComesWithItsFlag) {
  const auto line = [](const Json& config, const std::string& key) {
    const Result<JsonValue> root = parse_json(config.dump(), "m.json");
    JsonReport report("m.json");
    return not_performed(parse_model_file(root.value(), "inline", key, report).use.unperformed)
        .message;
  };
  const Json both = {
      {"model_type", "mixtral"}, {"output_router_logits", true}, {"router_jitter_noise", 0.1}};
  const std::string end =
      "; to leave out: --set model.output_router_logits=false --set model.router_jitter_noise=0";
  EXPECT_TRUE(line(both, "").ends_with(end)) << line(both, "");
  EXPECT_TRUE(line(both, "model").ends_with(end)) << line(both, "model");
  EXPECT_NE(line(both, "").find("train.router_auxiliary_loss is one of each layer"),
            std::string::npos);
  const std::string none = line({{"model_type", "llama"}, {"hidden_act", "geglu"}}, "");
  EXPECT_EQ(none.find("--set"), std::string::npos) << none;
}

// What is left out is said where the plan is known: of a framework prediction layers are priced.
TEST(ConfigKeys, PredictionLayersAreNotRefusedWhereTransformersLeavesThemOut) {
  for (const char* dialect : {"deepseek_v2", "deepseek_v3", "glm4_moe"}) {
    const Read taken = read({{"model_type", dialect},
                             {"num_experts_per_tok", 2},
                             {"n_routed_experts", 8},
                             {"n_group", 1},
                             {"topk_group", 1},
                             {"num_nextn_predict_layers", 1}});
    EXPECT_EQ(taken.error, "");
    EXPECT_TRUE(taken.use.unperformed.empty());
    EXPECT_EQ(taken.model.prediction_layers, 1);
  }
  EXPECT_TRUE(finds(read({{"model_type", "mixtral"}, {"num_nextn_predict_layers", 1}}),
                    "num_nextn_predict_layers"));
}

TEST(ConfigKeys, ThePaddingTokenIsCountedAsTorchDoes) {
  EXPECT_EQ(read({{"model_type", "llama"}, {"pad_token_id", 3}}).model.padding_token, 3);
  EXPECT_EQ(read({{"model_type", "llama"}, {"pad_token_id", -1}}).model.padding_token, 31999);
  EXPECT_EQ(read({{"model_type", "llama"}}).model.padding_token, -1);
  EXPECT_EQ(read({{"model_type", "gpt2"}, {"pad_token_id", 3}}).model.padding_token, -1);
}

TEST(ConfigKeys, AnInitializerRangeIsRead) {
  EXPECT_EQ(read({{"model_type", "llama"}, {"initializer_range", 0.3}}).model.initializer_range,
            0.3);
}

// No key stands in two rows for one dialect, and every row is somebody's.
TEST(ConfigKeys, EveryRowIsReached) {
  for (const ConfigKey& row : config_keys()) {
    for (const std::string& key : words_of(row.keys)) {
      bool reached = false;
      for (const std::string_view dialect : known_model_types()) {
        reached = reached || find_config_key(dialect, key) == &row;
        if (row.dialects != "*" && names(row.dialects, dialect)) {
          EXPECT_EQ(find_config_key(dialect, key), &row) << key << " of " << dialect;
        }
      }
      EXPECT_TRUE(reached) << key << " of " << row.dialects;
    }
  }
}

// docs/models.md is written from the table; UPDATE_GOLDEN=1 rewrites it.
TEST(ConfigKeys, TheTableOfTheDocsIsTheCodes) {
  const std::string path = "docs/models.md", begin = "<!-- table of keys -->\n",
                    end = "<!-- end of the table -->\n";
  std::ifstream in(path);
  std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  const std::size_t from = text.find(begin), to = text.find(end);
  ASSERT_NE(from, std::string::npos);
  ASSERT_NE(to, std::string::npos);
  const std::size_t first = from + begin.size();
  const std::string there = text.substr(first, to - first);
  if (std::getenv("UPDATE_GOLDEN") != nullptr) {
    std::ofstream(path) << text.replace(first, to - first, config_keys_text());
  } else {
    EXPECT_EQ(there, config_keys_text());
  }
}

}  // namespace
}  // namespace rehearse
