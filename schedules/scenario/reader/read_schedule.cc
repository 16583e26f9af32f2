// SPDX-License-Identifier: Apache-2.0
// The order of the pipeline, and how many chunks and slices it has.
#include "schedules/model/layer_mix.h"
#include "schedules/order/registry.h"
#include "schedules/scenario/reader/given_keys.h"
#include "schedules/scenario/reader/plan_steps.h"

namespace rehearse {
namespace {

void read_named_schedule(const GivenKeys& keys, Plan& plan, const std::string& name) {
  const std::int32_t p = plan.pipeline_parallel;
  const ScheduleInfo* info = find_schedule(name);
  if (info == nullptr) {
    return keys.fail(&Plan::schedule, unknown_schedule(name, json_excerpt(name)), true);
  }
  plan.schedule = info->name;
  const bool waves = info->chunks == ChunkRule::Waves;
  const bool many = info->chunks == ChunkRule::Many || waves;
  const bool shaped_v = info->chunks == ChunkRule::V || info->chunks == ChunkRule::BidirectionalV;
  const std::int32_t v = keys.size(&Plan::virtual_stages, many && p > 1 ? 2 : 1);
  if (info->one_stage && p > 1) {
    return keys.fail(&Plan::schedule,
                     plan.schedule + " has one stage, but pipeline_parallel is " + number(p));
  }
  const bool any = info->chunks == ChunkRule::Any;
  if (v > 1 && (many || any) && p == 1) {
    return keys.fail(&Plan::virtual_stages, number(v) + " chunks need pipeline_parallel > 1");
  }
  if (v > 1 && !many && !any && !(shaped_v && v == 2)) {
    return keys.fail(&Plan::virtual_stages, "schedule " + plan.schedule + " has " +
                                                (shaped_v ? "2 chunks" : "one chunk") +
                                                " per position, not " + number(v));
  }
  if (waves && p > 1 && v % 2 != 0) {
    return keys.fail(&Plan::virtual_stages,
                     plan.schedule + " needs an even number, two a wave, not " + number(v));
  }
  plan.virtual_stages = shaped_v ? 2 : v;
  plan.chunks_open = any && p > 1 && keys.given(&Plan::virtual_stages) == nullptr &&
                     keys.given(&Plan::stage_layers) == nullptr;
  plan.slices_open = any && keys.given(&Plan::sequence_slices) == nullptr;
  if (plan.microbatch_group_size > 0 && !info->grouped) {
    return keys.fail(&Plan::microbatch_group_size,
                     plan.schedule + " has no groups of micro-batches");
  }
  if (plan.extra_warmup > 0 && !info->extra_warmup) {
    return keys.fail(&Plan::extra_warmup, "only interleaved_1f1b takes it, not " + plan.schedule);
  }
  plan.sequence_slices = keys.size(&Plan::sequence_slices, info->sliced ? 4 : 1);
  if (plan.sequence_slices > 1 && keys.context.model != nullptr &&
      !kind_names(*keys.context.model).empty()) {
    return keys.fail(&Plan::sequence_slices,
                     "layers of kind " + kind_names(*keys.context.model).front() +
                         " hand a state from slice to slice, which is not built",
                     true);
  }
  if (plan.sequence_slices > 1 && !info->sliced && !any) {
    return keys.fail(&Plan::sequence_slices,
                     "schedule " + plan.schedule + " does not slice sequences");
  }
  if (plan.memory_limit > 0 && !info->planned) {
    return keys.fail(&Plan::memory_limit, plan.schedule + " is not planned for a limit");
  }
  if (info->planned && plan.memory_limit == 0 && !any) plan.memory_limit = info->default_memory;
}

// Chimera with forwards doubled is an order of its own. Backwards halved are the same order, of
// micro-batches with half the samples: read_batches halves them.
void read_chimera_scaling(const GivenKeys& keys, Plan& plan) {
  if (plan.chimera_scaling == ChimeraScaling::None) return;
  if (plan.schedule != "chimera") {
    return keys.fail(&Plan::chimera_scaling, "is of schedule chimera, not " + plan.schedule);
  }
  plan.schedule = "chimera_forward_doubling";
}

}  // namespace

void read_schedule(const GivenKeys& keys, Plan& plan) {
  const JsonValue* name = keys.given(&Plan::schedule);
  const std::int32_t p = plan.pipeline_parallel;
  const bool through_root = plan.data_parallel_algorithm == DataParallelAlgorithm::ParameterServer;
  if (name != nullptr && name->text.starts_with("file:")) {
    plan.schedule = name->text;
    read_chimera_scaling(keys, plan);
    if (through_root) {
      keys.fail(&Plan::schedule,
                "an order of a file is not run with parameter_server, whose "
                "micro-batches come one after another");
    }
    return;
  }
  read_named_schedule(keys, plan,
                      name != nullptr ? name->text
                      : p == 1        ? "none"
                                      : (plan.virtual_stages > 1 ? "interleaved_1f1b" : "1f1b"));
  read_chimera_scaling(keys, plan);
  if (through_root && plan.sequence_slices > 1) {
    keys.fail(&Plan::sequence_slices, "parameter_server sends whole samples, not slices");
  }
}

}  // namespace rehearse
