// SPDX-License-Identifier: Apache-2.0
// Words of a model file that nobody knows, and older or borrowed words for what transformers knows:
// read as transformers 5.23 reads them, or refused by the key (tests/data/configs/spellings.py
// holds every spelling of every dialect against it).
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "schedules/model/config/config_keys.h"
#include "schedules/model/config/hf_config.h"
#include "schedules/model/config/near_miss.h"
#include "schedules/model/kinds/mapping.h"

namespace rehearse {
namespace {

using Json = nlohmann::ordered_json;

struct Read {
  Transformer model;
  ConfigUse use;
  std::string error;
};
Read read(const Json& config) {
  const Result<JsonValue> root = parse_json(config.dump(), "config.json");
  JsonReport report("config.json");
  ModelFile file = parse_model_file(root.value(), "inline", "", report);
  return {std::move(file.model), std::move(file.use), report.ok() ? "" : report.error().message};
}

Json with(const char* dialect, const Json& more) {
  Json config = {{"model_type", dialect}};
  config.update(more);
  return config;
}

TEST(ConfigWords, ANearMissIsTwoEditsAwayOrAWordCutShort) {
  const std::vector<std::string_view> known{"beta_fast", "beta_slow", "attention_factor", "factor"};
  EXPECT_EQ(near_miss("beta_fst", known), "beta_fast");
  EXPECT_EQ(near_miss("attn_factor", known), "attention_factor");
  EXPECT_EQ(near_miss("facter", known), "factor");
  EXPECT_EQ(near_miss("extrapolation_factor", known), "");
  EXPECT_EQ(near_miss("beta", known), "");
  EXPECT_EQ(near_miss("b_f", known), "");
}

// transformers says so in a log and rotates by the rest: other numbers than those that were meant.
TEST(ConfigWords, ATypingMistakeInsideRotaryParametersIsRefused) {
  const Json yarn = {{"rope_type", "yarn"}, {"factor", 4.0}};
  for (const auto& [wrong, meant] :
       {std::pair{"beta_fst", "beta_fast"},
        {"attn_factor", "attention_factor"},
        {"original_max_position_embedding", "original_max_position_embeddings"},
        {"mscale_all_dims", "mscale_all_dim"}}) {
    for (const char* place : {"rope_scaling", "rope_parameters"}) {
      Json rope = yarn;
      rope[wrong] = 8;
      EXPECT_EQ(read(with("llama", {{place, rope}})).error,
                "config.json:1: " + std::string(place) + "." + wrong +
                    ": unknown key, the nearest known one is " + meant);
    }
  }
  const Json nested = {{"full_attention", {{"rope_type", "linear"}, {"factr", 8.0}}}};
  EXPECT_EQ(
      read(with("gemma3_text", {{"rope_parameters", nested}})).error,
      "config.json:1: rope_parameters.full_attention.factr: unknown key, the nearest known one "
      "is factor");
}

TEST(ConfigWords, AStrangerInsideRotaryParametersIsNamed) {
  const auto notes = [](const Json& more) {
    Json rope = {{"rope_type", "yarn"}, {"factor", 4.0}, {"beta_fast", 16}};
    rope.update(more);
    const Read taken = read(with("llama", {{"rope_scaling", rope}}));
    EXPECT_EQ(taken.error, "");
    return taken.use.notes;
  };
  EXPECT_EQ(notes({{"extrapolation_factor", 1.0}}),
            (std::vector<std::string>{"model.rope_scaling.extrapolation_factor: no key of rotary "
                                      "positions that is known: ignored"}));
  EXPECT_EQ(
      notes({{"beta_fst", 8}}),
      (std::vector<std::string>{"model.rope_scaling.beta_fst: no key of rotary positions that "
                                "is known: ignored; it stands beside beta_fast"}));
  EXPECT_TRUE(notes({{"finetuned", true}}).empty());  // of files that were published
  EXPECT_TRUE(notes({{"mrope_section", {16, 24, 24}}}).empty());
}

TEST(ConfigWords, AStrangerBesideTheModelsKeysIsNamedWithTheNearestKey) {
  EXPECT_EQ(read(with("llama", {{"hidden_actx", "gelu"}})).error,
            "config.json:1: hidden_actx: unknown key, the nearest known one is hidden_act");
  const auto notes = [](const Json& more) { return read(with("llama", more)).use.notes; };
  EXPECT_EQ(
      notes({{"hidden_act", "silu"}, {"hidden_actx", "gelu"}}),
      (std::vector<std::string>{"model.hidden_actx: no key of llama that is known: ignored; did "
                                "you mean hidden_act?"}));
  EXPECT_EQ(notes({{"quantisation_config", Json::object()}}),
            (std::vector<std::string>{"model.quantisation_config: no key of llama that is known: "
                                      "ignored; did you mean quantization_config?"}));
  EXPECT_EQ(notes({{"colour", "red"}, {"cheese", 3}}),
            (std::vector<std::string>{
                "model.colour, model.cheese: no key of llama that is known: ignored"}));
}

// What transformers' base class takes from any file, generation's keys among them.
TEST(ConfigWords, KeysOfTheBaseClassPassInSilence) {
  const Json base = {{"_name_or_path", "x"},       {"architectures", {"LlamaForCausalLM"}},
                     {"transformers_version", 5},  {"torch_dtype", "bfloat16"},
                     {"dtype", "bfloat16"},        {"tie_last_hidden_states", true},
                     {"epsilon_cutoff", 0.1},      {"num_assistant_tokens", 5},
                     {"per_layer_config", nullptr}};
  const Read taken = read(with("llama", base));
  EXPECT_EQ(taken.error, "");
  EXPECT_TRUE(taken.use.notes.empty()) << taken.use.notes.front();
  EXPECT_TRUE(taken.use.unperformed.empty());
}

// Sizes that differ by layer: no note could make up for them.
TEST(ConfigWords, SizesByLayerAreRefused) {
  const std::string error =
      read(with("llama", {{"per_layer_config", {{"0", {{"intermediate_size", 64}}}}}})).error;
  EXPECT_NE(error.find("config.json:1: per_layer_config: "), std::string::npos) << error;
}

// transformers 5 puts rope_scaling over {"rope_type": "default"} there, version 4 took `type`.
TEST(ConfigWords, TheOlderWordForATypeIsRefusedWhereTransformersOverlooksIt) {
  const Json older = {{"type", "linear"}, {"factor", 8.0}};
  EXPECT_EQ(read(with("gemma3_text", {{"rope_scaling", older}})).error,
            "config.json:1: rope_scaling: transformers 5 does not look at type in gemma3_text, and "
            "rotates as if nothing were said: write rope_type for it");
  EXPECT_EQ(read(with("gemma2", {{"rope_scaling", older}})).model.rotary.kind, RotaryKind::Linear);
  const Json both = {{"type", "default"}, {"rope_type", "linear"}, {"factor", 8.0}};
  const Read taken = read(with("gemma3_text", {{"rope_scaling", both}}));
  EXPECT_EQ(taken.error, "");
  EXPECT_EQ(taken.model.rotary.kind, RotaryKind::Linear);
  const Json nested = {{"full_attention", older}};
  EXPECT_EQ(read(with("gemma3_text", {{"rope_parameters", nested}})).model.rotary.kind,
            RotaryKind::Linear);
}

TEST(ConfigWords, ExpertsPerTokenAloneIsNotPerformed) {
  const auto unperformed = [](const Json& more) {
    const Read taken = read(with("gpt_oss", more));
    EXPECT_EQ(taken.error, "");
    return taken.use.unperformed.size();
  };
  EXPECT_EQ(unperformed({{"experts_per_token", 2}}), 1u);  // the class has 4
  EXPECT_EQ(unperformed({{"experts_per_token", 2}, {"num_experts_per_tok", 2}}), 0u);
  EXPECT_EQ(read(with("gpt_oss", {{"experts_per_token", 2}})).model.experts.per_token, 4);
}

// `rope_scaling or rope_parameters`: an empty object is nothing, and the class's own remains.
TEST(ConfigWords, AnEmptyRopeScalingIsNothing) {
  EXPECT_EQ(read(with("gpt_oss", {{"rope_scaling", Json::object()}})).model.rotary,
            read(with("gpt_oss", Json::object())).model.rotary);
  EXPECT_EQ(read(with("gpt_oss", {{"rope_parameters", Json::object()}})).model.rotary.kind,
            RotaryKind::Default);
}

// `rope_parameters.get("beta_slow") or 1`
TEST(ConfigWords, ABetaOfZeroIsAsIfLeftOut) {
  const Json zero = {{"rope_type", "yarn"}, {"factor", 4.0}, {"beta_fast", 0}, {"beta_slow", 0}};
  const RotaryConfig rope = read(with("llama", {{"rope_scaling", zero}})).model.rotary;
  EXPECT_EQ(rope.beta_fast, 32);
  EXPECT_EQ(rope.beta_slow, 1);
}

// The common word for an activation is ours in gpt2, whose class has activation_function alone.
TEST(ConfigWords, AWordOfOursThatChangesTheMathematicsIsSaid) {
  const auto notes = [](const Json& more) { return read(with("gpt2", more)).use.notes; };
  EXPECT_EQ(
      notes({{"hidden_act", "relu"}}),
      (std::vector<std::string>{"model.hidden_act \"relu\": taken as it says; transformers has "
                                "no such key in gpt2"}));
  EXPECT_TRUE(notes({{"hidden_act", "gelu_new"}}).empty());
  EXPECT_TRUE(notes({{"activation_function", "relu"}}).empty());
}

// An older word for longrope in that class; what is neither it refuses.
TEST(ConfigWords, YarnIsLongRopeInPhi3) {
  const Json lists = {{"short_factor", std::vector<double>(48, 1.0)},
                      {"long_factor", std::vector<double>(48, 2.0)},
                      {"factor", 4.0}};
  Json yarn = lists, linear = lists;
  yarn["type"] = "yarn";
  linear["rope_type"] = "linear";
  const Read taken = read(with("phi3", {{"rope_scaling", yarn}}));
  EXPECT_EQ(taken.error, "");
  EXPECT_EQ(taken.model.rotary.kind, RotaryKind::LongRope);
  EXPECT_EQ(read(with("phi3", {{"rope_scaling", {{"type", "yarn"}, {"factor", 4.0}}}})).error,
            "config.json:1: rope_scaling: needs short_factor and long_factor, 48 positive numbers "
            "each");
  EXPECT_EQ(read(with("phi3", {{"rope_scaling", linear}})).error,
            "config.json:1: rope_scaling: phi3 has the types default and longrope alone");
}

// Qwen2MoeConfig.__post_init__: the window is 0 then, and losses are not numbers.
TEST(ConfigWords, AWindowOfNothingIsRefused) {
  Json config = {{"num_hidden_layers", 2},
                 {"layer_types", {"sliding_attention", "full_attention"}}};
  EXPECT_EQ(
      read(with("qwen2_moe", config)).error,
      "config.json:1: layer_types: sliding_attention without use_sliding_window: the class makes "
      "the window 0, and a query would see no key");
  config["use_sliding_window"] = true;
  EXPECT_EQ(read(with("qwen2_moe", config)).error, "");
}

// None is false there: keys behind a query are seen.
TEST(ConfigWords, ANullThatMeansSomethingIsNotPerformed) {
  EXPECT_EQ(read(with("llama", {{"is_causal", nullptr}})).use.unperformed.size(), 1u);
  EXPECT_TRUE(read(with("llama", {{"is_causal", true}})).use.unperformed.empty());
  EXPECT_TRUE(read(with("llama", {{"clip_qkv", nullptr}})).use.unperformed.empty());
}

TEST(ConfigWords, HeadsThatCannotRotateAreRefused) {
  const Json odd = {{"hidden_size", 36}, {"num_attention_heads", 4}};
  EXPECT_EQ(
      read(with("llama", odd)).error,
      "config.json:1: num_attention_heads: heads have 9 columns, which is odd: pairs of columns "
      "rotate");
  Json part = odd;
  part["partial_rotary_factor"] = 0.5;
  EXPECT_EQ(read(with("phi3", part)).error, "");
}

// Published files are taken as they are, in silence. There is one of every dialect and of every
// mapping.
TEST(ConfigWords, NoShippedModelHasAStranger) {
  std::set<std::string> types;
  for (const auto& entry : std::filesystem::directory_iterator("scenarios/models")) {
    if (entry.path().extension() != ".json") continue;
    const Result<ModelFile> file = read_model_file(entry.path());
    ASSERT_TRUE(static_cast<bool>(file)) << file.error().message;
    for (const std::string& note : file.value().use.notes) {
      EXPECT_EQ(note.find("that is known"), std::string::npos) << entry.path() << ": " << note;
    }
    types.insert(file.value().model.model_type);
    types.insert(read_json(entry.path()).value().given("model_type")->text);
  }
  for (const std::string_view type : known_model_types()) {
    EXPECT_TRUE(types.contains(std::string(type))) << type;
  }
  for (const std::string& type : mapped_types()) EXPECT_TRUE(types.contains(type)) << type;
}

}  // namespace
}  // namespace rehearse
