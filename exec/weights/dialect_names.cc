// SPDX-License-Identifier: Apache-2.0
#include "exec/weights/dialect_names.h"

#include <span>

namespace rehearse::exec {
namespace {

using P = ParameterRole;

struct Word {
  P role{};
  std::string_view stem;
};

constexpr Word kGpt2[] = {
    {P::Table, "wte"},
    {P::Positions, "wpe"},
    {P::Norm1, "ln_1"},
    {P::Qkv, "attn.c_attn"},
    {P::Projection, "attn.c_proj"},
    {P::Norm2, "ln_2"},
    {P::Up, "mlp.c_fc"},
    {P::Down, "mlp.c_proj"},
    {P::FinalNorm, "ln_f"},
    {P::Head, "lm_head"},
    // Our own words: transformers has no GPT-2 with experts.
    {P::Router, "mlp.router"},
    {P::ExpertUp, "mlp.experts.c_fc"},
    {P::ExpertDown, "mlp.experts.c_proj"},
    {P::SharedUp, "mlp.shared_expert.c_fc"},
    {P::SharedDown, "mlp.shared_expert.c_proj"},
};
constexpr Word kNeox[] = {
    {P::Table, "gpt_neox.embed_in"},
    {P::Norm1, "input_layernorm"},
    {P::Qkv, "attention.query_key_value"},
    {P::Projection, "attention.dense"},
    {P::Norm2, "post_attention_layernorm"},
    {P::Up, "mlp.dense_h_to_4h"},
    {P::Down, "mlp.dense_4h_to_h"},
    {P::FinalNorm, "gpt_neox.final_layer_norm"},
    {P::Head, "embed_out"},
};
constexpr Word kBloom[] = {
    {P::Table, "word_embeddings"},
    {P::EmbeddingNorm, "word_embeddings_layernorm"},
    {P::Norm1, "input_layernorm"},
    {P::Qkv, "self_attention.query_key_value"},
    {P::Projection, "self_attention.dense"},
    {P::Norm2, "post_attention_layernorm"},
    {P::Up, "mlp.dense_h_to_4h"},
    {P::Down, "mlp.dense_4h_to_h"},
    {P::FinalNorm, "ln_f"},
    {P::Head, "lm_head"},
};
constexpr Word kMpt[] = {
    {P::Table, "transformer.wte"}, {P::Norm1, "norm_1"},
    {P::Qkv, "attn.Wqkv"},         {P::Projection, "attn.out_proj"},
    {P::Norm2, "norm_2"},          {P::Up, "ffn.up_proj"},
    {P::Down, "ffn.down_proj"},    {P::FinalNorm, "transformer.norm_f"},
    {P::Head, "lm_head"},
};
// What differs from Llama's words, which come last.
constexpr Word kStarcoder2[] = {{P::Up, "mlp.c_fc"}, {P::Down, "mlp.c_proj"}};
constexpr Word kArcee[] = {{P::Up, "mlp.up_proj"}};
constexpr Word kGemma[] = {
    {P::OutNorm1, "post_attention_layernorm"},
    {P::Norm2, "pre_feedforward_layernorm"},
    {P::OutNorm2, "post_feedforward_layernorm"},
};
constexpr Word kOlmo2[] = {
    {P::OutNorm1, "post_attention_layernorm"},
    {P::OutNorm2, "post_feedforward_layernorm"},
};
constexpr Word kGlm4[] = {
    {P::OutNorm1, "post_self_attn_layernorm"},
    {P::OutNorm2, "post_mlp_layernorm"},
};
constexpr Word kLlama[] = {
    {P::Table, "model.embed_tokens"},
    {P::Norm1, "input_layernorm"},
    {P::Qkv, "self_attn.qkv_proj"},
    {P::QueryNorm, "self_attn.q_norm"},
    {P::KeyNorm, "self_attn.k_norm"},
    {P::Projection, "self_attn.o_proj"},
    {P::Norm2, "post_attention_layernorm"},
    {P::Up, "mlp.gate_up_proj"},
    {P::Down, "mlp.down_proj"},
    {P::FinalNorm, "model.norm"},
    {P::Head, "lm_head"},
    // All experts as one tensor, as we have them; files have each by itself.
    {P::Router, "mlp.gate"},
    {P::ExpertUp, "mlp.experts.gate_up_proj"},
    {P::ExpertDown, "mlp.experts.down_proj"},
    {P::SharedUp, "mlp.shared_expert.gate_up_proj"},
    {P::SharedDown, "mlp.shared_expert.down_proj"},
    {P::SharedGate, "mlp.shared_expert_gate"},
};
constexpr Word kSharedExperts[] = {
    {P::SharedUp, "mlp.shared_experts.gate_up_proj"},
    {P::SharedDown, "mlp.shared_experts.down_proj"},
};
constexpr Word kDeepseek[] = {
    {P::Query, "self_attn.q_proj"},
    {P::QueryDown, "self_attn.q_a_proj"},
    {P::QueryDownNorm, "self_attn.q_a_layernorm"},
    {P::QueryUp, "self_attn.q_b_proj"},
    {P::KeyValueDown, "self_attn.kv_a_proj_with_mqa"},
    {P::KeyValueDownNorm, "self_attn.kv_a_layernorm"},
    {P::KeyValueUp, "self_attn.kv_b_proj"},
    {P::SharedUp, "mlp.shared_experts.gate_up_proj"},
    {P::SharedDown, "mlp.shared_experts.down_proj"},
};
constexpr Word kMixtral[] = {{P::Router, "block_sparse_moe.gate"}};
constexpr Word kGptOss[] = {{P::Router, "mlp.router"}, {P::Sinks, "self_attn.sinks"}};
constexpr Word kLlama4[] = {
    {P::Up, "feed_forward.gate_up_proj"},
    {P::Down, "feed_forward.down_proj"},
    {P::Router, "feed_forward.router"},
    {P::ExpertUp, "feed_forward.experts.gate_up_proj"},
    {P::ExpertDown, "feed_forward.experts.down_proj"},
    {P::SharedUp, "feed_forward.shared_expert.gate_up_proj"},
    {P::SharedDown, "feed_forward.shared_expert.down_proj"},
};

struct Row {
  std::string_view model_type;
  DialectNames names;
  std::span<const Word> words;
  bool like_llama = true;  // what `words` lacks has Llama's
};
constexpr DialectNames kModel{.base = "model.", .layers = "model.layers."};
constexpr DialectNames with(QkvForm qkv, bool gate_apart) {
  DialectNames names = kModel;
  names.qkv = qkv;
  names.gate_apart = gate_apart;
  return names;
}
constexpr DialectNames kApart = with(QkvForm::Apart, true);
constexpr DialectNames kMixtralNames = [] {
  DialectNames names = kApart;
  names.experts = "block_sparse_moe.experts.";
  names.expert_gate = "w1";
  names.expert_up = "w3";
  names.expert_down = "w2";
  return names;
}();
constexpr DialectNames kGptOssNames = [] {
  DialectNames names = with(QkvForm::Apart, false);
  names.experts_form = ExpertsForm::Joined;
  return names;
}();
constexpr DialectNames kLlama4Names = [] {
  DialectNames names = kApart;
  names.experts_form = ExpertsForm::Joined;
  names.experts = "feed_forward.experts.";
  return names;
}();
constexpr Row kRows[] = {
    {"gpt2",
     {.base = "transformer.",
      .base_written = false,
      .layers = "h.",
      .conv1d = true,
      .expert_up = "c_fc",
      .expert_down = "c_proj"},
     kGpt2,
     false},
    {"gpt_neox",
     {.base = "gpt_neox.", .layers = "gpt_neox.layers.", .qkv = QkvForm::PerHead},
     kNeox,
     false},
    {"bloom",
     {.base = "transformer.", .base_written = false, .layers = "h.", .qkv = QkvForm::PerHead},
     kBloom,
     false},
    {"mpt", {.base = "transformer.", .layers = "transformer.blocks."}, kMpt, false},
    {"llama", kApart, {}},
    {"mistral", kApart, {}},
    {"qwen2", kApart, {}},
    {"qwen3", kApart, {}},
    {"gemma2", kApart, kGemma},
    {"gemma3_text", kApart, kGemma},
    {"olmo2", kApart, kOlmo2},
    {"glm4", with(QkvForm::Apart, false), kGlm4},
    {"phi3", kModel, {}},
    {"mixtral", kMixtralNames, kMixtral},
    {"qwen2_moe", kApart, {}},
    {"qwen3_moe", kApart, {}},
    {"olmoe", kApart, {}},
    {"deepseek_v2", kApart, kDeepseek},
    {"deepseek_v3", kApart, kDeepseek},
    {"glm4_moe", kApart, kSharedExperts},
    {"gpt_oss", kGptOssNames, kGptOss},
    {"llama4_text", kLlama4Names, kLlama4},
    {"starcoder2", with(QkvForm::Apart, false), kStarcoder2},
    // Model types of mappings that say how they are run.
    {"arcee", with(QkvForm::Apart, false), kArcee},
    {"dots1", kApart, kSharedExperts},
    {"glm4_moe_lite", kApart, kDeepseek},
    {"qwen3_5_text", kApart, {}},
    {"qwen3_next", kApart, {}},
    {"seed_oss", kApart, {}},
    {"smollm3", kApart, {}},
    {"solar_open", kApart, kSharedExperts},
    {"youtu", kApart, kDeepseek},
};

// Dialects without a row have Llama's words and our own layout: we alone read their files again.
constexpr Row kOthers{"", kModel, {}};
const Row& row_of(const Transformer& model) {
  for (const Row& row : kRows) {
    if (row.model_type == model.model_type) return row;
  }
  return kOthers;
}

std::string_view find(std::span<const Word> words, P role) {
  for (const Word& word : words) {
    if (word.role == role) return word.stem;
  }
  return {};
}

}  // namespace

DialectNames dialect_names(const Transformer& model) {
  return row_of(model).names;
}

std::string_view dialect_stem(const Transformer& model, ParameterRole role) {
  const Row& row = row_of(model);
  const std::string_view own = find(row.words, role);
  return own.empty() && row.like_llama ? find(kLlama, role) : own;
}

}  // namespace rehearse::exec
