// SPDX-License-Identifier: Apache-2.0
// Published models, to the unit. A total is what transformers' model.num_parameters() gives for the
// published config.json (or the model card prints); tables tied to the head are counted once.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "schedules/model/hf_config.h"

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

}  // namespace
}  // namespace rehearse
