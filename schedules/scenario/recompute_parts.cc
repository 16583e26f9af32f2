// SPDX-License-Identifier: Apache-2.0
#include "schedules/scenario/recompute_parts.h"

#include "schedules/base/json_reader.h"
#include "schedules/scenario/plan_names.h"

namespace rehearse {
namespace {

using Part = RecomputePart;

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

// What a part is a part of, where the model lacks it.
std::string_view missing(const Transformer& model, Part part) {
  switch (part) {
    case Part::LatentUp:
      return model.latent.used() ? "" : "no compressed keys";
    case Part::ExpertActivation:
    case Part::Experts:
      return model.experts.count > 0 ? "" : "no experts";
    case Part::SharedExperts:
      return model.experts.shared_ffn_hidden > 0 ? "" : "no shared experts";
    case Part::MlpActivation:
    case Part::Mlp:
      return model.has_dense_layers() ? "" : "no dense layers";
    case Part::AttentionCore:
    case Part::Norm:
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
  for (const Within& within : kWithin) {
    if (plan.recomputes(within.part) && plan.recomputes(within.whole)) {
      return std::string(name_of(within.part)) + " lies within " +
             std::string(name_of(within.whole));
    }
  }
  return "";
}

std::string recompute_json(const Plan& plan) {
  const std::string parts =
      list_of(plan, ", ", [](std::string_view name) { return json_quoted(name); });
  return parts.empty() ? json_quoted(rehearse::name_of(plan.recompute)) : "[" + parts + "]";
}

std::string recompute_text(const Plan& plan) {
  const std::string parts =
      list_of(plan, " + ", [](std::string_view name) { return std::string(name); });
  return parts.empty() ? std::string(rehearse::name_of(plan.recompute)) : parts;
}

}  // namespace rehearse
