// SPDX-License-Identifier: Apache-2.0
#include "schedules/frameworks/model_facts.h"

#include <algorithm>
#include <array>

#include "schedules/model/layer_mix.h"

namespace rehearse {
namespace {

constexpr std::array<std::string_view, 7> kActivations{"gelu",  "gelu", "quick_gelu", "relu",
                                                       "relu2", "silu", "tanh"};
constexpr std::array<std::string_view, 3> kPositions{"learned", "rope", "alibi"};
constexpr std::array<std::string_view, 3> kPlacements{"before", "after", "around"};

template <std::size_t N, class Enum>
std::string word(const std::array<std::string_view, N>& words, Enum value) {
  return std::string(words[static_cast<std::size_t>(value)]);
}

// Layers before the first with experts, where all behind it have some; -1: they are scattered.
std::int64_t dense_layers(const Transformer& m) {
  if (m.experts.count == 0) return m.layers;
  std::int64_t first = 0;
  while (first < m.layers && !m.has_experts(first)) ++first;
  for (std::int64_t l = first; l < m.layers; ++l) {
    if (!m.has_experts(l)) return -1;
  }
  return first;
}

// By layer, but where all are alike.
Json by_layer(const Transformer& m) {
  Json reaches = Json::array();
  for (std::int64_t l = 0; l < m.layers; ++l) {
    const Reach reach = m.reach(l);
    if (reach.window > 0 || reach.chunk > 0) reaches.push_back({l, reach.window, reach.chunk});
  }
  return reaches;
}

Json expert_facts(const Transformer& m) {
  const Experts& e = m.experts;
  if (e.count == 0) return nullptr;
  Json placed = nullptr;
  if (dense_layers(m) < 0) {
    placed = Json::array();
    for (std::int64_t l = 0; l < m.layers; ++l) {
      if (m.has_experts(l)) placed.push_back(l);
    }
  }
  return {{"count", e.count},
          {"per_token", e.per_token},
          {"ffn", e.ffn_hidden},
          {"shared_ffn", e.shared_ffn_hidden},
          {"shared_gate", e.shared_gate},
          {"layers", placed},
          {"bias", e.bias},
          {"groups", e.groups},
          {"kept_groups", e.kept_groups},
          {"sigmoid", e.sigmoid},
          {"clamped", e.glu_limit > 0}};
}

Json latent_facts(const LatentAttention& l) {
  if (!l.used()) return nullptr;
  return {{"q_rank", l.q_lora_rank},
          {"kv_rank", l.kv_lora_rank},
          {"nope_dim", l.qk_nope_head_dim},
          {"rope_dim", l.qk_rope_head_dim},
          {"v_dim", l.v_head_dim}};
}

}  // namespace

Json model_facts(const Transformer& m) {
  Json facts{{"layers", m.layers},
             {"hidden", m.hidden},
             {"heads", m.heads},
             {"kv_heads", m.kv_heads},
             {"head_dim", m.latent.used() ? std::int64_t{0} : m.head_dim},
             {"ffn", m.has_dense_layers() ? m.ffn_hidden : 0},
             {"vocabulary", m.vocabulary},
             {"positions", word(kPositions, m.positions)},
             {"rms_norm", m.norm == NormKind::RmsNorm},
             {"norm_bias", m.norm == NormKind::RmsNorm || m.norm_bias},
             {"norm_placement", word(kPlacements, m.norm_placement)},
             {"gated", m.mlp == MlpKind::Gated},
             {"activation", word(kActivations, m.activation)},
             {"qkv_bias", m.qkv_bias},
             {"projection_bias", m.projection_bias},
             {"mlp_bias", m.mlp_bias},
             {"query_key_norm", m.query_key_norm},
             {"query_key_norm_whole", m.query_key_norm_whole},
             {"query_key_unit_norm", m.query_key_unit_norm},
             {"embedding_norm", m.embedding_norm},
             {"attention_sinks", m.attention_sinks},
             {"parallel_residual", m.parallel_residual},
             {"tied", m.tied_embedding},
             {"scaled_embedding", m.scaled_embedding},
             {"soft_caps", m.attention_softcap > 0 || m.final_softcap > 0},
             {"reach", by_layer(m)},
             {"rotates_everywhere", m.rotating_layers.empty()},
             {"prediction_layers", m.prediction_layers},
             {"dense_layers", dense_layers(m)},
             {"experts", expert_facts(m)},
             {"latent", latent_facts(m.latent)},
             {"indexer", has_indexer(m)}};
  // A table of positions is as long as the longest sequence; other positions cost nothing.
  facts["learned_positions"] =
      m.positions == PositionKind::Learned ? Json(m.max_positions) : Json(nullptr);
  facts["max_positions"] = m.max_positions;
  return facts;
}

Json member_at(const Json& object, std::string_view path) {
  const Json* at = &object;
  while (!path.empty()) {
    const std::size_t dot = std::min(path.find('.'), path.size());
    at = at->is_object() ? at->find(path.substr(0, dot)) : nullptr;
    if (at == nullptr) return Json();
    path.remove_prefix(std::min(dot + 1, path.size()));
  }
  return *at;
}

}  // namespace rehearse
