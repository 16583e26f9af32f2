// SPDX-License-Identifier: Apache-2.0
#include "schedules/scenario/keys/plan_use.h"

#include <algorithm>

#include "schedules/base/json_keys.h"
#include "schedules/scenario/keys/scenario_keys.h"

namespace rehearse {
namespace {

constexpr KeyUse X = KeyUse::Executed, Said = KeyUse::Said, P = KeyUse::Priced,
                 None = KeyUse::NoMeaning;

constexpr PlanKey kKeys[]{
    {"gpus model", X},
    {"cluster domain_gpus variation variation.seed variation.speed_sigma variation.jitter_sigma "
     "variation.slow",
     None, "", "", "any machine runs any scenario; predictions are for the cluster"},
    {"name $schema", None, "", "", "for people and editors"},
    {"plan.tensor_parallel plan.pipeline_parallel plan.context_parallel plan.data_parallel "
     "plan.sequence_parallel plan.zero_stage plan.data_parallel_algorithm plan.rank_order",
     X},
    {"plan.shard_group", P, "null", "1", "shards over a part of the replicas are priced"},
    {"plan.expert_parallel plan.expert_tensor_parallel plan.expert_dispatch plan.expert_capacity "
     "plan.expert_capacity.drop plan.expert_slots plan.overlap.expert_parallel",
     X},
    {"plan.expert_routing", None, "", "", "a run routes by the model"},
    {"plan.fp8_dispatch", None, "", "", "runtime rehearse refuses all but false"},
    {"plan.schedule plan.virtual_stages plan.stage_layers plan.microbatch_group_size "
     "plan.extra_warmup plan.sequence_slices plan.memory_limit",
     X},
    {"plan.micro_batch plan.global_batch plan.sequence_length", X},
    {"plan.recompute", P, R"(null | "none" | "selective" | "full")", R"(["norm"])",
     "parts of a layer are priced"},
    {"plan.offload plan.pad_vocabulary_to plan.bucket_bytes plan.prefetch", X},
    {"plan.overlap.gradient_reduce plan.overlap.parameter_gather", X},
    {"plan.overlap.tensor_parallel", P, "null | false", "true",
     "products in chunks beside their collectives are priced"},
    {"plan.precision plan.precision.parameters plan.precision.gradients "
     "plan.precision.optimizer plan.precision.compute",
     Said, "", "", "what the device has instead"},
    {"plan.optimizer", P, R"(null | "adamw")", R"("muon")", "another optimizer's update is priced"},
    {"plan.document_length", P, "null", "1024", "attention inside documents is priced"},
    {"plan.flash_attention", Said, "null | true", "false",
     "the executor has one kernel, which is fused: the same mathematics"},
    {"plan.attention_kernel", Said, R"(null | "flash1" | "flash2" | "flash3")", R"("eager")",
     "the executor has one kernel, which is fused: the same mathematics"},
    {"plan.overlap.pipeline", P, "null | true", "false",
     "compute that waits for transfers is priced"},
    {"plan.gradient_accumulation", P, R"(null | "fused")", R"("separate")",
     "a kernel that adds gradients is priced"},
    {"plan.cross_entropy", P, R"(null | "fused")", R"("eager")", "the loss so made is priced"},
    {"plan.eager_kernels", P, "null | []", R"(["norm"])", "kernels op by op are priced"},
    {"plan.gated_mlp", P, R"(null | "fused")", R"("split")", "two layers are priced"},
    {"plan.grouped_experts", P, "null | true", "false", "experts one after another are priced"},
    {"plan.sequence_gather", P, R"(null | "repeated")", R"("kept")", "kept outputs are priced"},
    {"plan.gradient_reduction", P, R"(null | "reduce_scatter")", R"("all_reduce_fp32")",
     "a whole sum in fp32 is priced"},
    {"plan.transfer_scatter_gather", P, "null | false", "true", "parts of transfers are priced"},
    {"plan.fp8_communication", P, R"(null | "none")", R"("gather")",
     "collectives in 8 bit are priced"},
    {"plan.deterministic", P, "null | true", "false", "kernels in any order are priced"},
    {"plan.context_parallel_balance", P, "null | true", "false",
     "contiguous parts of a sequence are priced"},
    {"plan.synchronous_launch", P, "null | false", "true", "a host that waits is priced"},
    {"plan.compiled", P, "null | false", "true", "kernels of a compiled program are priced"},
    {"plan.cuda_graphs", P, "null | false", "true", "launches of graphs are priced"},
    {"plan.checkpoint_early_stop", P, "null | false", "true",
     "recomputation that ends early is priced"},
    {"plan.dropout", X},
    {"plan.runtime", Said, R"(null | "rehearse")", R"("megatron")",
     "the runtime of a run is rehearse"},
    {"train.data train.steps train.learning_rate train.seed train.beta1 train.beta2 "
     "train.epsilon train.weight_decay train.weight_decay_matrices_only train.clip_norm "
     "train.warmup_steps train.lr_decay train.min_learning_rate train.checkpoint_every "
     "train.router_auxiliary_loss train.router_load_balancing train.router_z_loss "
     "train.router_bias_rate",
     X},
};

std::string code(std::string_view words) {
  std::string text;
  for (std::size_t at = 0; at < words.size();) {
    const std::size_t end = std::min(words.find(' ', at), words.size());
    text += (text.empty() ? "`" : ", `") + std::string(words.substr(at, end - at)) + "`";
    at = end + 1;
  }
  return text;
}

// Calls visit(path, member, row) for the members of the scenario, and of the objects inside it,
// whose value is beyond what their row lists.
template <class Visit>
void for_each_beyond(const JsonValue& object, const std::string& path, const Visit& visit) {
  for (const JsonMember& member : object.members) {
    const std::string at = join_key(path, member.key);
    if (at == "model" || at == "cluster") continue;
    const PlanKey* row = find_plan_key(at);
    if (row != nullptr && !row->runs.empty() && !is_one_of(&member.value, row->runs)) {
      visit(at, member, *row);
    }
    if (member.value.is(JsonKind::Object)) for_each_beyond(member.value, at, visit);
  }
}

// Chunks of attention are as samples of their own: whole ones.
std::string length_lacks(const Transformer& model, const Plan& plan) {
  const std::int64_t chunk = model.attention_chunk;
  const bool rest = chunk > 0 && plan.sequence_length > chunk && plan.sequence_length % chunk != 0;
  return rest ? "a last, shorter chunk of attention is priced" : "";
}

// The first stage has the embedding and the last one the head, but a stage between them without
// layers has no kernels at all, and so none that hands its input on.
bool has_empty_stage(const Plan& plan) {
  const std::vector<std::int32_t>& layers = plan.stage_layers;
  return layers.size() > 2 && std::find(layers.begin() + 1, layers.end() - 1, 0) < layers.end() - 1;
}

}  // namespace

std::span<const PlanKey> plan_keys() {
  return kKeys;
}

const PlanKey* find_plan_key(std::string_view path) {
  for (const PlanKey& row : kKeys) {
    for (std::size_t at = 0; at < row.keys.size();) {
      const std::size_t end = std::min(row.keys.find(' ', at), row.keys.size());
      if (row.keys.substr(at, end - at) == path) return &row;
      at = end + 1;
    }
  }
  return nullptr;
}

std::vector<Unperformed> unperformed_of(const JsonValue& scenario, const std::string& file) {
  std::vector<Unperformed> found;
  for_each_beyond(scenario, "", [&](const auto& path, const JsonMember& member, const auto& row) {
    if (row.use != KeyUse::Priced) return;
    found.push_back({.file = file,
                     .line = member.line,
                     .key = path,
                     .value = shown_value(member.value),
                     .priced = std::string(row.about)});
  });
  return found;
}

std::vector<std::string> said_of(const JsonValue& scenario) {
  std::vector<std::string> said;
  for_each_beyond(scenario, "", [&](const auto& path, const JsonMember& member, const auto& row) {
    if (row.use != KeyUse::Said) return;
    said.push_back(path + " " + shown_value(member.value) + ": " + std::string(row.about));
  });
  return said;
}

std::string plan_keys_text() {
  std::string text = "| keys | column | `run` performs | priced; said; why |\n|---|---|---|---|\n";
  for (const PlanKey& row : kKeys) {
    std::string performed = row.use == KeyUse::Executed ? "all" : "";
    for (std::size_t at = 0; at < row.runs.size();) {
      const std::size_t end = std::min(row.runs.find(" | ", at), row.runs.size());
      performed += (at == 0 ? "`" : ", `") + std::string(row.runs.substr(at, end - at)) + "`";
      at = end + 3;
    }
    text += "| " + code(row.keys) + " | " + std::string(name_of(row.use)) + " | " + performed +
            " | " + std::string(row.about) + " |\n";
  }
  return text;
}

std::string later_keys_text() {
  std::string text;
  const auto list = [&](const std::string& what, std::span<const std::string_view> words) {
    if (words.empty()) return;
    text += "- " + what + ": ";
    for (const std::string_view word : words) {
      text += (word == words.front() ? "`" : ", `") + std::string(word) + "`";
    }
    text += '\n';
  };
  const auto walk = [&](const auto& self, const KeyTable& table, const std::string& path) -> void {
    list(path.empty() ? "top level" : "`" + path + "`", table.later);
    for (const KeySpec& spec : table.keys) {
      const std::string at = join_key(path, spec.name);
      list("values of `" + at + "`", spec.later);
      if (spec.members != nullptr) self(self, *spec.members, at);
    }
  };
  walk(walk, scenario_key_table(), "");
  return text;
}

std::vector<Unperformed> unperformed_pairs(const Transformer& model, const Plan& plan,
                                           const JsonValue& scenario, const std::string& file) {
  std::vector<Unperformed> found;
  const auto add = [&](std::string_view key, std::int32_t value, const std::string& lacks) {
    if (lacks.empty()) return;
    const JsonValue* said = scenario.given("plan");
    const JsonMember* at = said == nullptr ? nullptr : said->find(key);
    found.push_back({.file = file,
                     .line = at == nullptr ? scenario.line : at->line,
                     .key = "plan." + std::string(key),
                     .value = std::to_string(value),
                     .priced = lacks});
  };
  add("sequence_length", static_cast<std::int32_t>(plan.sequence_length),
      length_lacks(model, plan));
  add("stage_layers", 0,
      has_empty_stage(plan) ? "a stage between the first and the last without layers is priced"
                            : "");
  return found;
}

}  // namespace rehearse
