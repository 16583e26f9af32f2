// SPDX-License-Identifier: Apache-2.0
// The transformer as a description: dimensions and switches, whatever dialect it was read from.
// No sizes per rank (sizes.h), no plan (plan.h), no JSON (hf_config.cc).
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "schedules/model/activation.h"
#include "schedules/model/rotary.h"

namespace rehearse {

enum class NormKind : std::uint8_t { LayerNorm, RmsNorm };
// Where a layer's two blocks, attention and MLP, have norms. Before: of what they read; After: of
// what they give, before the residual sum (olmo2); Around: both (gemma 2 and 3, glm4).
enum class NormPlacement : std::uint8_t { Before, After, Around };
enum class MlpKind : std::uint8_t { Plain, Gated };  // 2 or 3 matrices: act(u); act(gate) * up
enum class PositionKind : std::uint8_t { Learned, Rope, Alibi };

// Shares of elements that training drops (Srivastava et al. 2014), in [0, 1); -1: unsaid.
struct DropoutRates {
  double residual = 0;   // of what a block gives, before the residual sum
  double attention = 0;  // of the probabilities
  double embedding = 0;
  bool any() const { return residual > 0 || attention > 0 || embedding > 0; }
  bool operator==(const DropoutRates&) const = default;
};

// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434); absent when
// kv_lora_rank is 0.
struct LatentAttention {
  std::int64_t q_lora_rank = 0;  // 0: queries are not compressed
  std::int64_t kv_lora_rank = 0;
  std::int64_t qk_nope_head_dim = 0, qk_rope_head_dim = 0, v_head_dim = 0;
  bool used() const { return kv_lora_rank > 0; }
  static constexpr double kNormEpsilon = 1e-6;  // of its norms, in every file
  bool operator==(const LatentAttention&) const = default;
};

struct Experts {
  std::int64_t count = 0;              // E; 0: a dense model
  std::int64_t per_token = 0;          // top-k
  std::int64_t ffn_hidden = 0;         // width of one expert
  std::int64_t shared_ffn_hidden = 0;  // width of all shared experts together; 0: none
  bool shared_gate = false;            // qwen2_moe: a sigmoid gate of h weights
  std::vector<bool> layers{};          // by layer, which have experts; empty: every one
  bool bias = false;                   // gpt_oss
  // Routing to few groups of experts: a token's experts lie in `kept_groups` of `groups`
  // (DeepSeek: topk_group of n_group); equal: anywhere.
  std::int64_t groups = 1, kept_groups = 1;
  // A group's score is the sum of its largest so many (DeepSeek-V2: 1, V3: 2).
  std::int64_t group_best = 1;
  bool sigmoid = false;  // scores are the sigmoid of the logits, else their softmax
  // The router's weights of a token are the chosen scores, divided by their sum (norm_topk_prob),
  // times routed_scaling_factor.
  bool normalised = true;
  double weight_scale = 1;
  // Experts are chosen by score + a number of each (e_score_correction_bias), no parameter: it
  // moves by how often an expert is chosen (train.router_bias_rate).
  bool correction_bias = false;
  // A copy's weight multiplies what its expert reads, not what the expert gives (llama4).
  bool weighs_input = false;
  // gpt_oss: (up + 1) gate sigmoid(alpha gate), gate clamped from above, up on both sides, whose
  // rows take turns in the first matrix; 0: the model's own activation.
  double glu_limit = 0, glu_alpha = 1;
  // Routed experts read and write so many columns, between one projection down and one up; 0: h.
  std::int64_t latent = 0;
  bool beside_mlp = false;  // the layer has the dense MLP too, and adds both (gemma 4)
  bool operator==(const Experts&) const = default;
};

// How far back a query sees.
struct Reach {
  std::int64_t window = 0;  // its own key and window - 1 before it; 0: all
  std::int64_t chunk = 0;   // those of its own chunk of so many positions; 0: all
  auto operator<=>(const Reach&) const = default;
};

// What layers are made of where they differ by more than experts, windows and rotation, or where
// they are not attention and an MLP alone (layer_mix.h). Copies share it.
struct LayerMix;
struct Mix {
  std::shared_ptr<const LayerMix> layers;  // null: every layer is as the model says
  explicit operator bool() const { return layers != nullptr; }
  bool operator==(const Mix& other) const;  // layer_mix.cc
};

struct Transformer {
  std::string name;             // file stem or "inline"
  std::string model_type;       // Hugging Face's
  std::int64_t layers = 0;      // L
  std::int64_t hidden = 0;      // h
  std::int64_t heads = 0;       // a
  std::int64_t kv_heads = 0;    // kv <= a
  std::int64_t head_dim = 0;    // d
  std::int64_t ffn_hidden = 0;  // f of the dense MLP
  std::int64_t vocabulary = 0;  // V, unpadded
  std::int64_t max_positions = 0;
  NormKind norm = NormKind::LayerNorm;
  bool norm_bias = true;  // a LayerNorm without bias (MPT) has h, not 2h parameters
  NormPlacement norm_placement = NormPlacement::Before;
  bool norm_from_one = false;  // gemma: a norm multiplies by 1 + weight
  MlpKind mlp = MlpKind::Plain;
  ActivationKind activation = ActivationKind::GeluTanh;
  PositionKind positions = PositionKind::Learned;
  bool qkv_bias = true, projection_bias = true, mlp_bias = true;
  bool query_key_norm = false;        // qwen3: an RMS norm of head_dim for q and for k
  bool query_key_norm_whole = false;  // olmoe: of all heads' columns for q, and for k
  bool query_key_unit_norm = false;   // llama4: of heads, without weights, where positions rotate
  bool embedding_norm = false;        // bloom: LayerNorm after the embedding
  bool attention_sinks = false;       // gpt_oss: one learned logit per head
  bool parallel_residual = false;     // gpt_neox: attention and MLP read the same input
  bool one_norm = false;              // cohere2: and of one norm
  bool has_attention = true, has_mlp = true;  // false: a layer lacks the block, with its norms
  bool attention_gate = false;  // qwen3_next: what heads give, times the sigmoid of as many columns
  bool keys_are_values = false;   // gemma 4: no product of values
  bool norm_is_residual = false;  // bloom may: what joins a block's result is its normed input
  bool tied_embedding = true;
  bool scaled_embedding = false;          // gemma: rows of the table times sqrt(h)
  double attention_scale = 0;             // of queries times keys; 0: 1 / sqrt(head_dim)
  bool attention_scale_by_layer = false;  // and divided by the layer's number, from 1
  double attention_softcap = 0;           // c: scores become c tanh(score / c) (gemma 2); 0: none
  double final_softcap = 0;               // of the logits
  std::int64_t sliding_window = 0;        // a query sees its own key and the w - 1 before; 0: all
  std::vector<bool> windowed_layers{};    // by layer; empty: every layer, where there is a window
  // llama4: in windowed layers a query sees keys of its own chunk of so many positions; 0: all
  std::int64_t attention_chunk = 0;
  std::vector<bool> rotating_layers{};  // by layer; empty: every layer, where positions rotate
  // llama4: in layers that do not rotate, the query at position p is multiplied by
  // 1 + scale log(1 + floor((p + 1) / floor)); scale 0: by nothing
  double temperature_scale = 0, temperature_floor = 1;
  RotaryConfig rotary{};
  RotaryConfig windowed_rotary{};  // of windowed layers, where it differs (gemma 3)
  bool rotary_by_layer_kind = false;
  double norm_epsilon = 1e-5;
  double initializer_range = 0.02;  // deviation of the first weights
  std::int64_t padding_token = -1;  // its row of the table learns nothing from the input; -1: none
  DropoutRates dropouts{};
  LatentAttention latent;
  std::int64_t value_head_dim = 0;  // columns of a head's values; 0: head_dim
  Experts experts;
  // Layers that predict further tokens (DeepSeek-V3, arXiv 2412.19437, section 2.2): beside
  // `layers`
  std::int64_t prediction_layers = 0;
  Mix mix;

  bool has_experts(std::int64_t layer) const {
    return experts.count > 0 &&
           (experts.layers.empty() || experts.layers[static_cast<std::size_t>(layer)]);
  }
  bool has_dense_layers() const;
  // Columns of a head's values, and of its output.
  std::int64_t value_dim() const {
    if (latent.used()) return latent.v_head_dim;
    return value_head_dim > 0 ? value_head_dim : head_dim;
  }
  // Columns of a head's queries and keys of which a share rotates.
  std::int64_t rotary_head_dim() const {
    return latent.used() ? latent.qk_rope_head_dim : head_dim;
  }
  // Keys that a query of the layer sees; 0: all before it.
  std::int64_t window(std::int64_t layer) const {
    const bool windowed =
        windowed_layers.empty() || windowed_layers[static_cast<std::size_t>(layer)];
    return windowed ? sliding_window : 0;
  }
  // Positions of a chunk that the layer's queries do not look beyond; 0: none.
  std::int64_t chunk(std::int64_t layer) const {
    const bool chunked =
        windowed_layers.empty() || windowed_layers[static_cast<std::size_t>(layer)];
    return chunked ? attention_chunk : 0;
  }
  Reach reach(std::int64_t layer) const { return {window(layer), chunk(layer)}; }
  bool rotates(std::int64_t layer) const {
    return positions == PositionKind::Rope &&
           (rotating_layers.empty() || rotating_layers[static_cast<std::size_t>(layer)]);
  }
  bool operator==(const Transformer&) const = default;
};

// The first layer with experts, or without; the last one where there is none.
std::int64_t first_layer(const Transformer& model, bool experts);

// What a layer's scores, queries times keys, are multiplied by.
double attention_scale(const Transformer& model, std::int64_t layer);

// Pairs of a query and a key in one sample of s positions, under the causal mask and a layer's
// reach; a whole layer has s^2 / 2.
double attention_pairs(Reach reach, std::int64_t sequence_length);
// The mean over the layers.
double attention_pairs(const Transformer& model, std::int64_t sequence_length);

// Exact parameter counts, unpadded vocabulary, no parallelism [parameters].
// Sources of the checked totals: tests/schedules/model/parameter_count_test.cc.
std::int64_t embedding_parameters(const Transformer& model);  // table + learned positions
std::int64_t layer_parameters(const Transformer& model, std::int64_t layer);
std::int64_t head_parameters(const Transformer& model);    // final norm + untied table
std::int64_t total_parameters(const Transformer& model);   // tied table counted once
std::int64_t active_parameters(const Transformer& model);  // top-k experts only
// Parameters of one routed expert, of the router, and of the shared experts with their gate.
std::int64_t expert_parameters(const Transformer& model);
std::int64_t router_parameters(const Transformer& model);
std::int64_t shared_expert_parameters(const Transformer& model);
// All prediction layers, beside total_parameters: each is one more layer, the projection of (hidden
// state, embedding) to h, their two norms and a norm before the head; table and head are shared.
std::int64_t prediction_parameters(const Transformer& model);

// How model FLOPs are counted. A FLOP is 2 per multiply-add; squares are those of attention_keys.h.
enum class FlopsConvention : std::uint8_t {
  // Narayanan SC'21 without recompute = Korthikanti Eq. 7: forward + 2x backward, full
  // attention square, logits included: 72 B s L h^2 (1 + s/6h + V/12hL) for GPT
  Megatron,
  MegatronCausal,  // today's Megatron-LM training.py: attention halved, pairs of attention_pairs
  // 6 N + 12 L a d s per token (PaLM, app. B); N without tables that are only looked up
  // (a tied table is the head's matrix too and counts); active experts
  Palm,
  SixN,  // 6 N per token, the same N
};
// FLOPs of one step's matrix products over the global batch of `samples` sequences of length s.
double model_flops(const Transformer& model, std::int64_t samples, std::int64_t sequence_length,
                   FlopsConvention convention);

}  // namespace rehearse
