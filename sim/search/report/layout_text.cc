// SPDX-License-Identifier: Apache-2.0
// A plan on one line.
#include <fmt/format.h>

#include "schedules/scenario/plan_names.h"
#include "schedules/scenario/recompute_parts.h"
#include "sim/search/report/search_report.h"

namespace rehearse::sim {

std::string layout_text(const Plan& plan) {
  std::string text = fmt::format("tp {} pp {}", plan.tensor_parallel, plan.pipeline_parallel);
  if (plan.virtual_stages > 1) text += fmt::format("x{}", plan.virtual_stages);
  if (plan.context_parallel > 1) text += fmt::format(" cp {}", plan.context_parallel);
  text += expert_sizes(plan);
  text += fmt::format(" dp {}, micro-batch {}", plan.data_parallel, plan.micro_batch);
  if (plan.expert_parallel > 1 && plan.expert_dispatch != ExpertDispatch::AllToAll) {
    text += fmt::format(", {} dispatch", name_of(plan.expert_dispatch));
  }
  if (plan.pipeline_parallel > 1) text += ", " + plan.schedule;
  if (plan.zero_stage > 0) text += fmt::format(", ZeRO-{}", plan.zero_stage);
  if (plan.shard_group > 0) text += fmt::format(" over {}", plan.shard_group);
  if (plan.sequence_parallel && plan.tensor_parallel > 1) text += ", SP";
  if (plan.recompute.any()) {
    text += fmt::format(", {} recompute", recompute_text(plan));
  }
  if (plan.offload != OffloadMode::None) text += fmt::format(", offload {}", name_of(plan.offload));
  if (plan.precision.name != "bf16") text += ", " + plan.precision.name;
  return text;
}

}  // namespace rehearse::sim
