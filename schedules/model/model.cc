// SPDX-License-Identifier: Apache-2.0
// Exact parameter counts and FLOPs of a transformer, from the parts of its segments. In the
// formulas: h hidden, a heads, k key/value heads, d head size, f MLP width, V vocabulary, L layers,
// s sequence, T tokens.
#include "schedules/model/model.h"

#include <algorithm>
#include <cmath>

#include "schedules/model/attention_keys.h"
#include "schedules/model/kinds/layer_kind.h"
#include "schedules/model/layer_mix.h"
#include "schedules/model/parts.h"

namespace rehearse {
namespace {

// Elements of parts where a token meets `experts` of the routed ones.
std::int64_t elements_with(const std::vector<ModelPart>& parts, std::int64_t experts) {
  std::int64_t count = 0;
  for (const ModelPart& part : parts) count += (part.expert ? experts : 1) * part.out * part.in;
  return count;
}

// The sum of a number of each layer. Layers of one kind are alike: the first with experts, and
// without, stands for all.
template <class Number>
std::int64_t over_layers(const Transformer& model, Number number) {
  std::int64_t sum = 0;
  if (variants(model) > 0) {  // of each variant the first layer stands for all
    std::vector<std::int64_t> of_variant(static_cast<std::size_t>(variants(model)), -1);
    for (std::int64_t layer = 0; layer < model.layers; ++layer) {
      std::int64_t& known = of_variant[static_cast<std::size_t>(variant_of(model, layer))];
      if (known < 0) known = number(layer);
      sum += known;
    }
    return sum;
  }
  for (const bool with : {false, true}) {
    std::int64_t layers = 0;
    for (std::int64_t layer = 0; layer < model.layers; ++layer) {
      if (model.has_experts(layer) == with) ++layers;
    }
    if (layers > 0) sum += layers * number(first_layer(model, with));
  }
  return sum;
}

std::int64_t total_count(const Transformer& model, std::int64_t experts) {
  return embedding_parameters(model) + head_parameters(model) +
         over_layers(model, [&](std::int64_t layer) {
           return elements_with(layer_parts(model, layer), experts);
         });
}

// Weights that a token is multiplied with in one layer.
std::int64_t multiplied(const Transformer& model, std::int64_t layer) {
  std::vector<ModelPart> parts = layer_parts(model, layer);
  std::erase_if(parts, [](const ModelPart& part) { return part.use != PartUse::Product; });
  return elements_with(parts, model.experts.per_token);
}

// Elements of the parts of a layer with experts that are wanted; 0: the model has none.
template <class Wanted>
std::int64_t of_expert_layer(const Transformer& model, Wanted wanted) {
  const std::int64_t layer = first_layer(model, true);
  if (!model.has_experts(layer)) return 0;
  std::vector<ModelPart> parts = layer_parts(model, layer);
  std::erase_if(parts, [&](const ModelPart& part) { return !wanted(part); });
  return elements_with(parts, 1);
}

// Operations of kernels that are no products, in multiply-adds per token: of scans and
// convolutions.
double kernel_work(const Transformer& model, std::int64_t sequence_length) {
  double work = 0;
  for (const BoundKind& mixer : mixers_of(model)) {
    const KindPlan plan{
        .tokens = sequence_length, .sequence = sequence_length, .local = sequence_length};
    double products = 0;
    for (const ModelPart& part : parts_of(mixer)) {
      if (part.use == PartUse::Product) products += static_cast<double>(part.elements());
    }
    work += forward_flops(mixer, plan) / static_cast<double>(2 * sequence_length) - products;
  }
  return work;
}

// Widths of the two attention products together: scores over q.k, and probabilities times v.
double attention_width(const Transformer& model) {
  const LatentAttention& m = model.latent;
  const std::int64_t per_head = m.used() ? m.qk_nope_head_dim + m.qk_rope_head_dim + m.v_head_dim
                                         : model.head_dim + model.value_dim();
  return static_cast<double>(model.heads * per_head);
}

double squared_pairs(Reach reach, double s) {
  if (reach.window > 0) return s * std::min(static_cast<double>(reach.window), s);
  if (reach.chunk == 0) return s * s;
  const double chunk = std::min(static_cast<double>(reach.chunk), s);
  const double whole = std::floor(s / chunk) * chunk, rest = s - whole;
  return whole * chunk + rest * rest;
}

// Keys per query of that many layers together; beyond the last one prediction layers are like it.
double keys_of_layers(const Transformer& model, std::int64_t layers, std::int64_t sequence_length,
                      bool causal) {
  const auto s = static_cast<double>(sequence_length);
  double keys = 0;
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const Reach reach = model.reach(std::min(layer, model.layers - 1));
    keys += (causal ? attention_pairs(reach, sequence_length) : squared_pairs(reach, s)) / s;
  }
  return keys;
}

// What layers multiply beside their weights, per token: attention's two products and what else a
// mixed model's layers scan.
double core_work(const Transformer& model, std::int64_t layers, std::int64_t sequence_length,
                 bool causal) {
  if (variants(model) == 0 && mixers_of(model).empty()) {
    return attention_width(model) * keys_of_layers(model, layers, sequence_length, causal);
  }
  const auto s = static_cast<double>(sequence_length);
  double work = 0;
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const Transformer& of = variant(model, variant_of(model, layer));
    work += kernel_work(of, sequence_length);
    if (!of.has_attention) continue;
    const Reach reach = layer < model.layers ? model.reach(layer) : of.reach(0);
    work += attention_width(of) *
            (causal ? attention_pairs(reach, sequence_length) : squared_pairs(reach, s)) / s;
  }
  return work;
}

// Elements of products that kinds beside the embedding or before the head have.
std::int64_t outer_products(const std::vector<BoundKind>& kinds) {
  std::int64_t elements = 0;
  for (const BoundKind& kind : kinds) {
    for (const ModelPart& part : parts_of(kind)) {
      if (part.use == PartUse::Product) elements += part.elements();
    }
  }
  return elements;
}

// N of the short conventions: parameters that a token is multiplied with. Tables that are only
// looked up are left out; a tied table is also the head's matrix, so it stays.
double multiplied_parameters(const Transformer& model) {
  std::int64_t lookups = embedding_parameters(model) - outer_products(kinds_at_embedding(model));
  if (model.tied_embedding) lookups -= model.vocabulary * model.hidden;
  return static_cast<double>(active_parameters(model) - lookups);
}

}  // namespace

bool Transformer::has_dense_layers() const {
  if (const std::int32_t count = variants(*this); count > 0) {
    for (std::int32_t i = 0; i < count; ++i) {
      const Transformer& of = variant(*this, i);
      if (of.has_mlp && (of.experts.count == 0 || of.experts.beside_mlp)) return true;
    }
    return false;
  }
  return experts.count == 0 || std::ranges::find(experts.layers, false) != experts.layers.end();
}

std::int64_t first_layer(const Transformer& model, bool experts) {
  std::int64_t layer = 0;
  while (layer + 1 < model.layers && model.has_experts(layer) != experts) ++layer;
  return layer;
}

double attention_scale(const Transformer& model, std::int64_t layer) {
  const double scale = model.attention_scale > 0
                           ? model.attention_scale
                           : 1 / std::sqrt(static_cast<double>(model.head_dim));
  return model.attention_scale_by_layer ? scale / static_cast<double>(layer + 1) : scale;
}

double attention_pairs(Reach reach, std::int64_t sequence_length) {
  const auto s = static_cast<double>(sequence_length);
  if (reach.window > 0) {
    const double window = std::min(static_cast<double>(reach.window), s);
    return window * s - window * window / 2;
  }
  if (reach.chunk == 0) return s * s / 2;
  const double chunk = std::min(static_cast<double>(reach.chunk), s);
  const double whole = std::floor(s / chunk) * chunk, rest = s - whole;
  return (whole * chunk + rest * rest) / 2;
}

double attention_pairs(const Transformer& model, std::int64_t sequence_length) {
  double pairs = 0;
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    pairs += attention_pairs(model.reach(layer), sequence_length);
  }
  return pairs / static_cast<double>(model.layers);
}

double squared_pairs(const Transformer& model, std::int64_t sequence_length) {
  return keys_of_layers(model, model.layers, sequence_length, false) *
         static_cast<double>(sequence_length) / static_cast<double>(model.layers);
}

std::int64_t embedding_parameters(const Transformer& model) {
  return elements_of(embedding_parts(model));
}

std::int64_t layer_parameters(const Transformer& model, std::int64_t layer) {
  return elements_of(layer_parts(model, layer));
}

std::int64_t head_parameters(const Transformer& model) {
  return elements_of(head_parts(model));
}

std::int64_t expert_parameters(const Transformer& model) {
  return of_expert_layer(model, [](const ModelPart& part) { return part.expert; });
}

std::int64_t router_parameters(const Transformer& model) {
  return of_expert_layer(model,
                         [](const ModelPart& part) { return part.role == ParameterRole::Router; });
}

std::int64_t shared_expert_parameters(const Transformer& model) {
  return of_expert_layer(model, [](const ModelPart& part) {
    return part.role == ParameterRole::SharedUp || part.role == ParameterRole::SharedDown ||
           part.role == ParameterRole::SharedGate;
  });
}

std::int64_t prediction_parameters(const Transformer& model) {
  if (model.prediction_layers == 0) return 0;
  return model.prediction_layers * elements_of(layer_parts(model, model.layers));
}

std::int64_t total_parameters(const Transformer& model) {
  return total_count(model, model.experts.count);
}

std::int64_t active_parameters(const Transformer& model) {
  return total_count(model, model.experts.per_token);
}

double model_flops(const Transformer& model, std::int64_t samples, std::int64_t sequence_length,
                   FlopsConvention convention) {
  const double s = static_cast<double>(sequence_length);
  const double tokens = static_cast<double>(samples) * s;
  switch (convention) {
    case FlopsConvention::SixN:
      return 6.0 * multiplied_parameters(model) * tokens;
    case FlopsConvention::Palm:  // 12 L a d s per token: 2 FLOPs, 2 products, 3 passes
      return 6.0 * tokens *
             (multiplied_parameters(model) +
              core_work(model, model.layers, sequence_length, false));
    case FlopsConvention::Megatron:
    case FlopsConvention::MegatronCausal:
      break;
  }
  const bool causal = convention == FlopsConvention::MegatronCausal;
  double weights = static_cast<double>(
      model.vocabulary * model.hidden + outer_products(kinds_at_embedding(model)) +
      outer_products(kinds_at_head(model)) +
      over_layers(model, [&](std::int64_t layer) { return multiplied(model, layer); }));
  // A prediction layer is a layer, its projection and one more head.
  if (model.prediction_layers > 0) {
    weights +=
        static_cast<double>(model.prediction_layers) *
        static_cast<double>(multiplied(model, model.layers) + model.vocabulary * model.hidden);
  }
  // Forward once, backward twice; 2 FLOPs per multiply-add.
  const std::int64_t layers = model.layers + model.prediction_layers;
  return 3.0 * 2.0 * tokens * (weights + core_work(model, layers, sequence_length, causal));
}

}  // namespace rehearse
