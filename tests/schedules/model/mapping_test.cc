// SPDX-License-Identifier: Apache-2.0
// Mappings held against transformers: every tensor of every golden, totals, FLOPs of products.
#include "schedules/model/kinds/mapping.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <numeric>
#include <set>

#include "schedules/model/config/hf_config.h"
#include "schedules/model/layer_mix.h"
#include "schedules/model/parts.h"

namespace rehearse {
namespace {

namespace fs = std::filesystem;

JsonValue golden(const std::string& id) {
  return read_json("tests/data/layers/" + id + ".json").value();
}
std::vector<std::string> goldens() {
  std::vector<std::string> ids;
  for (const auto& entry : fs::directory_iterator("tests/data/layers")) {
    if (entry.path().extension() == ".json") ids.push_back(entry.path().stem().string());
  }
  std::ranges::sort(ids);
  return ids;
}

// The config, with the type that its class has where it is silent.
JsonValue config_of(const JsonValue& golden) {
  JsonValue config = *golden.given("config");
  if (config.given("model_type") == nullptr) {
    config.members.push_back({.key = "model_type", .value = *golden.given("model_type")});
  }
  return config;
}

std::vector<std::int64_t> expanded(const std::string& ranges) {
  std::vector<std::int64_t> layers;
  for (std::size_t at = 0; at < ranges.size();) {
    const std::size_t end = std::min(ranges.find(',', at), ranges.size());
    const std::string part = ranges.substr(at, end - at);
    const std::size_t dash = part.find('-');
    const std::int64_t first = std::stoll(part.substr(0, dash));
    const std::int64_t last = dash == std::string::npos ? first : std::stoll(part.substr(dash + 1));
    for (std::int64_t layer = first; layer <= last; ++layer) layers.push_back(layer);
    at = end + 1;
  }
  return layers;
}

// A class without a head has no prefix either.
std::string bare(std::string name) {
  for (const std::string prefix : {"model.language_model.", "model."}) {
    if (name.starts_with(prefix)) return name.substr(prefix.size());
  }
  return name;
}

using Tensors =
    std::map<std::pair<std::string, std::vector<std::int64_t>>, std::vector<std::int64_t>>;

struct Theirs {
  Tensors tensors;
  bool has_head = false;
};
Theirs theirs(const JsonValue& golden) {
  Theirs found;
  for (const JsonValue& tensor : golden.given("tensors")->items) {
    const std::string name = bare(tensor.given("name")->text);
    if (name.starts_with("lm_head")) found.has_head = true;
    if (tensor.given("tied_to") != nullptr) continue;  // counted there
    std::vector<std::int64_t> shape;
    for (const JsonValue& size : tensor.given("shape")->items) shape.push_back(size.integer);
    const JsonValue* layers = tensor.given("layers");
    found.tensors[{name, shape}] =
        layers == nullptr ? std::vector<std::int64_t>{} : expanded(layers->text);
  }
  return found;
}

class Golden : public testing::TestWithParam<std::string> {};

TEST_P(Golden, EveryTensorIsThere) {
  const JsonValue file = golden(GetParam());
  const std::string type = config_of(file).given("model_type")->text;
  if (!is_mapped(type)) GTEST_SKIP() << type << " is read by a dialect";
  const Result<Mapping> mapping = read_mapping(type);
  ASSERT_TRUE(mapping) << mapping.error().message;
  const Result<std::vector<FileTensor>> mine =
      mapped_tensors(mapping.value(), config_of(file), GetParam());
  ASSERT_TRUE(mine) << mine.error().message;
  const Theirs wanted = theirs(file);
  Tensors found;
  for (const FileTensor& tensor : mine.value()) {
    if (tensor.name.starts_with("lm_head") && !wanted.has_head) continue;
    found[{bare(tensor.name), tensor.shape}] = tensor.layers;
  }
  for (const auto& [tensor, layers] : wanted.tensors) {
    const auto& name = tensor.first;
    ASSERT_TRUE(found.contains(tensor)) << name;
    EXPECT_EQ(found[tensor], layers) << name;
  }
  EXPECT_EQ(found.size(), wanted.tensors.size());
}

TEST_P(Golden, CountsAllParameters) {
  const JsonValue file = golden(GetParam());
  JsonReport report(GetParam());
  const ModelFile read = parse_model_file(config_of(file), GetParam(), "", report);
  ASSERT_TRUE(report.ok()) << report.error().message;
  const Transformer& model = read.model;
  const bool headless = !theirs(file).has_head && !model.tied_embedding;
  EXPECT_EQ(total_parameters(model) - (headless ? model.vocabulary * model.hidden : 0),
            file.given("parameters")->integer);
}

// What FlopCounterMode saw of products and of attention's full squares. Kinds' own products (scans)
// differ from the eager path's: of models that have any, the products with weights alone.
TEST_P(Golden, CountsTheFlopsOfOneForward) {
  const JsonValue file = golden(GetParam());
  JsonReport report(GetParam());
  Transformer model = parse_model_file(config_of(file), GetParam(), "", report).model;
  ASSERT_TRUE(report.ok()) << report.error().message;
  if (file.given("forward") == nullptr) GTEST_SKIP() << "the class has no forward on meta";
  const JsonValue& forward = *file.given("forward");
  const std::int64_t s = forward.given("sequence")->integer;
  ASSERT_EQ(forward.given("batch")->integer, 1);
  double products = 0, squares = 0;
  for (const JsonMember& op : forward.given("flops")->given("by_op")->members) {
    const bool weights = op.key == "aten.mm" || op.key == "aten.addmm" ||
                         op.key == "aten._grouped_mm" || op.key == "aten.baddbmm";
    (weights ? products : squares) += op.value.number;
  }
  // Block-diagonal weights (DeepSeek-V4's o_a_proj) are multiplied with as attention is.
  if (const JsonValue* batched = forward.given("flops")->given("bmm_with_weights")) {
    products += batched->number;
    squares -= batched->number;
  }
  model.sliding_window = 0;
  model.prediction_layers = 0;
  const bool headless = !theirs(file).has_head;
  const auto tokens = static_cast<double>(s);
  double weights = headless ? 0 : static_cast<double>(model.vocabulary * model.hidden);
  const auto add = [&](const std::vector<ModelPart>& parts) {
    for (const ModelPart& part : parts) {
      if (part.use != PartUse::Product || part.table()) continue;
      weights +=
          static_cast<double>((part.expert ? model.experts.per_token : 1) * part.out * part.in);
    }
  };
  for (std::int64_t layer = 0; layer < model.layers; ++layer) add(layer_parts(model, layer));
  add(embedding_parts(model));
  add(head_parts(model));
  EXPECT_NEAR(2 * tokens * weights / products, 1, 0.01);
  if (!kind_names(model).empty()) return;
  const double all =
      model_flops(model, 1, s, FlopsConvention::Megatron) / 3 -
      (headless ? 2 * tokens * static_cast<double>(model.vocabulary * model.hidden) : 0);
  EXPECT_NEAR(all / (products + squares), 1, 0.01);
}

std::string name_of(const testing::TestParamInfo<std::string>& golden) {
  return golden.param;
}
INSTANTIATE_TEST_SUITE_P(All, Golden, testing::ValuesIn(goldens()), name_of);

std::string error_of(const std::string& text) {
  JsonReport report("config.json");
  parse_model_file(parse_json(text, "config.json").value(), "x", "", report);
  return report.ok() ? "" : report.error().message;
}

TEST(Mapping, EveryShippedOneReadsItsClassesDefaults) {
  for (const std::string& type : mapped_types()) {
    const Result<Mapping> mapping = read_mapping(type);
    ASSERT_TRUE(mapping) << mapping.error().message;
    EXPECT_EQ(mapping.value().model_type, type);
    if (type == "dots1" || type == "nemotron_h" || type == "nemotron-nas") continue;  // left open
    EXPECT_EQ(error_of("{\"model_type\": \"" + type + "\"}"), "") << type;
  }
}

// Of the types of tests/data/model_types/types.json so many are priced; a refusal is one line that
// names the key, and the family whose words the file's are most like.
TEST(Mapping, MostTypesArePriced) {
  const JsonValue types = read_json("tests/data/model_types/types.json").value();
  std::vector<std::string> refused;
  const std::vector<JsonValue>& configs = types.given("configs")->items;
  for (const JsonValue& config : configs) {
    JsonReport report("config.json");
    parse_model_file(config, "x", "", report);
    if (report.ok()) continue;
    const std::string error = report.error().message;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
    EXPECT_NE(error.find("model_type: "), std::string::npos) << error;
    EXPECT_NE(error.find(" are most like those of "), std::string::npos) << error;
    refused.push_back(config.given("model_type")->text);
  }
  const std::size_t priced = configs.size() - refused.size();
  std::string line = std::to_string(priced) + " of " + std::to_string(configs.size()) +
                     " model types are priced, refused are";
  for (const std::string& type : refused) line += " " + type;
  std::cout << line << '\n';
  EXPECT_EQ(refused, (std::vector<std::string>{"kimi_k3", "zamba2", "zamba", "axk2",
                                               "mistral_large4", "dots3_note", "glm5_next",
                                               "qwen4_exp", "longcat_flash", "zaya", "inkling"}));
}

TEST(Mapping, ErrorsNameFilePlaceAndValues) {
  EXPECT_EQ(error_of(R"({"model_type": "afmoe",
"num_key_value_head": 4})"),
            "config.json:2: num_key_value_head: unknown key, the nearest known one is "
            "num_key_value_heads");
  EXPECT_EQ(error_of(R"({"model_type": "afmoe",
"layer_types": ["sliding_atention"]})"),
            "config.json:2: layer_types: \"sliding_atention\" is no layer of afmoe, the nearest "
            "known one is sliding_attention");
  EXPECT_EQ(error_of(R"({"model_type": "smollm3", "hidden_size": "wide"})"),
            "config.json:1: model_type: hidden_size: \"hidden_size\" is 'wide', no whole number "
            "from 0 to 2^30; hidden_size = 'wide'");
}

TEST(Mapping, AConfigThatNoneReadsIsToldItsNearestFamily) {
  EXPECT_EQ(error_of(R"({"model_type": "brand_new", "ssm_state_size": 128, "mamba_num_heads": 64,
"hybrid_override_pattern": "M*"})"),
            "config.json:1: model_type: \"brand_new\" is not known; its other keys are most like "
            "those of nemotron_h");
}

// As Python writes it: Nemotron-H's published file says [0.0, Infinity].
TEST(Mapping, AnInfiniteNumberOfAPublishedFileIsRead) {
  const std::string path = testing::TempDir() + "/mapping_test.infinite.json";
  std::ofstream(path) << R"({"model_type": "nemotron_h", "hybrid_override_pattern": "M-",
"architectures": ["Infinity"], "time_step_limit": [0.0, Infinity]})";
  const Result<ModelFile> read = read_model_file(path);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read.value().model.layers, 2);
  fs::remove(path);
}

ModelFile read(const std::string& type, const std::string& more = "") {
  JsonReport report("config.json");
  const std::string text =
      "{\"model_type\": \"" + type + "\", \"num_hidden_layers\": 4" + more + "}";
  return parse_model_file(parse_json(text, "config.json").value(), "x", "", report);
}

// Kimi K2 is DeepSeek-V3's class under another word: the same model, executed as it is.
TEST(Mapping, AnAliasIsTheDialects) {
  const ModelFile kimi = read("kimi_k2"), deepseek = read("deepseek_v3");
  EXPECT_EQ(kimi.model, deepseek.model);
  EXPECT_TRUE(kimi.use.unperformed.empty());
}

// What a mapping's `run` says is performed, unless a key of its dialect asks for more; layers of
// other kinds are not, nor is a mapping without it.
TEST(Mapping, WhatIsPlainIsPerformedByTheDialectsRules) {
  const ModelFile plain = read("smollm3", R"(, "rms_norm_eps": 0.25)");
  EXPECT_TRUE(plain.use.unperformed.empty());
  EXPECT_EQ(plain.model.norm_epsilon, 0.25);
  EXPECT_EQ(plain.model.rotary.theta, 2e6);  // the class's
  EXPECT_FALSE(plain.model.rotates(3));
  const ModelFile asks = read("smollm3", R"(, "residual_multiplier": 0.5)");
  ASSERT_EQ(asks.use.unperformed.size(), 1u);
  EXPECT_EQ(asks.use.unperformed[0].key, "residual_multiplier");
  EXPECT_FALSE(read("granite").use.unperformed.empty());
  EXPECT_FALSE(read("qwen3_next").use.unperformed.empty());
  const ModelFile gated = read("qwen3_next", R"(, "full_attention_interval": 1)");
  EXPECT_TRUE(gated.use.unperformed.empty());
  EXPECT_TRUE(gated.model.attention_gate);
  EXPECT_EQ(gated.model.rotary.share, 0.25);
}

}  // namespace
}  // namespace rehearse
