// SPDX-License-Identifier: Apache-2.0
// What is computed again, what lies in host memory, and what is padded.
#include "schedules/scenario/memory/offload.h"
#include "schedules/scenario/memory/recompute_parts.h"
#include "schedules/scenario/reader/given_keys.h"
#include "schedules/scenario/reader/plan_steps.h"

namespace rehearse {
namespace {

// A mode, or a list of parts of the model's layers that the backward computes again.
void read_recompute(const GivenKeys& keys, Plan& plan) {
  const JsonValue* value = keys.given(&Plan::recompute);
  if (value == nullptr) return;
  plan.recompute = recompute_of(*value, plan);
  if (keys.context.model != nullptr) {
    const std::string why = unfit_word(*keys.context.model, plan.recompute);
    if (!why.empty()) return keys.fail(&Plan::recompute, why, true);
  }
  if (!value->is(JsonKind::Array)) return;
  if (plan.runtime.performer().fixed_traits && !keys.names_runtime()) {
    plan.recompute = {};  // `run` refuses the key
    return;
  }
  const std::string why =
      keys.context.model == nullptr ? "" : unfit_parts(*keys.context.model, plan);
  if (!why.empty()) keys.fail(&Plan::recompute, why);
}

}  // namespace

void read_memory(const GivenKeys& keys, Plan& plan) {
  read_recompute(keys, plan);
  const JsonValue* apart = keys.given(&Plan::places_recompute);
  plan.recomputes_in_place = apart != nullptr && !apart->boolean;
  if (const JsonValue* value = keys.given(&Plan::offload)) plan.offload = offload_of(*value);
  if (const std::string why = unfit_offload(plan); !why.empty()) {
    return keys.fail(&Plan::offload, why);
  }
  if (plan.offload_to == OffloadTarget::Nvme && plan.offload.activations &&
      !plan.offload.optimizer && !plan.offload.parameters) {
    return keys.fail(&Plan::offload_to,
                     "nvme: activations go to the host's memory; optimizer and parameters rest on "
                     "drives");
  }
  if (!plan.offload.any()) plan.offload_to = OffloadTarget::Host;
  if (plan.offload.activations && plan.sequence_slices > 1) {
    return keys.fail(
        &Plan::offload,
        "activations of a sequence in slices stay on the device: later slices read them", true);
  }
  if (plan.offload.activations && plan.recompute_layers > 0 &&
      !plan.runtime.performer().keeps_slabs) {
    return keys.fail(&Plan::recompute_layers,
                     "activations in host memory are priced where all layers or none are computed "
                     "again",
                     true);
  }
  if (plan.offload.activations && !plan.recompute.is_full() &&
      plan.recomputes(RecomputePart::ResidualStreams)) {
    return keys.fail(&Plan::offload,
                     "activations beside " + std::string(key_of(&Plan::recompute)) +
                         " residual_streams: Megatron-LM refuses it, streams are made again "
                         "before what is in host memory is back",
                     true);
  }
  if (plan.loss_chunks > 1 && plan.has_parameter_server()) {
    return keys.fail(&Plan::loss_chunks,
                     "one rank computes the loss of all outputs at once with "
                     "data_parallel_algorithm parameter_server",
                     true);
  }
  if (plan.offload.activations && plan.offload_activations == OffloadedActivations::Checkpoints &&
      !plan.recompute.is_full()) {
    return keys.fail(&Plan::offload_activations,
                     "checkpoints: no layer is computed again from its input: " +
                         std::string(key_of(&Plan::recompute)) + " is not full");
  }
  if (plan.offload.activations && plan.offload_activations == OffloadedActivations::Chosen &&
      !plan.runtime.performer().keeps_slabs) {
    return keys.fail(&Plan::offload_activations,
                     "chosen is of runtime rehearse, which counts by prices how many layers leave "
                     "for nothing; no framework does (Megatron-LM is told a number, "
                     "--cpu-offloading-num-layers): of " +
                         plan.runtime.name + " all, checkpoints");
  }
  plan.pad_vocabulary_to = keys.integer(&Plan::pad_vocabulary_to, plan.runtime.pad_vocabulary_to);
  if (keys.context.model == nullptr) return;
  const std::int64_t multiple = plan.pad_vocabulary_to * plan.tensor_parallel;
  plan.padded_vocabulary = (keys.context.model->vocabulary + multiple - 1) / multiple * multiple;
}

}  // namespace rehearse
