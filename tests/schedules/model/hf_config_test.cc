// SPDX-License-Identifier: Apache-2.0
// Dialects: every word of a file lands where it belongs, what it leaves out has the default of
// Hugging Face, and what looks like a typing mistake is refused.
#include "schedules/model/config/hf_config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

namespace rehearse {
namespace {

std::string error_of(const std::string& config) {
  const Result<JsonValue> root = parse_json(config, "m.json");
  if (!root) return root.error().message;
  JsonReport report("m.json");
  parse_transformer(root.value(), "inline", "", report);
  return report.ok() ? "" : report.error().message;
}

Transformer parse(const std::string& config) {
  const Result<JsonValue> root = parse_json(config, "m.json");
  JsonReport report("m.json");
  const Transformer model = parse_transformer(root.value(), "inline", "", report);
  EXPECT_TRUE(report.ok()) << error_of(config);
  return model;
}

// A dialect's own words and the common ones say the same.
TEST(Dialect, OwnAndCommonWordsGiveTheSameModel) {
  EXPECT_EQ(
      parse(R"({"model_type": "gpt2", "n_embd": 256, "n_layer": 3, "n_head": 4, "n_inner": 512,
                      "n_positions": 64, "activation_function": "gelu"})"),
      parse(R"({"model_type": "gpt2", "hidden_size": 256, "num_hidden_layers": 3,
                      "num_attention_heads": 4, "intermediate_size": 512,
                      "max_position_embeddings": 64, "hidden_act": "gelu"})"));
  EXPECT_EQ(parse(R"({"model_type": "bloom", "n_embed": 256, "n_layer": 3, "n_head": 4})"),
            parse(R"({"model_type": "bloom", "hidden_size": 256, "num_hidden_layers": 3,
                      "num_attention_heads": 4})"));
  EXPECT_EQ(parse(R"({"model_type": "mpt", "d_model": 256, "n_layers": 3, "n_heads": 4})"),
            parse(R"({"model_type": "mpt", "hidden_size": 256, "num_hidden_layers": 3,
                      "num_attention_heads": 4})"));
  EXPECT_EQ(parse(R"({"model_type": "mixtral", "num_local_experts": 4})"),
            parse(R"({"model_type": "mixtral", "num_experts": 4})"));
}

TEST(Dialect, Gpt2HasBiasesLearnedPositionsAndATiedTable) {
  const Transformer model = parse(R"({"model_type": "gpt2"})");
  EXPECT_EQ(model.norm, NormKind::LayerNorm);
  EXPECT_EQ(model.mlp, MlpKind::Plain);
  EXPECT_EQ(model.positions, PositionKind::Learned);
  EXPECT_TRUE(model.qkv_bias && model.projection_bias && model.mlp_bias && model.tied_embedding);
  EXPECT_EQ(model.ffn_hidden, 4 * 768);
  EXPECT_EQ(model.head_dim, 64);
  EXPECT_EQ(model.kv_heads, 12);
  EXPECT_LT(model.dropouts.residual, 0);  // the file does not say: the plan's default rule decides
}

TEST(Dialect, DropoutIsWhatTheFileSays) {
  EXPECT_EQ(parse(R"({"model_type": "gpt2", "resid_pdrop": 0.2})").dropouts.residual, 0.2);
  EXPECT_EQ(parse(R"({"model_type": "gpt_neox", "hidden_dropout": 0.0})").dropouts.residual, 0.0);
}

TEST(Dialect, SwigluGatesAGpt2) {
  EXPECT_EQ(parse(R"({"model_type": "gpt2", "hidden_act": "swiglu"})").mlp, MlpKind::Gated);
  EXPECT_EQ(parse(R"({"model_type": "gpt2", "hidden_act": "silu"})").mlp, MlpKind::Plain);
  EXPECT_EQ(parse(R"({"model_type": "llama", "hidden_act": "gelu"})").mlp, MlpKind::Gated);
}

TEST(Dialect, LlamaHasRmsNormsGatedMlpAndNoBiases) {
  const Transformer model = parse(R"({"model_type": "llama"})");
  EXPECT_EQ(model.norm, NormKind::RmsNorm);
  EXPECT_EQ(model.mlp, MlpKind::Gated);
  EXPECT_EQ(model.positions, PositionKind::Rope);
  EXPECT_FALSE(model.qkv_bias || model.projection_bias || model.mlp_bias || model.tied_embedding);
  EXPECT_TRUE(parse(R"({"model_type": "llama", "attention_bias": true})").projection_bias);
}

TEST(Dialect, Qwen2HasBiasesOnQueriesKeysAndValuesAlone) {
  const Transformer model = parse(R"({"model_type": "qwen2"})");
  EXPECT_TRUE(model.qkv_bias);
  EXPECT_FALSE(model.projection_bias);
}

TEST(Dialect, SlidingWindowsAreThoseInUse) {
  EXPECT_EQ(parse(R"({"model_type": "mistral"})").sliding_window, 4096);
  EXPECT_EQ(parse(R"({"model_type": "mistral", "sliding_window": null})").sliding_window, 0);
  EXPECT_EQ(parse(R"({"model_type": "phi3"})").sliding_window, 0);
  const std::string none = error_of(R"({"model_type": "mistral", "sliding_window": 0})");
  EXPECT_NE(none.find("sliding_window: 0: a query would see no key"), std::string::npos) << none;
  // As transformers writes the file of a model without windows.
  EXPECT_EQ(parse(R"({"model_type": "qwen2_moe", "sliding_window": 0})").sliding_window, 0);
  EXPECT_EQ(parse(R"({"model_type": "qwen2", "sliding_window": 512})").sliding_window, 0);
  EXPECT_EQ(parse(R"({"model_type": "qwen2", "sliding_window": 512, "use_sliding_window": true})")
                .sliding_window,
            512);
}

TEST(Dialect, DeepseekKeepsItsFirstLayersDense) {
  const Transformer model = parse(R"({"model_type": "deepseek_v3"})");
  EXPECT_FALSE(model.has_experts(2));
  EXPECT_TRUE(model.has_experts(3));
  EXPECT_EQ(model.experts.shared_ffn_hidden, 2048);
  EXPECT_EQ(model.latent.kv_lora_rank, 512);
  // Layer i has experts where i >= 1 and i mod 2 = 0: the first is layer 2.
  const Transformer sparse = parse(R"({"model_type": "deepseek_v2", "n_routed_experts": 8,
      "num_experts_per_tok": 2, "first_k_dense_replace": 1, "moe_layer_freq": 2})");
  EXPECT_FALSE(sparse.has_experts(1));
  EXPECT_TRUE(sparse.has_experts(2));
  EXPECT_FALSE(sparse.has_experts(3));
  EXPECT_EQ(parse(R"({"model_type": "deepseek_v3", "n_routed_experts": 0})").experts, Experts{});
  EXPECT_EQ(parse(R"({"model_type": "deepseek_v2", "num_experts_per_tok": 6,
      "q_lora_rank": null})")
                .latent.q_lora_rank,
            0);
  // Where no layer has experts the model is a dense one.
  EXPECT_EQ(parse(R"({"model_type": "deepseek_v3", "first_k_dense_replace": 61})").experts,
            Experts{});
}

// Queries and keys have n + r columns, of which the last r rotate; what YaRN stretches, the scale
// is multiplied by the square of (0.1 mscale_all_dim ln factor + 1).
TEST(Dialect, DeepseekRotatesAPartOfAHead) {
  const Transformer model = parse(R"({"model_type": "deepseek_v3"})");
  EXPECT_EQ(model.head_dim, 128 + 64);
  EXPECT_EQ(model.rotary_head_dim(), 64);
  EXPECT_EQ(model.value_dim(), 128);
  EXPECT_TRUE(model.rotary.interleaved);
  EXPECT_FALSE(
      parse(R"({"model_type": "deepseek_v3", "rope_interleave": false})").rotary.interleaved);
  EXPECT_EQ(model.attention_scale, 0);
  const Transformer stretched = parse(R"({"model_type": "deepseek_v3", "rope_scaling": {
      "type": "yarn", "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0,
      "original_max_position_embeddings": 4096}})");
  EXPECT_NEAR(attention_scale(stretched, 0), std::pow(0.1 * std::log(40) + 1, 2) / std::sqrt(192.0),
              1e-15);
  EXPECT_NE(error_of(R"({"model_type": "deepseek_v3", "qk_rope_head_dim": 5})").find("is odd"),
            std::string::npos);
}

TEST(Dialect, Qwen3MoeTakesEveryKthLayer) {
  const Transformer model = parse(R"({"model_type": "qwen3_moe", "decoder_sparse_step": 2})");
  EXPECT_FALSE(model.has_experts(0));
  EXPECT_TRUE(model.has_experts(1));
  EXPECT_FALSE(model.has_experts(2));
}

// Layers with experts, of six.
std::vector<std::int64_t> expert_layers(const std::string& type_and_keys) {
  const Transformer model =
      parse(R"({"num_hidden_layers": 6, "model_type": )" + type_and_keys + "}");
  std::vector<std::int64_t> layers;
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    if (model.has_experts(layer)) layers.push_back(layer);
  }
  EXPECT_EQ(model.has_dense_layers(), layers.size() < 6);
  EXPECT_EQ(first_layer(model, true), layers.empty() ? 5 : layers.front());
  return layers;
}

// Any set of layers, as transformers takes it: what mlp_only_layers names is dense wherever it
// lies, moe_layers counts instead of the step, and what lies beyond the model is nothing.
TEST(Dialect, ExpertsLieInAnyLayers) {
  using Layers = std::vector<std::int64_t>;
  for (const std::string type : {R"("qwen2_moe")", R"("qwen3_moe")"}) {
    EXPECT_EQ(expert_layers(type), (Layers{0, 1, 2, 3, 4, 5}));
    EXPECT_EQ(expert_layers(type + R"(, "mlp_only_layers": [0, 1])"), (Layers{2, 3, 4, 5}));
    EXPECT_EQ(expert_layers(type + R"(, "mlp_only_layers": [4, 1, 40])"), (Layers{0, 2, 3, 5}));
    EXPECT_EQ(expert_layers(type + R"(, "mlp_only_layers": [1], "decoder_sparse_step": 2)"),
              (Layers{3, 5}));
    EXPECT_EQ(expert_layers(type + R"(, "mlp_only_layers": [0, 1, 2, 3, 4, 5])"), Layers{});
  }
  const std::string llama4 = R"("llama4_text")";
  EXPECT_EQ(expert_layers(llama4 + R"(, "moe_layers": [5, 1, 2, 47])"), (Layers{1, 2, 5}));
  EXPECT_EQ(expert_layers(llama4 + R"(, "moe_layers": [0], "interleave_moe_layer_step": 2)"),
            Layers{0});
  EXPECT_EQ(expert_layers(llama4 + R"(, "moe_layers": [])"), Layers{});
  EXPECT_EQ(expert_layers(llama4 + R"(, "moe_layers": null)"), (Layers{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(expert_layers(R"("deepseek_v3", "first_k_dense_replace": 4)"), (Layers{4, 5}));
  EXPECT_EQ(expert_layers(R"("glm4_moe")"), (Layers{1, 2, 3, 4, 5}));
}

// Null key heads, as older classes write them, and olmoe's class default: as many as of queries.
TEST(Dialect, KeyHeadsThatAreNullAreAsManyAsQueryHeads) {
  for (const char* said : {"qwen2", "qwen3", "llama", "olmoe"}) {
    const std::string file = R"({"model_type": ")" + std::string(said) +
                             R"(", "num_attention_heads": 64, "num_key_value_heads": null})";
    EXPECT_EQ(parse(file).kv_heads, 64) << said;
  }
  EXPECT_EQ(parse(R"({"model_type": "olmoe", "num_attention_heads": 4})").kv_heads, 4);
  EXPECT_FALSE(
      parse(R"({"model_type": "deepseek_v3", "norm_topk_prob": null})").experts.normalised);
}

// DeepSeek's files weigh a loss of the routers that transformers leaves out: no model has one.
TEST(Dialect, DeepseekLossesAreTheRuns) {
  const char* none = R"({"model_type": "deepseek_v3"})";
  EXPECT_EQ(parse(R"({"model_type": "deepseek_v3", "aux_loss_alpha": 0.001, "seq_aux": false})"),
            parse(none));
  for (const char* wrong :
       {R"("aux_loss_alpha": -1)", R"("aux_loss_alpha": "x")", R"("seq_aux": 1)"}) {
    EXPECT_NE(error_of(std::string(R"({"model_type": "deepseek_v2", )") + wrong + "}"), "");
  }
}

// Layers 1, 3, 5 ... have experts; the dense ones have another width.
TEST(Dialect, Llama4InterleavesItsExperts) {
  const Transformer model = parse(R"({"model_type": "llama4_text", "interleave_moe_layer_step": 2,
      "intermediate_size_mlp": 64, "intermediate_size": 32})");
  EXPECT_FALSE(model.has_experts(0));
  EXPECT_TRUE(model.has_experts(1));
  EXPECT_EQ(model.ffn_hidden, 64);
  EXPECT_EQ(model.experts.ffn_hidden, 32);
  EXPECT_EQ(model.experts.shared_ffn_hidden, 32);
}

// Three layers of four rotate and see chunks of the sequence, the fourth sees all of it.
TEST(Dialect, Llama4SeesChunksWhereItRotates) {
  const Transformer model = parse(R"({"model_type": "llama4_text", "attention_chunk_size": 64})");
  EXPECT_TRUE(model.rotates(2) && model.chunk(2) == 64);
  EXPECT_TRUE(!model.rotates(3) && model.chunk(3) == 0);
  EXPECT_TRUE(model.query_key_unit_norm && model.temperature_scale > 0);
  const Transformer other = parse(R"({"model_type": "llama4_text", "num_hidden_layers": 2,
      "no_rope_layers": [0, 1, 1], "layer_types": ["chunked_attention", "full_attention"],
      "attn_temperature_tuning": false})");
  EXPECT_TRUE(!other.rotates(0) && other.chunk(0) == 8192);
  EXPECT_TRUE(other.rotates(1) && other.chunk(1) == 0);
  EXPECT_EQ(other.temperature_scale, 0);
  EXPECT_NE(error_of(R"({"model_type": "llama4_text", "no_rope_layers": [1]})"), "");
  EXPECT_NE(error_of(R"({"model_type": "llama4_text", "num_hidden_layers": 1,
                         "layer_types": ["sliding_attention"]})"),
            "");
}

// Of 20 positions in chunks of 8 three halves of squares are seen, of 8, 8 and 4.
TEST(Dialect, ChunksArePairedAmongThemselves) {
  const Transformer model = parse(R"({"model_type": "llama4_text", "num_hidden_layers": 3,
                                      "attention_chunk_size": 8})");
  EXPECT_EQ(attention_pairs(model, 20), (8 * 8 + 8 * 8 + 4 * 4) / 2);
  const Transformer all = parse(R"({"model_type": "llama4_text", "num_hidden_layers": 4,
                                    "attention_chunk_size": 8})");
  EXPECT_EQ(attention_pairs(all, 16), 0.75 * 64 + 0.25 * 128);
}

// transformers' class has YaRN where the file says no positions, and plain ones where it says so.
TEST(Dialect, GptOssHasItsClassesPositionsWhereTheFileSaysNone) {
  const Transformer model = parse(R"({"model_type": "gpt_oss"})");
  EXPECT_EQ(model.rotary.kind, RotaryKind::Yarn);
  EXPECT_EQ(model.rotary.factor, 32);
  EXPECT_EQ(parse(R"({"model_type": "gpt_oss", "rope_parameters": {"rope_type": "default"}})")
                .rotary.kind,
            RotaryKind::Default);
  EXPECT_EQ(model.experts.glu_limit, 7);
  EXPECT_NE(error_of(R"({"model_type": "gpt_oss", "swiglu_limit": 0})"), "");
}

TEST(Dialect, GroupsOfExpertsMustHoldWhatATokenChooses) {
  EXPECT_EQ(parse(R"({"model_type": "deepseek_v3"})").experts.kept_groups, 4);
  EXPECT_NE(error_of(R"({"model_type": "deepseek_v3", "n_group": 7})"), "");
  EXPECT_NE(error_of(R"({"model_type": "deepseek_v3", "topk_group": 9})"), "");
  EXPECT_NE(error_of(R"({"model_type": "deepseek_v3", "n_group": 64, "topk_group": 1})"), "");
}

TEST(Dialect, MptIsAlibiWithoutBiasesUnlessItSaysOtherwise) {
  const Transformer model = parse(R"({"model_type": "mpt", "expansion_ratio": 2})");
  EXPECT_EQ(model.positions, PositionKind::Alibi);
  EXPECT_EQ(model.ffn_hidden, 2 * 2048);
  EXPECT_FALSE(model.norm_bias || model.qkv_bias);
  const Transformer learned = parse(
      R"({"model_type": "mpt", "no_bias": false, "attn_config": {"alibi": false, "kv_n_heads": 4}})");
  EXPECT_EQ(learned.positions, PositionKind::Learned);
  EXPECT_EQ(learned.kv_heads, 4);
  EXPECT_TRUE(learned.norm_bias && learned.mlp_bias);
}

// The keys of published files that say nothing about cost, as transformers 4.46 writes them.
TEST(Dialect, PublishedFilesAreTakenUnchanged) {
  EXPECT_EQ(error_of(R"({"_name_or_path": "x", "activation_function": "gelu_new",
      "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1, "bos_token_id": 50256,
      "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02, "layer_norm_epsilon": 1e-05,
      "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_inner": null, "n_layer": 12,
      "n_positions": 1024, "reorder_and_upcast_attn": false, "resid_pdrop": 0.1,
      "scale_attn_by_inverse_layer_idx": false, "scale_attn_weights": true,
      "summary_activation": null, "summary_first_dropout": 0.1, "summary_proj_to_labels": true,
      "summary_type": "cls_index", "summary_use_proj": true, "task_specific_params": {"text-generation":
      {"do_sample": true, "max_length": 50}}, "torch_dtype": "float32", "transformers_version": "4.46.0",
      "use_cache": true, "vocab_size": 50257})"),
            "");
  EXPECT_EQ(error_of(R"({"architectures": ["LlamaForCausalLM"], "attention_bias": false,
      "attention_dropout": 0.0, "bos_token_id": 128000, "eos_token_id": [128001, 128008],
      "head_dim": 128, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
      "intermediate_size": 14336, "max_position_embeddings": 131072, "mlp_bias": false,
      "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32,
      "num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling":
      {"factor": 8.0, "rope_type": "llama3"}, "rope_theta": 500000.0, "tie_word_embeddings": false,
      "torch_dtype": "bfloat16", "transformers_version": "4.42.3", "use_cache": true,
      "vocab_size": 128256})"),
            "");
  EXPECT_EQ(error_of(R"({"architectures": ["DeepseekV3ForCausalLM"], "attention_bias": false,
      "attention_dropout": 0.0, "auto_map": {"AutoConfig": "x"}, "aux_loss_alpha": 0.001,
      "bos_token_id": 0, "eos_token_id": 1, "ep_size": 1, "first_k_dense_replace": 3,
      "hidden_act": "silu", "hidden_size": 7168, "initializer_range": 0.02, "intermediate_size": 18432,
      "kv_lora_rank": 512, "max_position_embeddings": 163840, "model_type": "deepseek_v3",
      "moe_intermediate_size": 2048, "moe_layer_freq": 1, "n_group": 8, "n_routed_experts": 256,
      "n_shared_experts": 1, "norm_topk_prob": true, "num_attention_heads": 128,
      "num_experts_per_tok": 8, "num_hidden_layers": 61, "num_key_value_heads": 128,
      "num_nextn_predict_layers": 1, "pretraining_tp": 1, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
      "qk_rope_head_dim": 64, "quantization_config": {"fmt": "e4m3"}, "rms_norm_eps": 1e-06,
      "rope_scaling": {"beta_fast": 32}, "rope_theta": 10000, "routed_scaling_factor": 2.5,
      "scoring_func": "sigmoid", "seq_aux": true, "tie_word_embeddings": false, "topk_group": 4,
      "topk_method": "noaux_tc", "torch_dtype": "bfloat16", "use_cache": true, "v_head_dim": 128,
      "vocab_size": 129280})"),
            "");
  EXPECT_EQ(error_of(R"({"architectures": ["GptOssForCausalLM"], "attention_bias": true,
      "attention_dropout": 0.0, "eos_token_id": 200002, "experts_per_token": 4, "head_dim": 64,
      "hidden_act": "silu", "hidden_size": 2880, "initial_context_length": 4096,
      "initializer_range": 0.02, "intermediate_size": 2880,
      "max_position_embeddings": 131072, "model_type": "gpt_oss", "num_attention_heads": 64,
      "num_experts_per_tok": 4, "num_hidden_layers": 24, "num_key_value_heads": 8,
      "num_local_experts": 32, "output_router_logits": false, "pad_token_id": 199999,
      "quantization_config": {}, "rms_norm_eps": 1e-05, "rope_scaling": {}, "rope_theta": 150000,
      "router_aux_loss_coef": 0.9, "sliding_window": 128, "swiglu_limit": 7.0,
      "tie_word_embeddings": false, "use_cache": true, "vocab_size": 201088})"),
            "");
  EXPECT_EQ(
      error_of(R"({"apply_residual_connection_post_layernorm": false, "attention_dropout": 0.0,
      "architectures": ["BloomForCausalLM"], "attention_softmax_in_fp32": true, "bias_dropout_fusion":
      true, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 3, "unk_token_id": 0,
      "hidden_dropout": 0.0, "initializer_range": 0.02, "layer_norm_epsilon": 1e-05,
      "masked_softmax_fusion": true, "model_type": "bloom", "n_embed": 14336, "n_layer": 70,
      "num_attention_heads": 112, "pretraining_tp": 4, "slow_but_exact": false, "seq_length": 2048,
      "skip_bias_add": true, "skip_bias_add_qkv": false, "use_cache": false, "vocab_size": 250880})"),
      "");
  EXPECT_EQ(error_of(R"({"architectures": ["GPTNeoXForCausalLM"], "attention_probs_dropout_prob": 0,
      "bos_token_id": 0, "eos_token_id": 0, "hidden_act": "gelu_fast", "hidden_dropout_prob": 0,
      "hidden_size": 6144, "initializer_range": 0.02, "intermediate_size": 24576,
      "layer_norm_eps": 1e-05, "max_position_embeddings": 2048, "model_type": "gpt_neox",
      "num_attention_heads": 64, "num_hidden_layers": 44, "rotary_emb_base": 10000, "rotary_pct": 0.25,
      "tie_word_embeddings": false, "torch_dtype": "float16", "use_cache": true, "vocab_size": 50432})"),
            "");
}

// One character wrong, left out, or two swapped, in any key that is not there otherwise.
TEST(Dialect, TypingMistakesAreRefused) {
  for (const char* key : {"hidden_siz", "hiden_size", "hidden-size", "num_hidden_layer",
                          "vocab_sise", "rope_tetha", "tie_word_embedding", "head_dims"}) {
    EXPECT_NE(error_of(std::string(R"({"model_type": "llama", ")") + key + "\": 64}"), "") << key;
  }
  EXPECT_EQ(error_of(R"({"model_type": "llama", "colour": "red"})"), "");
  // The key that it resembles is there: then it is another key, and means nothing here.
  EXPECT_EQ(error_of(R"({"model_type": "llama", "hidden_size": 64, "hidden_siz": 3})"), "");
}

TEST(Dialect, UnknownModelTypesAreErrorsThatValidateSkips) {
  const Result<JsonValue> root = parse_json(R"({"model_type": "gemma9"})", "m.json");
  JsonReport report("m.json");
  parse_transformer(root.value(), "inline", "", report);
  ASSERT_FALSE(report.ok());
  EXPECT_TRUE(report.error().unsupported);
}

TEST(Dialect, EveryShippedModelIsRead) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator("scenarios/models")) {
    if (entry.path().extension() == ".json") paths.push_back(entry.path().string());
  }
  std::ranges::sort(paths);
  EXPECT_GE(paths.size(), 20u);
  for (const std::string& path : paths) {
    const Result<Transformer> model = read_transformer(path);
    ASSERT_TRUE(model) << model.error().message;
    EXPECT_EQ(model.value().name, std::filesystem::path(path).stem().string());
  }
}

// A file of several models: the language model is read, and a note says that it alone is. Its
// layers have four norms of h and two of the head size: 62 (4 x 5376 + 2 x 128) of the parameters.
TEST(Dialect, OfAFileWithAVisionModelTheLanguageModelIsRead) {
  const Result<ModelFile> read = read_model_file("scenarios/models/gemma-3-27b.json");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read.value().model.model_type, "gemma3_text");
  EXPECT_EQ(read.value().model.layers, 62);
  ASSERT_EQ(read.value().use.notes.size(), 1u);
  EXPECT_NE(read.value().use.notes.front().find("model.vision_config"), std::string::npos);

  const Result<JsonValue> wrong =
      parse_json(R"({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text",
                     "hidden_size": "wide"}})",
                 "m.json");
  JsonReport report("m.json");
  parse_model_file(wrong.value(), "inline", "", report);
  ASSERT_FALSE(report.ok());
  EXPECT_NE(report.error().message.find("text_config.hidden_size"), std::string::npos)
      << report.error().message;
}

// Names of the files say how many parameters there are.
TEST(Dialect, ShippedModelsHaveTheirPublishedParameters) {
  const struct {
    const char* id;
    std::int64_t parameters;
  } rows[] = {{"gpt2-124m", 124'439'808},      {"gpt2-355m", 354'823'168},
              {"gpt2-774m", 774'030'080},      {"gpt2-1.5b", 1'557'611'200},
              {"llama2-7b", 6'738'415'616},    {"llama2-13b", 13'015'864'320},
              {"llama2-70b", 68'976'648'192},  {"llama3-8b", 8'030'261'248},
              {"llama3-70b", 70'553'706'496},  {"llama3.1-405b", 405'853'388'800},
              {"llama3.2-1b", 1'235'814'400},  {"llama3.2-3b", 3'212'749'824},
              {"mistral-7b", 7'241'732'096},   {"mixtral-8x7b", 46'702'792'704},
              {"qwen2-0.5b", 494'032'768},     {"qwen2-1.5b", 1'543'714'304},
              {"qwen2-7b", 7'615'616'512},     {"qwen2-72b", 72'706'203'648},
              {"llama3.1-8b", 8'030'261'248},  {"llama3.1-70b", 70'553'706'496},
              {"qwen2.5-32b", 32'763'876'352}, {"phi-4", 14'659'507'200},
              {"gemma-3-27b", 27'009'346'304}};
  for (const auto& row : rows) {
    const Result<Transformer> model =
        read_transformer(std::string("scenarios/models/") + row.id + ".json");
    ASSERT_TRUE(model) << row.id;
    EXPECT_EQ(total_parameters(model.value()), row.parameters) << row.id;
  }
}

}  // namespace
}  // namespace rehearse
