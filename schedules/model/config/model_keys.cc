// SPDX-License-Identifier: Apache-2.0
#include "schedules/model/config/model_keys.h"

#include <array>

#include "schedules/model/config/rope_config.h"

namespace rehearse {
namespace {

constexpr double kMlpWidth = 1 << 24;
constexpr double kLayers = 1 << 12;
constexpr double kVocabulary = 1 << 27;
constexpr double kPositions = 1 << 30;
constexpr double kExperts = 1 << 14;

constexpr std::array<std::string_view, 14> kActivations{
    "gelu",          "gelu_new", "gelu_fast", "gelu_python", "gelu_pytorch_tanh",
    "gelu_accurate", "relu",     "relu2",     "quick_gelu",  "silu",
    "swish",         "swiglu",   "geglu",     "tanh"};
constexpr std::array<std::string_view, 5> kPositionKinds{"absolute", "learned", "rope", "rotary",
                                                         "alibi"};

constexpr KeySpec count(std::string_view name, double max, double min = 1) {
  return {.name = name, .types = kInteger, .min = min, .max = max};
}
constexpr KeySpec flag(std::string_view name) {
  return {.name = name, .types = kBool};
}
constexpr KeySpec positive(std::string_view name) {
  return {.name = name, .types = kNumber, .min = 0, .above_min = true};
}
constexpr KeySpec share(std::string_view name) {
  return {.name = name, .types = kNumber, .min = 0, .max = 1};
}
constexpr KeySpec rope(std::string_view name) {
  return {.name = name, .types = kObject, .members = &kRopeTable};
}

constexpr std::array kModelKeys{
    KeySpec{.name = "model_type",
            .types = kString,
            .required = true,
            .about = "Hugging Face's name of the dialect"},
    count("hidden_size", kMaxWidth),
    count("n_embd", kMaxWidth),
    count("n_embed", kMaxWidth),
    count("d_model", kMaxWidth),
    count("num_hidden_layers", kLayers),
    count("n_layer", kLayers),
    count("n_layers", kLayers),
    count("num_attention_heads", kMaxWidth),
    count("n_head", kMaxWidth),
    count("n_heads", kMaxWidth),
    count("num_key_value_heads", kMaxWidth),
    count("head_dim", kMaxWidth),
    count("intermediate_size", kMlpWidth),
    count("n_inner", kMlpWidth),
    count("expansion_ratio", 64),
    count("vocab_size", kVocabulary),
    count("max_position_embeddings", kPositions),
    count("n_positions", kPositions),
    count("seq_length", kPositions),
    count("max_seq_len", kPositions),
    KeySpec{.name = "hidden_act", .types = kString, .choices = kActivations},
    KeySpec{.name = "activation_function", .types = kString, .choices = kActivations},
    KeySpec{.name = "position_embedding_type", .types = kString, .choices = kPositionKinds},
    KeySpec{.name = "hidden_activation", .types = kString, .choices = kActivations},
    share("resid_pdrop"),
    share("attn_pdrop"),
    share("embd_pdrop"),
    share("emb_pdrop"),
    share("attention_dropout"),
    share("hidden_dropout"),
    share("residual_dropout"),
    share("embedding_dropout"),
    flag("use_bias"),
    positive("norm_epsilon"),
    positive("query_pre_attn_scalar"),
    positive("attn_logit_softcapping"),
    positive("final_logit_softcapping"),
    positive("rope_local_base_freq"),
    count("original_max_position_embeddings", kPositions),
    count("sliding_window_pattern", kLayers),
    flag("tie_word_embeddings"),
    flag("attention_bias"),
    flag("mlp_bias"),
    flag("no_bias"),
    flag("use_parallel_residual"),
    flag("learned_pos_emb"),
    flag("use_sliding_window"),
    flag("scale_attn_weights"),
    flag("scale_attn_by_inverse_layer_idx"),
    flag("apply_residual_connection_post_layernorm"),
    flag("qkv_bias"),
    flag("output_router_logits"),
    flag("norm_topk_prob"),
    flag("rope_interleave"),
    KeySpec{.name = "layer_types", .types = kArray, .item_types = kString},
    KeySpec{.name = "initializer_range", .types = kNumber, .min = 0, .max = 1e3},
    rope("rope_parameters"),
    rope("rope_scaling"),
    KeySpec{
        .name = "partial_rotary_factor", .types = kNumber, .min = 0, .max = 1, .above_min = true},
    KeySpec{.name = "rotary_pct", .types = kNumber, .min = 0, .max = 1, .above_min = true},
    positive("rope_theta"),
    positive("rotary_emb_base"),
    positive("rms_norm_eps"),
    positive("layer_norm_eps"),
    positive("layer_norm_epsilon"),
    count("sliding_window", kPositions, 0),
    count("max_window_layers", kLayers, 0),
    KeySpec{.name = "attn_config", .types = kObject},
    count("num_experts", kExperts, 0),
    count("num_local_experts", kExperts, 0),
    count("n_routed_experts", kExperts, 0),
    count("num_experts_per_tok", kExperts, 0),
    count("experts_per_token", kExperts, 0),
    count("n_shared_experts", kExperts, 0),
    count("moe_intermediate_size", kMlpWidth),
    count("shared_expert_intermediate_size", kMlpWidth, 0),
    count("first_k_dense_replace", kLayers, 0),
    count("moe_layer_freq", kLayers),
    count("n_group", kExperts),
    count("topk_group", kExperts),
    positive("routed_scaling_factor"),
    KeySpec{.name = "topk_method", .types = kString},
    KeySpec{.name = "scoring_func", .types = kString},
    KeySpec{.name = "aux_loss_alpha", .types = kNumber, .min = 0, .max = 1e3},
    flag("seq_aux"),
    count("num_nextn_predict_layers", kLayers, 0),
    count("num_mtp_layers", kLayers, 0),
    count("interleave_moe_layer_step", kLayers),
    count("intermediate_size_mlp", kMlpWidth),
    KeySpec{
        .name = "moe_layers", .types = kArray, .min = 0, .max = kLayers, .item_types = kInteger},
    flag("use_qk_norm"),
    positive("swiglu_alpha"),
    positive("swiglu_limit"),
    KeySpec{.name = "no_rope_layers", .types = kArray, .min = 0, .max = 1, .item_types = kInteger},
    count("no_rope_layer_interval", kLayers),
    count("attention_chunk_size", kPositions),
    flag("attn_temperature_tuning"),
    KeySpec{.name = "attn_scale", .types = kNumber},
    positive("floor_scale"),
    count("decoder_sparse_step", kLayers),
    KeySpec{.name = "mlp_only_layers",
            .types = kArray,
            .min = 0,
            .max = kLayers,
            .item_types = kInteger},
    count("kv_lora_rank", kMaxWidth),
    count("q_lora_rank", kMaxWidth),
    count("qk_nope_head_dim", kMaxWidth),
    count("qk_rope_head_dim", kMaxWidth, 0),
    count("v_head_dim", kMaxWidth),
};
constexpr KeyTable kTable{
    .title = "Model: a Hugging Face config.json", .keys = kModelKeys, .open = true};

}  // namespace

const KeyTable& model_key_table() {
  return kTable;
}

}  // namespace rehearse
