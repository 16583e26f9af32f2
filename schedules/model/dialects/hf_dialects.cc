// SPDX-License-Identifier: Apache-2.0
#include "schedules/model/dialects/hf_dialects.h"

#include <array>

#include "schedules/model/dialects/families.h"

namespace rehearse {
namespace {

using namespace dialects;  // a row names its two functions

constexpr std::array<Spelling, 7> kGpt2Spellings{{
    {"n_embd", "hidden_size"},
    {"n_layer", "num_hidden_layers"},
    {"n_head", "num_attention_heads"},
    {"n_inner", "intermediate_size"},
    {"n_positions", "max_position_embeddings"},
    {"activation_function", "hidden_act"},
    {"num_local_experts", "num_experts"},
}};
constexpr std::array<Spelling, 1> kNeoxSpellings{{{"hidden_dropout", "resid_pdrop"}}};
constexpr std::array<Spelling, 5> kBloomSpellings{{
    {"n_embed", "hidden_size"},
    {"n_layer", "num_hidden_layers"},
    {"n_head", "num_attention_heads"},
    {"seq_length", "max_position_embeddings"},
    {"hidden_dropout", "resid_pdrop"},
}};
constexpr std::array<Spelling, 4> kMptSpellings{{
    {"d_model", "hidden_size"},
    {"n_layers", "num_hidden_layers"},
    {"n_heads", "num_attention_heads"},
    {"max_seq_len", "max_position_embeddings"},
}};
constexpr std::array<Spelling, 1> kLocalSpellings{{{"num_local_experts", "num_experts"}}};
constexpr std::array<Spelling, 2> kDeepseekSpellings{{
    {"n_routed_experts", "num_experts"},
    {"num_local_experts", "num_experts"},
}};
constexpr std::array<Spelling, 3> kGlmSpellings{{
    {"n_routed_experts", "num_experts"},
    {"num_local_experts", "num_experts"},
    {"num_mtp_layers", "num_nextn_predict_layers"},
}};
constexpr std::array<Spelling, 2> kStarcoder2Spellings{{
    {"residual_dropout", "resid_pdrop"},
    {"embedding_dropout", "embd_pdrop"},
}};

constexpr std::array<Dialect, 23> kDialects{{
    {"gpt2", kGpt2Spellings, gpt2, finish_gpt2},
    {"llama", {}, llama, nullptr},
    {"mistral", {}, mistral, read_window},
    {"mixtral", kLocalSpellings, mixtral, finish_mixtral},
    {"qwen2", {}, qwen2, finish_qwen2},
    {"qwen2_moe", {}, qwen2_moe, finish_qwen2_moe},
    {"qwen3", {}, qwen3, finish_qwen2},
    {"qwen3_moe", kLocalSpellings, qwen3_moe, finish_qwen3_moe},
    {"gpt_neox", kNeoxSpellings, gpt_neox, finish_gpt_neox},
    {"bloom", kBloomSpellings, bloom, finish_bloom},
    {"mpt", kMptSpellings, mpt, finish_mpt},
    // No published DeepSeek model has another activation than SiLU: "gelu" is how measured cases
    // of Megatron-LM say its two-matrix MLP (its latent attention without --swiglu).
    {"deepseek_v2", kDeepseekSpellings, deepseek_v2, finish_deepseek_v2, true},
    {"deepseek_v3", kGlmSpellings, deepseek_v3, finish_deepseek_v3, true},
    {"gpt_oss", kLocalSpellings, gpt_oss, finish_gpt_oss},
    {"olmoe", kLocalSpellings, olmoe, finish_olmoe},
    {"glm4_moe", kGlmSpellings, glm4_moe, finish_glm4_moe},
    {"llama4_text", kLocalSpellings, llama4_text, finish_llama4_text},
    {"gemma2", {}, gemma2, finish_gemma2},
    {"gemma3_text", {}, gemma3_text, finish_gemma3_text},
    {"phi3", {}, phi3, finish_phi3},
    {"olmo2", {}, olmo2, nullptr},
    {"glm4", {}, glm4, finish_glm4},
    {"starcoder2", kStarcoder2Spellings, starcoder2, finish_starcoder2},
}};

}  // namespace

std::span<const Dialect> config_dialects() {
  return kDialects;
}

}  // namespace rehearse
