// SPDX-License-Identifier: Apache-2.0
#include "schedules/model/layer_mix.h"

#include <algorithm>

#include "schedules/model/kinds/layer_kind.h"

namespace rehearse {

bool Mix::operator==(const Mix& other) const {
  return layers == other.layers || (layers && other.layers && *layers == *other.layers);
}

std::int32_t variant_of(const Transformer& model, std::int64_t layer) {
  if (!model.mix || model.mix.layers->variants.empty()) return -1;
  const LayerMix& mix = *model.mix.layers;
  if (layer >= model.layers && mix.prediction >= 0) return mix.prediction;
  return mix.of_layer[static_cast<std::size_t>(std::min(layer, model.layers - 1))];
}

const Transformer& variant(const Transformer& model, std::int32_t index) {
  return index < 0 ? model : model.mix.layers->variants[static_cast<std::size_t>(index)];
}

std::int32_t variants(const Transformer& model) {
  return model.mix ? static_cast<std::int32_t>(model.mix.layers->variants.size()) : 0;
}

namespace {

const std::vector<BoundKind>& kinds_of(const Transformer& model,
                                       std::vector<BoundKind> LayerMix::*kinds) {
  static const std::vector<BoundKind> kNone;
  return model.mix ? (*model.mix.layers).*kinds : kNone;
}

}  // namespace

const std::vector<BoundKind>& mixers_of(const Transformer& model) {
  return kinds_of(model, &LayerMix::mixers);
}
const std::vector<BoundKind>& kinds_at_embedding(const Transformer& model) {
  return kinds_of(model, &LayerMix::at_embedding);
}
const std::vector<BoundKind>& kinds_at_head(const Transformer& model) {
  return kinds_of(model, &LayerMix::at_head);
}

std::int64_t streams(const Transformer& model) {
  return model.mix ? model.mix.layers->streams : 1;
}

bool has_indexer(const Transformer& model) {
  const auto has = [](const Transformer& of) {
    return std::ranges::any_of(mixers_of(of),
                               [](const BoundKind& mixer) { return trains_indexer(mixer); });
  };
  if (has(model)) return true;
  for (std::int32_t i = 0; i < variants(model); ++i) {
    if (has(variant(model, i))) return true;
  }
  return false;
}

const std::vector<ExtraVector>& extra_of(const Transformer& model) {
  static const std::vector<ExtraVector> kNone;
  return model.mix ? model.mix.layers->extra : kNone;
}

std::string beyond_plain_layers(const Transformer& model) {
  std::string kinds;
  for (const std::string& name : kind_names(model)) kinds += (kinds.empty() ? "" : ", ") + name;
  if (!kinds.empty()) return "layers of kind " + kinds;
  if (variants(model) > 0) return "layers of different widths, or without attention or MLP";
  if (model.one_norm) return "one norm for attention and MLP";
  if (model.value_head_dim > 0) return "values of other widths than keys";
  if (model.experts.latent > 0) return "latent experts";
  if (model.experts.beside_mlp) return "an MLP beside its experts";
  if (model.experts.count > 0 && model.norm_placement != NormPlacement::Before) {
    return "norms behind its experts";
  }
  return "";
}

std::vector<std::string> kind_names(const Transformer& model) {
  std::vector<std::string> names;
  const auto add = [&names](const Transformer& of) {
    for (const BoundKind& mixer : mixers_of(of)) {
      if (std::ranges::find(names, mixer.kind->name) == names.end()) {
        names.push_back(mixer.kind->name);
      }
    }
  };
  add(model);
  for (std::int32_t i = 0; i < variants(model); ++i) add(variant(model, i));
  return names;
}

}  // namespace rehearse
