// SPDX-License-Identifier: Apache-2.0
// Layers that differ: a mixed model is a pattern over variants, each a whole transformer whose
// layers are all alike.
//
// What is built for one layer (its parts, its body, what it keeps in memory) is built for its
// variant; what runs over all layers asks the model itself, whose lists by layer (experts, windows,
// rotation) hold of a mixed one too, and whose widths are those of its first layer with attention.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/model/model.h"

namespace rehearse {

struct LayerKind;  // kinds/layer_kind.h

// A kind that stands in attention's place, or beside it, with the numbers of its symbols.
struct BoundKind {
  const LayerKind* kind = nullptr;   // of the files that were read, which live as long as we do
  std::vector<std::int64_t> values;  // by LayerKind::symbols
  bool operator==(const BoundKind&) const = default;
};

// A vector of the experts or of the MLP that nothing multiplies: a correction bias that is a
// parameter, numbers of an activation.
struct ExtraVector {
  std::string_view name;  // for people, static
  std::int64_t elements = 0;
  bool of_experts = false;
  bool operator==(const ExtraVector&) const = default;
};

struct LayerMix {
  std::vector<Transformer> variants;   // empty: every layer is as the model says
  std::vector<std::int16_t> of_layer;  // which variant a layer is
  std::int16_t prediction = -1;        // which one a prediction layer is; -1: as the last layer
  std::vector<BoundKind> mixers;       // of every layer; a model of variants has none of its own
  std::vector<ExtraVector> extra;
  // How many residual streams the model keeps (hyper-connections): what segments hand on is so many
  // times h wide. A variant says it too.
  std::int64_t streams = 1;
  std::vector<BoundKind> at_embedding, at_head;  // behind the table; before the last norm
  bool operator==(const LayerMix&) const = default;
};

// Which variant a layer is, a prediction layer from model.layers on; -1: the model is not mixed.
std::int32_t variant_of(const Transformer& model, std::int64_t layer);
// The model, or its variant.
const Transformer& variant(const Transformer& model, std::int32_t index);
std::int32_t variants(const Transformer& model);  // 0: the model is not mixed
// Kinds of every layer that are no attention. REQUIRES: the model is no mixed one, or a variant.
const std::vector<BoundKind>& mixers_of(const Transformer& model);
const std::vector<ExtraVector>& extra_of(const Transformer& model);
std::int64_t streams(const Transformer& model);
const std::vector<BoundKind>& kinds_at_embedding(const Transformer& model);
const std::vector<BoundKind>& kinds_at_head(const Transformer& model);
// What stands between the norm and the residual sum where attention stands in others.
inline bool has_mixer(const Transformer& model) {
  return model.has_attention || !mixers_of(model).empty();
}
// Whether layers have an indexer that picks their keys, which a loss may train (KindPlan).
bool has_indexer(const Transformer& model);
// What a model has that is more than attention with an MLP or experts, for people; empty: nothing.
std::string beyond_plain_layers(const Transformer& model);
// The names of all kinds in a model's layers but attention, MLP and experts, in the order of
// layers.
std::vector<std::string> kind_names(const Transformer& model);

}  // namespace rehearse
