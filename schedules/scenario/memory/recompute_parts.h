// SPDX-License-Identifier: Apache-2.0
// Recomputation of parts of a layer: which of them a model and a runtime have, and their names.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "schedules/base/json_reader.h"
#include "schedules/model/model.h"
#include "schedules/scenario/plan.h"

namespace rehearse {

inline constexpr std::array<std::string_view, kNumRecomputeParts> kRecomputePartNames{
    "attention_core", "norm",           "mlp_activation", "expert_activation", "latent_up", "mlp",
    "experts",        "shared_experts", "delta_norm_out", "residual_streams"};

// Why the plan's parts cannot be computed again, in one line; empty: they can. REQUIRES: the plan's
// runtime is read. Legality: NVIDIA/Megatron-LM megatron/core/transformer/transformer_config.py.
std::string unfit_parts(const Transformer& model, const Plan& plan);
// The same of "full" and "selective".
std::string unfit_word(const Transformer& model, const Recompute& recompute);

// What `value` says, a word of kRecomputeNames or a list of parts; `selective` is the plan's
// runtime's. REQUIRES: the value is as the table of keys has it.
Recompute recompute_of(const JsonValue& value, const Plan& plan);

// Whether the plan computes other layers again, but not this one: plan.recompute_layers, of every
// chunk the first so many. Layers of prediction stand behind their chunk's own.
bool keeps_layer(const Plan& plan, std::int64_t layer);

// Whether streams (layer_mix.h) are computed again: of a block of layers, recompute_stream_layers
// of a chunk or all of them, what lies between its layers' blocks, before the backward of the last.
bool recomputes_streams(const Transformer& model, const Plan& plan);

// Whether what backwards compute again may stand in the plan's order as ops of its own, ahead of
// them (schedules/order/place_recompute.h): somebody asks for it, there is something to compute
// again, ranks that wait for gradients, room that is known under a limit, and no file that has its
// own opinion.
inline bool recomputes_in_advance(const Plan& plan) {
  const bool room = plan.memory_limit == 0 || plan.runtime.performer().keeps_slabs;
  return plan.places_recompute && plan.recompute.any() && plan.pipeline_parallel > 1 && room &&
         !plan.schedule.starts_with("file:");
}

// As a plan says it, in JSON: "full", or ["norm", "latent_up"]; and for people, in reports, answers
// and tables alike: "norm + latent_up".
std::string recompute_json(const Plan& plan);
std::string recompute_text(const Plan& plan);
// Subject and verb of a sentence: "nothing is", "norm + latent_up are".
std::string recomputed_text(const Plan& plan);

}  // namespace rehearse
