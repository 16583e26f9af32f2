// SPDX-License-Identifier: Apache-2.0
// Published models, to the unit. A total is what transformers' model.num_parameters() gives for the
// published config.json (or the model card prints); tables tied to the head are counted once.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "schedules/model/config/hf_config.h"

namespace rehearse {
namespace {

struct Published {
  const char* name;
  const char* config;  // the keys of config.json that bear on the count
  std::int64_t parameters;
  std::int64_t active = 0;  // where it is known to the unit
};

// Named for gtest: otherwise it prints raw bytes.
void PrintTo(const Published& model, std::ostream* out) {
  *out << model.name;
}

Transformer parse(const std::string& config) {
  const Result<JsonValue> root = parse_json(config, "config.json");
  EXPECT_TRUE(root) << (root ? "" : root.error().message);
  JsonReport report("config.json");
  const Transformer model = parse_transformer(root.value(), "inline", "", report);
  EXPECT_TRUE(report.ok()) << (report.ok() ? "" : report.error().message);
  return model;
}

class PublishedModel : public testing::TestWithParam<Published> {};

TEST_P(PublishedModel, HasItsPublishedParameters) {
  const Transformer model = parse(GetParam().config);
  EXPECT_EQ(total_parameters(model), GetParam().parameters);
  const bool dense = model.experts.count == 0;
  const std::int64_t active = dense ? GetParam().parameters : GetParam().active;
  if (active > 0) {
    EXPECT_EQ(active_parameters(model), active);
  }
}

const Published
    kPublished
        [] =
            {
                // openai-community/gpt2, -medium, -large, -xl
                {"gpt2",
                 R"({"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "vocab_size": 50257})",
                 124'439'808},
                {"gpt2_defaults", R"({"model_type": "gpt2"})", 124'439'808},
                {"gpt2_medium",
                 R"({"model_type": "gpt2", "n_embd": 1024, "n_layer": 24, "n_head": 16})",
                 354'823'168},
                {"gpt2_large",
                 R"({"model_type": "gpt2", "n_embd": 1280, "n_layer": 36, "n_head": 20})",
                 774'030'080},
                {"gpt2_xl",
                 R"({"model_type": "gpt2", "n_embd": 1600, "n_layer": 48, "n_head": 25})",
                 1'557'611'200},
                // meta-llama
                {"llama2_7b",
                 R"({"model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32, "vocab_size": 32000})",
                 6'738'415'616},
                {"llama_defaults", R"({"model_type": "llama"})", 6'738'415'616},
                {"llama2_13b",
                 R"({"model_type": "llama", "hidden_size": 5120, "intermediate_size": 13824, "num_hidden_layers": 40, "num_attention_heads": 40})",
                 13'015'864'320},
                {"llama2_70b",
                 R"({"model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8})",
                 68'976'648'192},
                {"llama3_8b",
                 R"({"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256})",
                 8'030'261'248},
                {"llama3_70b",
                 R"({"model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 128256})",
                 70'553'706'496},
                {"llama3_405b",
                 R"({"model_type": "llama", "hidden_size": 16384, "intermediate_size": 53248, "num_hidden_layers": 126, "num_attention_heads": 128, "num_key_value_heads": 8, "vocab_size": 128256})",
                 405'853'388'800},
                {"llama32_1b",
                 R"({"model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 128256, "tie_word_embeddings": true})",
                 1'235'814'400},
                {"llama32_3b",
                 R"({"model_type": "llama", "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 28, "num_attention_heads": 24, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 128256, "tie_word_embeddings": true})",
                 3'212'749'824},
                // mistralai
                {"mistral_7b",
                 R"({"model_type": "mistral", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000})",
                 7'241'732'096},
                {"mixtral_8x7b",
                 R"({"model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "num_local_experts": 8, "num_experts_per_tok": 2})",
                 46'702'792'704, 12'879'925'248},
                {"mixtral_8x22b",
                 R"({"model_type": "mixtral", "hidden_size": 6144, "intermediate_size": 16384, "num_hidden_layers": 56, "num_attention_heads": 48, "num_key_value_heads": 8, "vocab_size": 32768})",
                 140'630'071'296},
                // Qwen
                {"qwen2_05b",
                 R"({"model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": true})",
                 494'032'768},
                {"qwen2_15b",
                 R"({"model_type": "qwen2", "hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12, "num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": true})",
                 1'543'714'304},
                {"qwen2_7b",
                 R"({"model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064})",
                 7'615'616'512},
                {"qwen2_72b",
                 R"({"model_type": "qwen2", "hidden_size": 8192, "intermediate_size": 29568, "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 152064})",
                 72'706'203'648},
                {"qwen15_moe",
                 R"({"model_type": "qwen2_moe", "hidden_size": 2048, "intermediate_size": 5632, "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632, "num_hidden_layers": 24, "num_attention_heads": 16, "num_key_value_heads": 16, "num_experts": 60, "num_experts_per_tok": 4, "vocab_size": 151936})",
                 14'315'784'192},
                {"qwen3_06b",
                 R"({"model_type": "qwen3", "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "tie_word_embeddings": true})",
                 596'049'920},
                {"qwen3_8b",
                 R"({"model_type": "qwen3", "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936})",
                 8'190'735'360},
                {"qwen3_30b_a3b",
                 R"({"model_type": "qwen3_moe", "hidden_size": 2048, "moe_intermediate_size": 768, "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8, "vocab_size": 151936, "mlp_only_layers": []})",
                 30'532'122'624},
                {"qwen3_235b_a22b",
                 R"({"model_type": "qwen3_moe", "hidden_size": 4096, "moe_intermediate_size": 1536, "num_hidden_layers": 94, "num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8, "vocab_size": 151936})",
                 235'093'634'560},
                // EleutherAI (model cards print "Total Params")
                {"gpt_neox_20b", R"({"model_type": "gpt_neox"})", 20'554'567'680},
                {"pythia_70m",
                 R"({"model_type": "gpt_neox", "hidden_size": 512, "num_hidden_layers": 6, "num_attention_heads": 8, "intermediate_size": 2048, "vocab_size": 50304})",
                 70'426'624},
                {"pythia_14b",
                 R"({"model_type": "gpt_neox", "hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 8192, "vocab_size": 50304})",
                 1'414'647'808},
                {"pythia_12b",
                 R"({"model_type": "gpt_neox", "hidden_size": 5120, "num_hidden_layers": 36, "num_attention_heads": 40, "intermediate_size": 20480, "vocab_size": 50688})",
                 11'846'072'320},
                // bigscience
                {"bloom_560m",
                 R"({"model_type": "bloom", "n_embed": 1024, "n_layer": 24, "num_attention_heads": 16})",
                 559'214'592},
                {"bloom_176b",
                 R"({"model_type": "bloom", "n_embed": 14336, "n_layer": 70, "n_head": 112})",
                 176'247'271'424},
                // mosaicml
                {"mpt_7b",
                 R"({"model_type": "mpt", "d_model": 4096, "n_layers": 32, "n_heads": 32, "vocab_size": 50432})",
                 6'649'286'656},
                // deepseek-ai (without the multi-token prediction layer, as transformers loads it)
                {"deepseek_v2_lite",
                 R"({"model_type": "deepseek_v2", "hidden_size": 2048, "intermediate_size": 10944, "moe_intermediate_size": 1408, "num_hidden_layers": 27, "num_attention_heads": 16, "num_key_value_heads": 16, "n_shared_experts": 2, "n_routed_experts": 64, "num_experts_per_tok": 6, "first_k_dense_replace": 1, "moe_layer_freq": 1, "q_lora_rank": null, "kv_lora_rank": 512, "vocab_size": 102400})",
                 15'706'484'224},
                {"deepseek_v2",
                 R"({"model_type": "deepseek_v2", "hidden_size": 5120, "intermediate_size": 12288, "moe_intermediate_size": 1536, "num_hidden_layers": 60, "num_attention_heads": 128, "num_key_value_heads": 128, "n_shared_experts": 2, "n_routed_experts": 160, "num_experts_per_tok": 6, "first_k_dense_replace": 1, "q_lora_rank": 1536, "kv_lora_rank": 512})",
                 235'741'434'880},
                {"deepseek_v3", R"({"model_type": "deepseek_v3"})", 671'026'404'352},
                // openai
                {"gpt_oss_20b",
                 R"({"model_type": "gpt_oss", "num_hidden_layers": 24, "num_local_experts": 32, "experts_per_token": 4})",
                 20'914'757'184},
                {"gpt_oss_120b", R"({"model_type": "gpt_oss"})", 116'829'156'672},
};

INSTANTIATE_TEST_SUITE_P(Hub, PublishedModel, testing::ValuesIn(kPublished),
                         [](const auto& each) { return std::string(each.param.name); });

// Active parameters are printed in billions: names of the models ("A3B"), model cards, reports.
TEST(ParameterCount, OfActiveExpertsRoundsToThePrintedBillions) {
  const struct {
    const char* name;
    double printed, unit;
    bool without_input_table;
  } rows[] = {{"mixtral_8x22b", 39, 1, false},
              {"qwen15_moe", 2.7, 0.1, false},
              {"qwen3_30b_a3b", 3.3, 0.1, false},
              {"qwen3_235b_a22b", 22, 1, false},
              {"deepseek_v2", 21, 1, false},
              {"deepseek_v3", 37, 1, false},
              {"gpt_oss_20b", 3.6, 0.1, true},
              {"gpt_oss_120b", 5.1, 0.1, true}};  // arXiv 2508.10925, Table 1
  for (const auto& row : rows) {
    const auto* found = std::ranges::find(kPublished, std::string_view(row.name), &Published::name);
    ASSERT_NE(found, std::end(kPublished));
    const Transformer model = parse(found->config);
    const std::int64_t active =
        active_parameters(model) - (row.without_input_table ? embedding_parameters(model) : 0);
    const double billions = static_cast<double>(active) * 1e-9;
    EXPECT_GE(billions, row.printed - 0.5 * row.unit) << row.name;  // printed is rounded
    EXPECT_LT(billions, row.printed + row.unit) << row.name;        // or cut off (V3: 37.55)
  }
}

// 12 L h^2 (1 + 13/(12h) + (V+s)/(12 L h)) + 2h (Narayanan et al., SC'21, section 5.1; the closed
// form leaves out the final LayerNorm).
TEST(ParameterCount, OfGptIsTheClosedFormAndTheFinalNorm) {
  const std::int64_t layers[] = {1, 12, 96}, hidden[] = {64, 768, 12288};
  for (const std::int64_t l : layers) {
    for (const std::int64_t h : hidden) {
      const Transformer model =
          parse(R"({"model_type": "gpt2", "n_head": 8, "vocab_size": 51200,
          "n_positions": 2048, "n_layer": )" +
                std::to_string(l) + R"(, "n_embd": )" + std::to_string(h) + "}");
      EXPECT_EQ(total_parameters(model), 12 * l * h * h + 13 * l * h + (51200 + 2048) * h + 2 * h);
    }
  }
}

// Narayanan et al., Table 1 and Korthikanti et al., Table 3 print billions.
TEST(ParameterCount, OfTheGptFamilyRoundsToThePrintedBillions) {
  const struct {
    std::int64_t h, l, a;
    double printed;
  } rows[] = {{6144, 48, 64, 22.07},
              {12288, 96, 96, 174.62},
              {20480, 105, 128, 529.60},
              {25600, 128, 160, 1008.04}};
  for (const auto& row : rows) {
    Transformer model =
        parse(R"({"model_type": "gpt2", "vocab_size": 51200, "n_positions": 2048})");
    model.hidden = row.h;
    model.layers = row.l;
    model.heads = model.kv_heads = row.a;
    model.head_dim = row.h / row.a;
    model.ffn_hidden = 4 * row.h;
    EXPECT_NEAR(static_cast<double>(total_parameters(model)) * 1e-9, row.printed, 0.005);
  }
}

// Shipped files, counted to the unit: totals are transformers' modules on the meta device (5.23.0),
// the parts of a layer its tensors. `without_input`, `without_both`: active parameters in billions
// without the input's table, and without the head's too.
TEST(ParameterCount, OfShippedModelsWithExpertsIsThatOfTransformers) {
  const struct {
    const char* id;
    std::int64_t total, active, expert, router, shared;
    double without_input, without_both;
  } rows[] = {
      {"mixtral-8x7b", 46'702'792'704, 12'879'925'248, 176'160'768, 32'768, 0, 12.749, 12.618},
      {"mixtral-8x22b", 140'620'634'112, 39'152'031'744, 301'989'888, 49'152, 0, 38.955, 38.759},
      {"qwen1.5-moe-a2.7b", 14'315'784'192, 2'689'173'504, 8'650'752, 122'880, 34'605'056, 2.378,
       2.067},
      {"qwen2-57b-a14b", 57'408'658'944, 14'249'270'784, 27'525'120, 229'376, 220'204'544, 13.705,
       13.160},
      {"qwen3-30b-a3b", 30'532'122'624, 3'353'032'704, 4'718'592, 262'144, 0, 3.042, 2.731},
      {"qwen3-235b-a22b", 235'093'634'560, 22'190'763'520, 18'874'368, 524'288, 0, 21.568, 20.946},
      {"deepseek-v2-lite", 15'706'484'224, 2'661'150'208, 8'650'752, 131'072, 17'301'504, 2.451,
       2.242},
      {"deepseek-v2", 235'741'434'880, 21'375'800'320, 23'592'960, 819'200, 47'185'920, 20.852,
       20.327},
      {"deepseek-v3", 671'026'404'352, 37'552'282'624, 44'040'192, 1'835'008, 44'040'192, 36.626,
       35.699},
      {"gpt-oss-20b", 20'914'757'184, 4'187'440'704, 24'891'840, 92'192, 0, 3.608, 3.029},
      {"gpt-oss-120b", 116'829'156'672, 5'711'982'912, 24'891'840, 368'768, 0, 5.133, 4.554},
      {"olmoe-1b-7b", 6'919'161'856, 1'282'017'280, 6'291'456, 131'072, 0, 1.179, 1.076},
      {"glm-4.5", 352'797'814'784, 33'632'251'904, 23'592'960, 819'200, 23'592'960, 32.856, 32.080},
      {"glm-4.5-air", 106'852'245'504, 13'424'123'904, 17'301'504, 524'288, 17'301'504, 12.803,
       12.183},
      {"llama4-scout", 107'769'861'120, 17'172'894'720, 125'829'120, 81'920, 125'829'120, 16.138,
       15.104},
      {"llama4-maverick", 400'711'848'960, 17'184'691'200, 125'829'120, 655'360, 125'829'120,
       16.150, 15.116},
  };
  for (const auto& row : rows) {
    const Result<Transformer> read =
        read_transformer(std::string("scenarios/models/") + row.id + ".json");
    ASSERT_TRUE(read) << row.id << (read ? "" : read.error().message);
    const Transformer& model = read.value();
    EXPECT_EQ(total_parameters(model), row.total) << row.id;
    EXPECT_EQ(active_parameters(model), row.active) << row.id;
    EXPECT_EQ(expert_parameters(model), row.expert) << row.id;
    EXPECT_EQ(router_parameters(model), row.router) << row.id;
    EXPECT_EQ(shared_expert_parameters(model), row.shared) << row.id;
    const std::int64_t table = model.vocabulary * model.hidden;
    EXPECT_NEAR(static_cast<double>(row.active - table) * 1e-9, row.without_input, 5.1e-4)
        << row.id;
    EXPECT_NEAR(static_cast<double>(row.active - 2 * table) * 1e-9, row.without_both, 5.1e-4)
        << row.id;
  }
}

// DeepSeek-V3's file says one prediction layer: an expert layer of 11,507,286,016 parameters, the
// projection 2 h^2 and three norms of h beside it.
TEST(ParameterCount, OfPredictionLayersStandsBesideTheTotal) {
  const Result<Transformer> read = read_transformer("scenarios/models/deepseek-v3.json");
  ASSERT_TRUE(read);
  EXPECT_EQ(read.value().prediction_layers, 1);
  EXPECT_EQ(layer_parameters(read.value(), 60), 11'507'286'016);
  EXPECT_EQ(prediction_parameters(read.value()), 11'507'286'016 + 102'760'448 + 3 * 7168);
  EXPECT_EQ(prediction_parameters(parse(R"({"model_type": "mixtral"})")), 0);
}

// A GPT with experts as Megatron-LM trains it (not a key of transformers): per layer E experts of
// 2 h f, a router of h E.
TEST(ParameterCount, OfAGptWithExpertsIsItsMatrices) {
  const std::string dense = R"({"model_type": "gpt2", "n_embd": 64, "n_head": 4, "n_layer": 2,
      "n_inner": 256, "attention_bias": false, "mlp_bias": false)";
  const std::int64_t mlp = 2 * 64 * 256;
  EXPECT_EQ(total_parameters(parse(dense + R"(, "num_local_experts": 4, "num_experts_per_tok": 1,
      "moe_intermediate_size": 256})")),
            total_parameters(parse(dense + "}")) + 2 * (3 * mlp + 64 * 4));
}

}  // namespace
}  // namespace rehearse
