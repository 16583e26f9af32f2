// SPDX-License-Identifier: Apache-2.0
#include "schedules/scenario/plan_line.h"

#include "schedules/scenario/memory/offload.h"
#include "schedules/scenario/memory/recompute_parts.h"
#include "schedules/scenario/plan_names.h"
#include "schedules/scenario/stage_layers.h"

namespace rehearse {
namespace {

std::string sized(std::string_view axis, std::int64_t size) {
  return std::string(axis) + ' ' + std::to_string(size);
}

std::string sizes_of(const Plan& plan) {
  std::string text = sized("tp", plan.tensor_parallel);
  if (const TensorGrid& grid = plan.tensor_parallel_2d; grid.any()) {
    text += " (" + std::to_string(grid.rows) + " x " + std::to_string(grid.columns) + ')';
  }
  text += sized(" pp", plan.pipeline_parallel);
  if (plan.virtual_stages > 1) text += 'x' + std::to_string(plan.virtual_stages);
  if (plan.context_parallel > 1) {
    text += sized(" cp", plan.context_parallel);
    if (plan.context_parallel_algorithm != ContextParallelAlgorithm::Ring) {
      text += ' ' + std::string(name_of(plan.context_parallel_algorithm));
    }
    if (plan.head_exchange_group > 0) text += sized(" heads over", plan.head_exchange_group);
  }
  if (plan.expert_parallel > 1) {
    text += sized(" ep", plan.expert_parallel);
    if (plan.expert_tensor_parallel > 1) text += sized(" etp", plan.expert_tensor_parallel);
  }
  return text + sized(" dp", plan.data_parallel);
}

}  // namespace

std::string plan_line(const Plan& plan) {
  std::string text = sizes_of(plan) + sized(", micro-batch", plan.micro_batch);
  const auto add = [&](const std::string& words) { text += ", " + words; };
  if (plan.expert_parallel > 1 && plan.expert_dispatch != ExpertDispatch::AllToAll) {
    add(std::string(name_of(plan.expert_dispatch)) + " dispatch");
  }
  if (plan.pipeline_parallel > 1) add(plan.schedule);
  if (plan.zero_stage > 0) add("ZeRO-" + std::to_string(plan.zero_stage));
  if (plan.shard_group > 0) text += sized(" over", plan.shard_group);
  if (plan.secondary_shard_group > 0) text += sized(" + hpZ", plan.secondary_shard_group);
  if (plan.quantized_gather == 8) text += " in 8 bit";
  if (plan.sequence_parallel && plan.tensor_parallel > 1) add("SP");
  if (plan.recompute.any()) add(recompute_text(plan) + " recompute");
  if (recomputes_in_advance(plan)) text += " in advance";
  if (plan.offload.any()) {
    add("offload " + offload_text(plan.offload) +
        (plan.offload_to == OffloadTarget::Nvme ? " to NVMe" : ""));
  }
  if (plan.precision.name != Precision{}.name) add(plan.precision.name);
  if (plan.optimizer != Plan{}.optimizer) add(std::string(name_of(plan.optimizer)));
  if (plan.overlap_expert_parallel == ExpertOverlap::Pair) add("forwards beside backwards");
  return text + layers_text(plan);
}

}  // namespace rehearse
