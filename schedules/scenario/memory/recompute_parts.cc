// SPDX-License-Identifier: Apache-2.0
#include "schedules/scenario/memory/recompute_parts.h"

#include <algorithm>

#include "schedules/base/json_reader.h"
#include "schedules/model/kinds/layer_kind.h"
#include "schedules/model/layer_mix.h"
#include "schedules/scenario/plan_names.h"

namespace rehearse {
namespace {

using Part = RecomputePart;

// The word that a file has for the whole value; empty: it is a list of parts.
std::string_view word_of(const Recompute& recompute) {
  if (recompute.is_full()) return kRecomputeNames[2];
  if (recompute.is_word_selective()) return kRecomputeNames[1];
  return recompute.any() ? std::string_view() : kRecomputeNames[0];
}

std::string list_of(const Plan& plan, std::string_view between,
                    std::string (*shown)(std::string_view)) {
  std::string text;
  for (std::size_t i = 0; i < kNumRecomputeParts; ++i) {
    if (!plan.recomputes(static_cast<Part>(i))) continue;
    if (!text.empty()) text += between;
    text += shown(kRecomputePartNames[i]);
  }
  return text;
}

// Whether a kind of the model's layers keeps rows that the part's recomputation drops.
bool drops(const Transformer& model, KindAgain part) {
  const auto has = [part](const Transformer& of) {
    return std::ranges::any_of(mixers_of(of), [part](const BoundKind& mixer) {
      return std::ranges::find(mixer.kind->saved, part, &KindRow::dropped_by) !=
             mixer.kind->saved.end();
    });
  };
  if (has(model)) return true;
  for (std::int32_t i = 0; i < variants(model); ++i) {
    if (has(variant(model, i))) return true;
  }
  return false;
}

// What a part is a part of, where the model lacks it.
std::string_view missing(const Transformer& model, Part part) {
  switch (part) {
    case Part::LatentUp:
      return model.latent.used() || drops(model, KindAgain::LatentUp) ? "" : "no compressed keys";
    case Part::ExpertActivation:
    case Part::Experts:
      return model.experts.count > 0 ? "" : "no experts";
    case Part::SharedExperts:
      return model.experts.shared_ffn_hidden > 0 ? "" : "no shared experts";
    case Part::MlpActivation:
    case Part::Mlp:
      return model.has_dense_layers() ? "" : "no dense layers";
    case Part::DeltaNormOut:
      return drops(model, KindAgain::DeltaNormOut) ? ""
                                                   : "no delta net whose norm can be made again";
    case Part::ResidualStreams:
      return streams(model) > 1 ? "" : "one residual stream, no hyper-connections";
    case Part::AttentionCore:
    case Part::Norm:
    case Part::Operators:
      break;
  }
  return "";
}

// Parts that another part contains.
struct Within {
  Part part, whole;
};
constexpr Within kWithin[]{{Part::MlpActivation, Part::Mlp},
                           {Part::ExpertActivation, Part::Experts},
                           {Part::SharedExperts, Part::Experts}};

std::string_view name_of(Part part) {
  return kRecomputePartNames[static_cast<std::size_t>(part)];
}

}  // namespace

std::string unfit_word(const Transformer& model, const Recompute& recompute) {
  if (recompute.is_full() && streams(model) > 1) {
    return "full: Megatron-LM computes no layers of several residual streams (hyper-connections) "
           "again";
  }
  const bool operators = !recompute.is_full() && recompute.has(Part::Operators);
  if (operators && (variants(model) > 0 || !kind_names(model).empty())) {
    return "selective: which operators are computed again is not built for " +
           beyond_plain_layers(model);
  }
  return "";
}

std::string unfit_parts(const Transformer& model, const Plan& plan) {
  const RuntimeTraits& runtime = plan.runtime;
  if (!runtime.recomputes_parts) {
    return "runtime " + runtime.name + " has none, selective and full, no list of parts";
  }
  for (std::size_t i = 0; i < kNumRecomputeParts; ++i) {
    const auto part = static_cast<Part>(i);
    if (!plan.recomputes(part)) continue;
    const std::string_view lacks = missing(model, part);
    if (!lacks.empty()) {
      return std::string(name_of(part)) + ": the model has " + std::string(lacks);
    }
  }
  if (plan.recomputes(Part::ResidualStreams) && plan.recomputes(Part::Mlp)) {
    return "residual_streams beside mlp: Megatron-LM refuses it, each has its own checkpoints";
  }
  for (const Within& within : kWithin) {
    if (plan.recomputes(within.part) && plan.recomputes(within.whole)) {
      return std::string(name_of(within.part)) + " lies within " +
             std::string(name_of(within.whole));
    }
  }
  return "";
}

Recompute recompute_of(const JsonValue& value, const Plan& plan) {
  Recompute set;
  if (value.text == kRecomputeNames[2]) return Recompute::full();
  if (value.text == kRecomputeNames[1]) {
    return Recompute::selective(plan.runtime.selective_recompute);
  }
  for (const JsonValue& item : value.items) {
    const auto found = std::ranges::find(kRecomputePartNames, item.text);
    set.add(static_cast<Part>(found - kRecomputePartNames.begin()));
  }
  return set;
}

bool keeps_layer(const Plan& plan, std::int64_t layer) {
  if (plan.recompute_layers == 0 || !plan.recompute.any()) return false;
  std::int64_t first = 0;
  for (const std::int32_t layers : plan.stage_layers) {
    if (layer < first + layers) return layer - first >= plan.recompute_layers;
    first += layers;
  }
  const std::size_t behind = plan.prediction_stage < 0
                                 ? plan.stage_layers.size() - 1
                                 : static_cast<std::size_t>(plan.prediction_stage);
  const std::int64_t own = plan.stage_layers.empty() ? 0 : plan.stage_layers[behind];
  return own + layer - first >= plan.recompute_layers;
}

bool recomputes_streams(const Transformer& model, const Plan& plan) {
  return !plan.recompute.is_full() && plan.recomputes(Part::ResidualStreams) && streams(model) > 1;
}

std::string recompute_json(const Plan& plan) {
  const std::string_view word = word_of(plan.recompute);
  if (!word.empty()) return json_quoted(word);
  return "[" + list_of(plan, ", ", [](std::string_view name) { return json_quoted(name); }) + "]";
}

std::string recompute_text(const Plan& plan) {
  const std::string_view word = word_of(plan.recompute);
  if (!word.empty()) return std::string(word);
  return list_of(plan, " + ", [](std::string_view name) { return std::string(name); });
}

std::string recomputed_text(const Plan& plan) {
  if (!plan.recompute.any()) return "nothing is";
  if (plan.recompute.is_full()) return "every layer is";
  if (plan.recompute.is_word_selective()) return "attention is";
  const std::string parts = recompute_text(plan);
  return parts + (parts.find(" + ") == std::string::npos ? " is" : " are");
}

}  // namespace rehearse
