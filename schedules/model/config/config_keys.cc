// SPDX-License-Identifier: Apache-2.0
#include "schedules/model/config/config_keys.h"

#include <array>

namespace rehearse {
namespace {

constexpr KeyUse X = KeyUse::Executed, Ours = KeyUse::Ours, Said = KeyUse::Said, P = KeyUse::Priced,
                 None = KeyUse::NoMeaning, Refused = KeyUse::Refused;

constexpr std::string_view kRope =
    "llama mistral mixtral qwen2 qwen2_moe qwen3 qwen3_moe deepseek_v2 deepseek_v3 gpt_oss olmoe "
    "glm4_moe llama4_text gemma2 gemma3_text phi3 olmo2 glm4 starcoder2";
constexpr std::string_view kRopeOfParameters =  // which alone say what positions it was trained on
    "llama mistral mixtral qwen2 qwen2_moe qwen3 qwen3_moe deepseek_v2 deepseek_v3 gpt_oss olmoe "
    "glm4_moe llama4_text gemma2 gemma3_text olmo2 glm4 starcoder2 gpt_neox";
constexpr std::string_view kRmsNorm =
    "llama mistral mixtral qwen2 qwen2_moe qwen3 qwen3_moe deepseek_v2 deepseek_v3 gpt_oss olmoe "
    "glm4_moe llama4_text gemma2 gemma3_text phi3 olmo2 glm4";
constexpr std::string_view kOneRope =  // for all layers
    "llama mistral mixtral qwen2 qwen2_moe qwen3 qwen3_moe deepseek_v2 deepseek_v3 gpt_oss olmoe "
    "glm4_moe llama4_text gemma2 phi3 olmo2 glm4 starcoder2";
constexpr std::string_view kGemma = "gemma2 gemma3_text";
constexpr std::string_view kMoe =
    "mixtral qwen2_moe qwen3_moe deepseek_v2 deepseek_v3 gpt_oss olmoe glm4_moe llama4_text";
constexpr std::string_view kDeepseek = "deepseek_v2 deepseek_v3";
constexpr std::string_view kGrouped = "deepseek_v2 deepseek_v3 glm4_moe";

// One function under several names. gelu_fast writes sqrt(2/pi) with ten digits: 4e-12 of it.
constexpr std::string_view kTanhGelu =
    R"(null | "gelu_new" | "gelu_pytorch_tanh" | "gelu_fast" | "gelu_accurate" | "swiglu")";
constexpr std::string_view kSilu = R"(null | "silu" | "swish" | "swiglu")";
// What torch knows of the words for activations; "geglu" is another program's.
constexpr std::string_view kActivation =
    R"(null | "gelu" | "gelu_python" | "gelu_new" | "gelu_pytorch_tanh" | "gelu_fast" )"
    R"(| "gelu_accurate" | "relu" | "relu2" | "quick_gelu" | "silu" | "swish" | "swiglu" | "tanh")";
constexpr std::string_view kLikeDefault =
    "geglu is priced as a gated MLP of GELU, another word as the class's own activation";
constexpr std::string_view kNotPriced = "it is not priced";
constexpr std::string_view kPredictionLayers =
    "trained without prediction layers, as transformers trains; their tensors are not read from a "
    "file of weights, nor written (frameworks' are priced, on the last stage or where a layout has "
    "m)";
constexpr std::string_view kRouterLoss =
    "trained without, as transformers trains; train.router_auxiliary_loss with "
    "train.router_load_balancing \"seq_aux_loss\" is this loss";
constexpr std::string_view kFull = "full attention is priced in every layer";

constexpr ConfigKey kKeys[]{
    // The dialect as a whole.
    {"gpt2 gpt_neox bloom mpt llama mistral qwen2 qwen3 gemma2 gemma3_text phi3 olmo2 glm4 "
     "starcoder2 mixtral qwen2_moe qwen3_moe olmoe glm4_moe gpt_oss llama4_text deepseek_v2 "
     "deepseek_v3",
     "model_type", X},

    // Sizes.
    {"*",
     "hidden_size num_hidden_layers num_attention_heads vocab_size max_position_embeddings "
     "tie_word_embeddings",
     X},
    {"gpt2", "n_embd n_layer n_head n_inner n_positions", X},
    {"bloom", "n_embed n_layer n_head seq_length", X},
    {"mpt", "d_model n_layers n_heads max_seq_len", X},
    {"mpt", "expansion_ratio", Ours, "null | 4", "",
     "taken as it says; the MLP of transformers is always 4 d_model wide"},
    {kRope, "intermediate_size", X},
    {kDeepseek, "num_key_value_heads", P, "@heads", "2",
     "every head has keys and values of its own"},
    {"llama mistral mixtral qwen2 qwen2_moe qwen3 qwen3_moe gpt_oss olmoe glm4_moe llama4_text "
     "gemma2 gemma3_text phi3 olmo2 glm4 starcoder2",
     "num_key_value_heads", X},
    {kRmsNorm, "rms_norm_eps", X},
    {"starcoder2", "norm_epsilon", X},
    {"gpt_neox", "intermediate_size layer_norm_eps", X},
    {"gpt2 bloom mpt", "layer_norm_epsilon", X},
    {"gpt2 bloom mpt", "intermediate_size", Ours, "@four_times_hidden"},
    {"gpt2 gpt_neox bloom mpt", "num_key_value_heads", Ours, "@heads"},
    {kDeepseek, "head_dim", None, "", "", "what rotates of a head; qk_rope_head_dim says it"},
    {"llama mistral mixtral qwen2 qwen2_moe qwen3 qwen3_moe gpt_oss glm4_moe llama4_text "
     "gemma2 gemma3_text phi3 olmo2 glm4 starcoder2",
     "head_dim", X},
    {"olmoe", "head_dim", Ours, "@head_dim", "",
     "taken as it says, norms over all heads too; those of transformers are as wide as "
     "hidden_size"},
    {"gpt2 gpt_neox bloom mpt", "head_dim", Ours, "@head_dim"},
    {"*", "initializer_range", X},

    // Biases.
    {"llama qwen3 qwen3_moe gpt_neox gpt_oss deepseek_v2 deepseek_v3 olmoe glm4_moe llama4_text "
     "gemma2 gemma3_text olmo2 glm4",
     "attention_bias", X},
    {"starcoder2", "use_bias", X},
    {"gpt2 bloom", "attention_bias", Ours, "true"},
    {"mistral mixtral mpt phi3", "attention_bias", Ours, "false"},
    {"qwen2 qwen2_moe", "attention_bias", Ours, ""},
    {"qwen2_moe", "qkv_bias", X},
    {"llama", "mlp_bias", X},
    {"deepseek_v2", "mlp_bias", P, "@bias", "true", "shared experts are priced without biases"},
    {"gpt2 gpt_neox bloom", "mlp_bias", Ours, "true"},
    {"*", "mlp_bias", Ours, "false"},
    {"mpt", "no_bias", P, "null | true", "false", "what the file says is priced"},

    // Activations.
    {"gpt2", "activation_function", P, kActivation, R"("geglu")", kLikeDefault},
    {"gpt_neox starcoder2", "hidden_act", P, kActivation, R"("geglu")", kLikeDefault},
    {"gpt2", "hidden_act", P, kActivation, R"("geglu")", kLikeDefault, kTanhGelu},
    {"bloom", "hidden_act", P, kTanhGelu, R"("relu")",
     "transformers has GELU by tanh alone here; what the file says is priced"},
    {kGemma, "hidden_activation", P, kActivation, R"("geglu")", kLikeDefault},
    {kGemma, "hidden_act", None, "", "", "hidden_activation says it"},
    {"mpt", "hidden_act", P, R"(null | "gelu")", R"("relu")",
     "transformers has GELU alone here; what the file says is priced"},
    {"gpt_oss", "hidden_act", None, "", "", "the class has its clamped unit alone"},
    {kDeepseek, "hidden_act", P, kSilu, R"("gelu")",
     "gelu and relu are priced as an MLP of two matrices"},
    {"llama mistral mixtral qwen2 qwen2_moe qwen3 qwen3_moe olmoe glm4_moe llama4_text phi3 olmo2 "
     "glm4",
     "hidden_act", P, kActivation, R"("geglu")", kLikeDefault},
    {"gpt_oss", "swiglu_alpha swiglu_limit", X},

    // Positions.
    {kRope, "rope_theta", X},
    {"gemma3_text", "rope_parameters", P, "@rope", R"({"full_attention": {"rope_type": "mrope"}})",
     "it is priced as plain rotary positions"},
    {"gemma3_text", "rope_scaling", P, "@rope", R"({"rope_type": "mrope"})",
     "it is priced as plain rotary positions"},
    {kOneRope, "rope_parameters rope_scaling", P, "@rope", R"({"rope_type": "mrope"})",
     "it is priced as plain rotary positions"},
    {"phi3 glm4 glm4_moe", "partial_rotary_factor", X},
    {"phi3", "original_max_position_embeddings", X},
    {kRopeOfParameters, "original_max_position_embeddings", P, "null", "4096",
     "what rope_parameters says of it is priced"},
    {"*", "partial_rotary_factor", P, "null | 1", "0.5", "what the file says is priced"},
    {"gpt_neox", "rotary_emb_base rotary_pct", X},
    {"gpt_neox", "rope_theta", None, "", "", "rotary_emb_base or rope_parameters say it"},
    {"gpt_neox", "rope_parameters rope_scaling", P, "@rope", R"({"rope_type": "mrope"})",
     "it is priced as plain rotary positions"},
    {"gemma3_text", "rope_local_base_freq", X},
    {"gpt2", "position_embedding_type", P, R"(null | "absolute" | "learned")", R"("rope")",
     "transformers has learned positions alone here; what the file says is priced"},
    {"bloom mpt", "position_embedding_type", P, R"(null | "alibi")", R"("rope")",
     "transformers has ALiBi alone here; what the file says is priced"},
    {"*", "position_embedding_type", P, R"(null | "rope" | "rotary")", R"("learned")",
     "transformers has rotary positions alone here; what the file says is priced"},

    // Attention.
    {"gpt2", "scale_attn_weights scale_attn_by_inverse_layer_idx", X},
    {"gpt2", "reorder_and_upcast_attn", None, "", "",
     "the same products in another order and type"},
    {"gpt_neox", "use_parallel_residual", X},
    {"mistral mixtral phi3 starcoder2", "sliding_window", X},
    {"qwen2 qwen2_moe qwen3", "use_sliding_window sliding_window max_window_layers layer_types", X},
    {"qwen3_moe", "use_sliding_window sliding_window", X},
    {"qwen3_moe", "max_window_layers layer_types", None, "", "",
     "the class has one mask for all layers"},
    {"gpt_oss", "sliding_window layer_types", X},
    {kGemma, "sliding_window layer_types query_pre_attn_scalar final_logit_softcapping", X},
    {"gemma2", "attn_logit_softcapping", X},
    {"gemma3_text", "sliding_window_pattern", X},
    {"gemma3_text", "_sliding_window_pattern", None, "", "", "layer_types says it"},
    {"*", "layer_types", P, "@full_attention", R"(["sliding_attention"])", kFull},
    {"bloom", "apply_residual_connection_post_layernorm", X},
    {"gemma3_text", "attn_logit_softcapping", None, "", "",
     "the class reads it, and does nothing with it"},
    {"mpt", "attn_config", P, "", R"({"qk_ln": true})", "of it alibi and kv_n_heads are priced"},
    {"mpt", "learned_pos_emb", P, "null | true", "false",
     "it is read where attn_config.alibi is false"},
    {"mpt", "logit_scale", P, "null", "2", kNotPriced},
    {"mpt", "norm_type", P, "", R"("rmsnorm")", "it is priced as LayerNorm"},
    {"mpt", "embedding_fraction", None, "", "", "gradients of another framework"},
    {kDeepseek, "q_lora_rank kv_lora_rank qk_nope_head_dim qk_rope_head_dim v_head_dim", X},
    {kDeepseek, "qk_head_dim", None, "", "", "a sum of other keys"},
    {"deepseek_v3", "rope_interleave", X},
    {"deepseek_v2", "rope_interleave", None, "", "", "the class always turns neighbouring columns"},

    // Experts.
    {"gpt2",
     "num_local_experts num_experts num_experts_per_tok moe_intermediate_size "
     "shared_expert_intermediate_size",
     X, "", "", "a GPT with experts without biases in every layer; transformers has none"},
    {"mixtral", "num_local_experts num_experts num_experts_per_tok", X},
    {"gpt_oss", "num_local_experts num_experts num_experts_per_tok", X},
    {"llama4_text", "num_local_experts num_experts_per_tok", X},
    {"llama4_text", "num_experts", Ours, ""},
    {"deepseek_v2", "num_experts num_local_experts", Ours, ""},
    {"olmoe", "num_experts num_local_experts num_experts_per_tok norm_topk_prob", X},
    {"qwen2_moe",
     "num_experts num_experts_per_tok moe_intermediate_size shared_expert_intermediate_size "
     "decoder_sparse_step mlp_only_layers norm_topk_prob",
     X},
    {"qwen3_moe",
     "num_experts num_local_experts num_experts_per_tok moe_intermediate_size decoder_sparse_step "
     "mlp_only_layers norm_topk_prob",
     X},
    {kGrouped,
     "n_routed_experts num_experts_per_tok moe_intermediate_size n_shared_experts "
     "first_k_dense_replace routed_scaling_factor n_group topk_group",
     X},
    {"deepseek_v3 glm4_moe", "num_experts num_local_experts", X},
    {"gpt_oss", "experts_per_token", P, "@experts_per_token", "3",
     "num_experts_per_tok is priced, which alone transformers reads"},
    {"llama4_text", "interleave_moe_layer_step intermediate_size_mlp moe_layers", X},
    {kDeepseek, "moe_layer_freq", P, "null | 1", "2",
     "transformers has no such key; what the file says is priced"},
    {"deepseek_v3 glm4_moe", "norm_topk_prob", X},
    {"deepseek_v2", "norm_topk_prob", P, "null | false", "true",
     "transformers never divides by the sum here"},
    {"deepseek_v2", "topk_method", P, R"(null | "greedy" | "group_limited_greedy")",
     R"("noaux_tc")", "groups by their largest score are priced"},
    {"deepseek_v3", "topk_method", P, R"(null | "noaux_tc")", R"("greedy")",
     "groups by their two largest scores are priced"},
    {"deepseek_v2", "scoring_func", P, R"(null | "softmax")", R"("sigmoid")",
     "a softmax is priced"},
    {"deepseek_v3", "scoring_func", P, R"(null | "sigmoid")", R"("softmax")",
     "sigmoids are priced"},
    {kDeepseek, "aux_loss_alpha", Said, "null | 0", "", kRouterLoss},
    {kDeepseek, "seq_aux", None, "", "", "of what aux_loss_alpha balances"},
    {kDeepseek, "ep_size", None, "", "", "a plan's key; plan.expert_parallel says it here"},
    {kMoe, "output_router_logits", P, "null | false", "true",
     "its loss, one over the choices of all layers together, is not priced; "
     "train.router_auxiliary_loss is one of each layer"},
    {kMoe, "router_aux_loss_coef", None, "", "",
     "weighs a loss that output_router_logits asks for"},
    {"mixtral llama4_text", "router_jitter_noise", P, "null | 0", "0.1", kNotPriced},
    {"*", "num_experts num_local_experts n_routed_experts", P, "null | 0", "4",
     "the dialect has no experts: priced as dense"},
    {kGrouped, "num_nextn_predict_layers", Said, "null | 0", "", kPredictionLayers},
    {"*", "num_nextn_predict_layers", P, "null | 0", "1", "prediction layers are not priced"},
    {"glm4_moe", "use_qk_norm", X},
    {"llama4_text",
     "use_qk_norm no_rope_layers no_rope_layer_interval attention_chunk_size layer_types "
     "attn_temperature_tuning attn_scale floor_scale",
     X},

    // Words of other architectures, that files of these dialects borrow.
    {"*", "quantization_config", P, "null | {}", R"({"quant_method": "fp8"})",
     "it is priced unquantised"},
    {"*", "attn_logit_softcapping final_logit_softcapping logit_softcapping", P, "null", "30",
     kNotPriced},
    {"*", "query_pre_attn_scalar attention_multiplier softmax_scale", P, "null", "16",
     "it costs nothing"},
    {"*", "logit_scale logits_scaling embedding_multiplier residual_multiplier", P, "null | 1", "2",
     kNotPriced},
    {"*", "qk_norm use_qk_norm qk_layernorm qk_ln", P, "null | false", "true", kNotPriced},
    {"*", "clip_qkv", P, "null", "8", kNotPriced},
    {"*", "alibi parallel_attn rope_interleave use_bidirectional_attention", P, "null | false",
     "true", kNotPriced},
    {"*", "is_causal", P, "true", "false", "causal attention is priced"},
    {"*", "loss_type", P, R"(null | "ForCausalLM" | "ForCausalLMLoss")", R"("ForMaskedLM")",
     "the loss of a causal language model is priced"},

    // Dropout, where the file says it: what it leaves out is not dropped, whatever the class's
    // default.
    {"gpt2", "resid_pdrop attn_pdrop embd_pdrop", X},
    {"gpt_neox bloom", "hidden_dropout attention_dropout", X},
    {"phi3", "resid_pdrop attention_dropout", X},
    {"phi3", "embd_pdrop", None, "", "", "the class reads it, and does nothing with it"},
    {"starcoder2", "residual_dropout embedding_dropout attention_dropout", X},
    {"llama mistral qwen2 qwen3 gemma2 gemma3_text olmo2 glm4 glm4_moe deepseek_v2 deepseek_v3",
     "attention_dropout", X},
    {"*",
     "resid_pdrop attn_pdrop embd_pdrop emb_pdrop attention_dropout hidden_dropout "
     "hidden_dropout_prob attention_probs_dropout_prob residual_dropout embedding_dropout",
     P, "null | 0", "0.1", "the rate of the residual is priced"},

    {"gpt2 gpt_neox bloom mpt", "pad_token_id", None, "", "", "token ids"},
    {"*", "pad_token_id", X},

    // Refused by `simulate` too.
    {"*", "add_cross_attention is_encoder_decoder", Refused, "null | false", "true",
     "no dialect here has an encoder"},
    {"*", "pruned_heads", Refused, "null | {}", R"({"0": [1]})", "heads that differ by layer"},
    {"*", "per_layer_config", Refused, "null | {}", R"({"0": {"intermediate_size": 64}})",
     "sizes that differ by layer"},

    // Without meaning for mathematics and cost.
    {"*",
     "$schema _name_or_path name_or_path transformers_version architectures auto_map _commit_hash "
     "tokenizer_class prefix",
     None, "", "", "who wrote the file, and for which program"},
    {"*", "torch_dtype dtype use_bfloat16", None, "", "", "plan.precision says it"},
    {"*",
     "_attn_implementation attn_implementation _attn_implementation_autoset "
     "_experts_implementation experts_implementation",
     None, "", "", "which kernel; plan.attention_kernel says it"},
    {"*",
     "bos_token_id eos_token_id sep_token_id decoder_start_token_id unk_token_id "
     "mask_token_id image_token_id",
     None, "", "", "token ids"},
    {"*",
     "use_cache cache_implementation output_attentions output_hidden_states return_dict "
     "torchscript keys_to_ignore_at_inference tie_last_hidden_states",
     None, "", "", "what a forward returns and keeps for generation"},
    {"*",
     "max_length min_length do_sample early_stopping num_beams num_beam_groups "
     "diversity_penalty temperature top_k top_p typical_p repetition_penalty length_penalty "
     "no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids num_return_sequences "
     "output_scores return_dict_in_generate forced_bos_token_id forced_eos_token_id "
     "remove_invalid_values exponential_decay_length_penalty suppress_tokens "
     "begin_suppress_tokens task_specific_params generation_config encoder_repetition_penalty "
     "epsilon_cutoff eta_cutoff num_assistant_tokens num_assistant_tokens_schedule "
     "assistant_confidence_threshold assistant_lookbehind target_lookbehind",
     None, "", "", "text generation"},
    {"*",
     "id2label label2id num_labels problem_type finetuning_task classifier_dropout "
     "summary_type summary_use_proj summary_activation summary_proj_to_labels "
     "summary_first_dropout tf_legacy_loss",
     None, "", "", "heads for classification"},
    {"*", "is_decoder tie_encoder_decoder cross_attention_hidden_size", None, "", "",
     "pairs of encoder and decoder"},
    {"*", "chunk_size_feed_forward pretraining_tp slow_but_exact", None, "", "",
     "the same products in pieces"},
    {"gpt2", "n_ctx", None, "", "", "n_positions says it"},
    {"gpt_oss", "initial_context_length", None, "", "", "rope_scaling says it"},
    {"bloom",
     "attention_softmax_in_fp32 masked_softmax_fusion bias_dropout_fusion skip_bias_add "
     "skip_bias_add_qkv",
     None, "", "", "kernels of the framework that trained it"},
    {"mpt", "init_device verbose", None, "", "", "where weights are made; how much is printed"},
    {"deepseek_v3 glm4_moe", "num_mtp_layers", Said, "null | 0", "", kPredictionLayers},
};

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    if (end > at) words.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

std::string code(std::string_view words) {
  std::string text;
  for (const std::string_view word : words_of(words)) {
    text += (text.empty() ? "`" : ", `") + std::string(word) + "`";
  }
  return text;
}

// What `runs` says, for people.
std::string performed(const ConfigKey& row) {
  if (row.use == KeyUse::Executed || row.use == KeyUse::Ours || row.use == KeyUse::NoMeaning) {
    return "all";
  }
  constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kRules{{
      {"@rope",
       "every `rope_type` but `mrope`; a share of a head (`partial_rotary_factor`) in gpt_neox, "
       "phi3, glm4 and glm4_moe alone"},
      {"@full_attention", "`full_attention` alone"},
      {"@heads", "`num_attention_heads`"},
      {"@experts_per_token", "`num_experts_per_tok`"},
      {"@bias", "`false`; where no layer has experts, all"},
  }};
  for (const auto& [rule, text] : kRules) {
    if (row.runs == rule) return std::string(text);
  }
  if (row.runs.empty()) return "none";
  std::string text;
  for (std::size_t at = 0; at <= row.runs.size();) {
    const std::size_t end = std::min(row.runs.find(" | ", at), row.runs.size());
    text += (text.empty() ? "`" : ", `") + std::string(row.runs.substr(at, end - at)) + "`";
    at = end + 3;
  }
  return text;
}

}  // namespace

bool names(std::string_view words, std::string_view word) {
  for (std::size_t at = 0; at < words.size();) {
    const std::size_t end = std::min(words.find(' ', at), words.size());
    if (words.substr(at, end - at) == word) return true;
    at = end + 1;
  }
  return false;
}

std::span<const ConfigKey> config_keys() {
  return kKeys;
}

const ConfigKey* find_config_key(std::string_view model_type, std::string_view key) {
  const ConfigKey* shared = nullptr;
  for (const ConfigKey& row : kKeys) {
    if (!names(row.keys, key)) continue;
    if (names(row.dialects, model_type)) return &row;
    if (row.dialects == "*") shared = &row;
  }
  return shared;
}

std::vector<std::string_view> meaningful_keys(std::string_view model_type) {
  std::vector<std::string_view> keys;
  for (const ConfigKey& row : kKeys) {
    const bool own = names(row.dialects, model_type);
    const bool borrowed = row.use == KeyUse::Priced || row.use == KeyUse::Refused;
    if (row.use == KeyUse::NoMeaning || (!own && (row.dialects != "*" || borrowed))) continue;
    for (const std::string_view key : words_of(row.keys)) keys.push_back(key);
  }
  return keys;
}

std::vector<std::string_view> known_keys(std::string_view model_type) {
  std::vector<std::string_view> keys;
  for (const ConfigKey& row : kKeys) {
    for (const std::string_view key : words_of(row.keys)) {
      if (find_config_key(model_type, key) == &row) keys.push_back(key);
    }
  }
  return keys;
}

std::string config_keys_text() {
  std::string text =
      "| dialects | keys | column | `run` performs | priced instead; why "
      "|\n|---|---|---|---|---|\n";
  for (const ConfigKey& row : kKeys) {
    text += "| " + (row.dialects == "*" ? std::string("all others") : code(row.dialects)) + " | " +
            code(row.keys) + " | " + std::string(name_of(row.use)) + " | " + performed(row) +
            " | " + std::string(row.about) + " |\n";
  }
  return text;
}

}  // namespace rehearse
