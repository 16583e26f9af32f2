// SPDX-License-Identifier: Apache-2.0
#include "sim/memory/memory_kinds.h"

#include <algorithm>
#include <set>

#include "schedules/body/sizes.h"
#include "schedules/model/kinds/layer_kind.h"
#include "schedules/model/layer_mix.h"
#include "schedules/model/parts.h"

namespace rehearse::sim {
namespace {

constexpr const char* kHandedOn = "between stages";
constexpr const char* kEmbedding = "embedding";
constexpr const char* kHead = "head";
constexpr const char* kPrediction = "prediction layer";

// The name of a block of a layer (ModelPart::block), or of what a kind of it keeps.
std::string name_of(const Transformer& layer, bool experts, std::uint8_t block) {
  const std::vector<BoundKind>& mixers = mixers_of(layer);
  if (block >= kFirstKind) return mixers[block - kFirstKind].kind->name;
  if (block == kFirstBlock && layer.has_attention) {
    return layer.latent.used() ? "latent_attention" : "attention";
  }
  const auto mixer = std::ranges::find_if(
      mixers, [](const BoundKind& kind) { return !holds_streams(*kind.kind); });
  if (block == kFirstBlock && mixer != mixers.end()) return mixer->kind->name;
  return experts ? "experts" : "mlp";
}

std::uint8_t place_of(std::span<const std::string> kinds, const std::string& name) {
  return static_cast<std::uint8_t>(std::ranges::find(kinds, name) - kinds.begin());
}

// Puts for the kind of each step, which is a block or the same for all, what `place` makes of it.
template <class Place>
void rename(SegmentProgram& program, Place place) {
  for (std::vector<ScriptStep>* steps :
       {&program.forward, &program.backward, &program.streams, &program.again, &program.apart}) {
    for (ScriptStep& step : *steps) step.kind = place(step.kind);
  }
  program.input_kind = place(program.input_kind);
}

}  // namespace

std::vector<std::string> memory_kinds(const Transformer& model) {
  if (variants(model) == 0 && kind_names(model).empty()) return {};
  std::vector<std::string> names{kHandedOn, kEmbedding};
  const auto add = [&names](const std::string& name) {
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  };
  for (std::int64_t l = 0; l < model.layers; ++l) {
    const Transformer& layer = variant(model, variant_of(model, l));
    for (const ModelPart& part : layer_parts(model, l)) {
      add(name_of(layer, model.has_experts(l), part.block));
    }
  }
  add(kHead);
  add(kPrediction);
  return names;
}

void name_kinds(SegmentPrograms& programs, const Transformer& model,
                std::span<const std::string> kinds) {
  const auto of_layer = [&](const Transformer& layer, bool experts) {
    return [&kinds, &layer, experts](std::uint8_t block) {
      return place_of(kinds, name_of(layer, experts, block));
    };
  };
  const auto one = [&](const char* name) {
    return [place = place_of(kinds, name)](std::uint8_t) { return place; };
  };
  for (std::vector<SegmentProgram>* of : {&programs.rotating, &programs.still}) {
    for (std::size_t i = 0; i < of->size(); ++i) {
      SegmentProgram& program = (*of)[i];
      if (i >= kNumSegmentShapes) {
        const Transformer& layer = variant(model, static_cast<std::int32_t>(i - kNumSegmentShapes));
        rename(program, of_layer(layer, layer.experts.count > 0));
        continue;
      }
      switch (static_cast<SegmentShape>(i)) {
        case SegmentShape::Embedding:
          rename(program, one(kEmbedding));
          break;
        case SegmentShape::DenseLayer:
          rename(program, of_layer(model, false));
          break;
        case SegmentShape::ExpertLayer:
          rename(program, of_layer(model, true));
          break;
        case SegmentShape::PredictionLayer:
          rename(program, one(kPrediction));
          break;
        case SegmentShape::Head:
          rename(program, one(kHead));
          break;
      }
    }
  }
  for (SegmentPrograms& kept : programs.kept) name_kinds(kept, model, kinds);
}

std::vector<KindMemory> kind_memory(const Layout& layout, std::span<const SegmentInfo> segments,
                                    std::span<const std::string> kinds,
                                    std::span<const std::int64_t> activations) {
  const Transformer& model = layout.model;
  std::vector<KindMemory> all(kinds.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].kind = kinds[i];
    if (i < activations.size()) all[i].activations = activations[i];
  }
  for (const SegmentInfo& segment : segments) {
    const bool layer = segment.kind == SegmentKind::Layer;
    const bool predicts = layer && segment.layer >= model.layers;
    const std::vector<ModelPart> parts =
        layer && !predicts ? layer_parts(model, segment.layer) : std::vector<ModelPart>();
    std::set<std::uint8_t> places;
    for (const ParameterTensor& tensor : segment_parameters(layout, segment.kind, segment.layer)) {
      const std::string name = predicts                                 ? kPrediction
                               : segment.kind == SegmentKind::Embedding ? kEmbedding
                               : segment.kind == SegmentKind::Head
                                   ? kHead
                                   : name_of(variant(model, variant_of(model, segment.layer)),
                                             model.has_experts(segment.layer),
                                             parts[static_cast<std::size_t>(tensor.part)].block);
      const std::uint8_t place = place_of(kinds, name);
      all[place].parameters += std::max<std::int64_t>(tensor.elements, 0);
      if (layer) places.insert(place);
    }
    for (const std::uint8_t place : places) ++all[place].layers;
  }
  std::erase_if(all, [](const KindMemory& kind) {
    return kind.parameters == 0 && kind.activations == 0 && kind.layers == 0;
  });
  return all;
}

}  // namespace rehearse::sim
