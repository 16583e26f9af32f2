// SPDX-License-Identifier: Apache-2.0
#include "schedules/scenario/keys/plan_aliases.h"

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <utility>

namespace rehearse {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 18> kAliases{{
    // NVIDIA/Megatron-LM megatron/training/arguments.py, megatron/core/model_parallel_config.py
    {"tensor_model_parallel_size", "tensor_parallel"},
    {"pipeline_model_parallel_size", "pipeline_parallel"},
    {"context_parallel_size", "context_parallel"},
    {"expert_model_parallel_size", "expert_parallel"},
    {"expert_tensor_parallel_size", "expert_tensor_parallel"},
    {"virtual_pipeline_model_parallel_size", "virtual_stages"},
    {"num_virtual_stages_per_pipeline_rank", "virtual_stages"},
    {"pipeline_model_parallel_layout", "stage_layers"},
    {"micro_batch_size", "micro_batch"},
    {"global_batch_size", "global_batch"},
    {"seq_length", "sequence_length"},
    {"recompute_granularity", "recompute"},
    // pytorch/torchtitan torchtitan/config/job_config.py; torch.distributed.pipelining
    {"tensor_parallel_degree", "tensor_parallel"},
    {"pipeline_parallel_degree", "pipeline_parallel"},
    {"context_parallel_degree", "context_parallel"},
    {"expert_parallel_degree", "expert_parallel"},
    {"pipeline_parallel_schedule", "schedule"},
    {"seq_len", "sequence_length"},
}};

}  // namespace

std::string_view plan_key(std::string_view word) {
  const auto found =
      std::ranges::find(kAliases, word, &std::pair<std::string_view, std::string_view>::first);
  return found == kAliases.end() ? word : found->second;
}

void rename_plan_keys(JsonValue& plan, JsonReport& report) {
  if (!plan.is(JsonKind::Object)) return;
  std::set<std::string> said;
  for (JsonMember& member : plan.members) {
    const std::string key(plan_key(member.key));
    if (!said.insert(key).second) {
      return report.fail(member.line, "plan." + member.key, "says " + key + " once more");
    }
    member.key = key;
  }
}

}  // namespace rehearse
