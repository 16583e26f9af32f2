// SPDX-License-Identifier: Apache-2.0
// FLOPs against the papers' closed forms and the figures they print.
#include <gtest/gtest.h>

#include <string>

#include "schedules/model/config/hf_config.h"
#include "schedules/model/model.h"

namespace rehearse {
namespace {

Transformer parse(const std::string& config) {
  const Result<JsonValue> root = parse_json(config, "m.json");
  JsonReport report("m.json");
  const Transformer model = parse_transformer(root.value(), "inline", "", report);
  EXPECT_TRUE(report.ok()) << (report.ok() ? "" : report.error().message);
  return model;
}

Transformer gpt(std::int64_t h, std::int64_t l, std::int64_t a) {
  return parse(R"({"model_type": "gpt2", "vocab_size": 51200, "n_positions": 2048, "n_embd": )" +
               std::to_string(h) + R"(, "n_layer": )" + std::to_string(l) + R"(, "n_head": )" +
               std::to_string(a) + "}");
}

// 72 B L s h^2 (1 + s/6h + V/12hL): Korthikanti et al., arXiv 2205.05198, Eq. 7 (model FLOPs).
TEST(Flops, MegatronsConventionIsKorthikantisEquation7) {
  const struct {
    std::int64_t h, l, a, batch;
  } rows[] = {
      {6144, 48, 64, 4}, {12288, 96, 96, 64}, {20480, 105, 128, 280}, {25600, 128, 160, 512}};
  for (const auto& row : rows) {
    const double h = static_cast<double>(row.h), l = static_cast<double>(row.l);
    const double b = static_cast<double>(row.batch), s = 2048, v = 51200;
    const double paper = 72 * b * l * s * h * h * (1 + s / (6 * h) + v / (12 * h * l));
    EXPECT_NEAR(model_flops(gpt(row.h, row.l, row.a), row.batch, 2048, FlopsConvention::Megatron),
                paper, 1e-12 * paper);
  }
}

// GPT-3 175B, 64 sequences: 1.4109e17; 530B, 280 sequences: 1.8522e18 by the formula of arXiv
// 2104.04473, section 5.1.
TEST(Flops, MegatronsConventionGivesTheCheckedFigures) {
  EXPECT_NEAR(model_flops(gpt(12288, 96, 96), 64, 2048, FlopsConvention::Megatron), 1.4109e17,
              5e12);
  EXPECT_NEAR(model_flops(gpt(20480, 105, 128), 280, 2048, FlopsConvention::Megatron), 1.8522e18,
              5e13);
}

// Narayanan et al., SC'21: 96 B s l h^2 (1 + s/6h + V/16lh) with full recomputation: four passes of
// the layers instead of three, and three passes of the head (96 B s l h^2 V/16lh = 6 B s V h).
TEST(Flops, NarayanansFormulaIsAForwardMoreOfTheLayers) {
  const double b = 1536, s = 2048, h = 12288, l = 96, v = 51200;
  const double narayanan = 96 * b * s * l * h * h * (1 + s / (6 * h) + v / (16 * l * h));
  const double head = 6 * b * s * v * h;
  const double ours = model_flops(gpt(12288, 96, 96), 1536, 2048, FlopsConvention::Megatron);
  EXPECT_NEAR((ours - head) * 4 / 3 + head, narayanan, 1e-12 * narayanan);
}

// Today's Megatron-LM (training.py, num_floating_point_operations) counts half of the square.
TEST(Flops, TheCausalConventionHalvesTheSquareAlone) {
  const Transformer model = gpt(6144, 48, 64);
  const double full = model_flops(model, 4, 2048, FlopsConvention::Megatron);
  const double causal = model_flops(model, 4, 2048, FlopsConvention::MegatronCausal);
  const double square = 12.0 * 4 * 2048 * 2048 * 6144 * 48;  // 3 passes x 4 B s^2 h per layer
  EXPECT_NEAR(full - causal, square / 2, 1e-9 * square);
}

// A layer with a window w counts s w keys, w s - w^2/2 of them before a query; one with chunks of c
// c per query, half of them before it; a layer without either the whole square. By hand, 12 B a d
// FLOPs per key and query (2 products, 3 passes), a d = 512.
TEST(Flops, TheKeysOfAWindowAreCountedByLayer) {
  const std::string sizes = R"("hidden_size": 512, "num_attention_heads": 8,
      "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 1376, "vocab_size": 1000,)";
  const auto attention = [&](const Transformer& model, FlopsConvention convention) {
    Transformer without = model;
    without.windowed_layers.assign(static_cast<std::size_t>(model.layers), false);
    without.sliding_window = 0;
    const double s = 4096, whole = 12 * 512 * s * s * 2;
    return whole * (convention == FlopsConvention::Megatron ? 1 : 0.5) -
           (model_flops(without, 1, 4096, convention) - model_flops(model, 1, 4096, convention));
  };
  const Transformer all = parse(R"({"model_type": "mistral", "num_hidden_layers": 2, )" + sizes +
                                R"("sliding_window": 128})");
  EXPECT_NEAR(attention(all, FlopsConvention::Megatron), 12.0 * 512 * 2 * 4096 * 128, 1e3);
  EXPECT_NEAR(attention(all, FlopsConvention::MegatronCausal),
              12.0 * 512 * 2 * (4096 * 128 - 128 * 64), 1e3);
  const Transformer half = parse(R"({"model_type": "gemma2", "num_hidden_layers": 2, "layer_types":
      ["sliding_attention", "full_attention"], )" +
                                 sizes + R"("sliding_window": 128})");
  EXPECT_NEAR(attention(half, FlopsConvention::Megatron), 12.0 * 512 * (4096.0 * 4096 + 4096 * 128),
              1e3);
  const Transformer beyond = parse(R"({"model_type": "mistral", "num_hidden_layers": 2, )" + sizes +
                                   R"("sliding_window": 8192})");
  EXPECT_DOUBLE_EQ(attention(beyond, FlopsConvention::Megatron), 12.0 * 512 * 2 * 4096 * 4096);
}

// PaLM 540B (arXiv 2204.02311, section 4.1 and appendix B): 238.3k tokens/s on 6144 TPU v4 of 275
// TFLOP/s are 46.2 % with 6 N + 12 L H Q T per token; N = 540.35e9, L 118, H 48, Q 256, T 2048.
// One set of keys and values, parallel layers, SwiGLU, tied 256k table, no biases.
TEST(Flops, PalmsConventionGivesItsPrintedUtilization) {
  Transformer palm =
      parse(R"({"model_type": "llama", "hidden_size": 18432, "num_hidden_layers": 118,
      "num_attention_heads": 48, "num_key_value_heads": 1, "head_dim": 256,
      "intermediate_size": 73728, "vocab_size": 256000, "tie_word_embeddings": true})");
  EXPECT_NEAR(static_cast<double>(total_parameters(palm)), 540.35e9, 0.01e9);
  const double per_token = model_flops(palm, 1, 2048, FlopsConvention::Palm) / 2048;
  EXPECT_NEAR(per_token * 238.3e3 / (6144 * 275e12), 0.462, 0.0005);
}

// N counts what a token is multiplied with: an untied input table and learned positions are only
// looked up, a tied table is the head's matrix.
TEST(Flops, SixNLeavesOutWhatIsOnlyLookedUp) {
  const Transformer untied = parse(R"({"model_type": "llama"})");
  EXPECT_DOUBLE_EQ(model_flops(untied, 1, 1, FlopsConvention::SixN),
                   6.0 * static_cast<double>(6'738'415'616 - 32000LL * 4096));
  const Transformer tied = parse(R"({"model_type": "gpt2"})");
  EXPECT_DOUBLE_EQ(model_flops(tied, 1, 1, FlopsConvention::SixN),
                   6.0 * static_cast<double>(124'439'808 - 1024LL * 768));
}

// By hand, one layer with grouped queries and a gated MLP: per token 2 h (a + 2k) d for q, k, v,
// 2 a d h for the projection, 6 h f for the MLP, 4 s a d for the full square; three passes.
TEST(Flops, GroupedQueriesAndGatedMlpsAreCountedByHand) {
  const Transformer model = parse(R"({"model_type": "llama", "hidden_size": 512,
      "num_hidden_layers": 1, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64,
      "intermediate_size": 1376, "vocab_size": 1000})");
  const double per_token = 2.0 * 512 * (8 + 4) * 64 + 2.0 * 512 * 512 + 6.0 * 512 * 1376 +
                           4.0 * 128 * 512 + 2.0 * 1000 * 512;
  EXPECT_DOUBLE_EQ(model_flops(model, 2, 128, FlopsConvention::Megatron), 3 * 2 * 128 * per_token);
}

// Two of eight experts run, and the router sees every token.
TEST(Flops, OnlyTheChosenExpertsAreCounted) {
  const char* sizes = R"("hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
      "num_key_value_heads": 4, "intermediate_size": 128, "vocab_size": 1000})";
  const double dense = model_flops(parse(std::string(R"({"model_type": "llama", )") + sizes), 1, 16,
                                   FlopsConvention::Megatron);
  const double sparse = model_flops(
      parse(std::string(R"({"model_type": "mixtral", "num_local_experts": 8, )") + sizes), 1, 16,
      FlopsConvention::Megatron);
  const double one_more_expert = 6.0 * 64 * 128, router = 2.0 * 64 * 8;
  EXPECT_DOUBLE_EQ(sparse - dense, 3.0 * 16 * 2 * (one_more_expert + router));
}

}  // namespace
}  // namespace rehearse
