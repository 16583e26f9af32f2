// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/plan_answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "schedules/base/counted.h"
#include "schedules/base/json_document.h"
#include "schedules/scenario/plan_line.h"
#include "schedules/scenario/plan_names.h"
#include "schedules/scenario/recompute_parts.h"
#include "schedules/scenario/scenario.h"
#include "schedules/scenario/stage_layers.h"
#include "schedules/trace/cause_words.h"
#include "sim/report/fit_text.h"
#include "sim/search/expert_advice.h"
#include "sim/search/report/search_report.h"
#include "viz/analysis/units_text.h"

namespace rehearse::cli {
namespace {

std::string seconds(double s) {
  const double value = s >= 1 ? s : s * 1e3;
  return fmt::format("{:.{}f} {}", value,
                     value >= 100  ? 0
                     : value >= 10 ? 1
                                   : 2,
                     s >= 1 ? "s" : "ms");
}
std::string gb(std::int64_t bytes) {
  return fmt::format("{:.1f} GB", static_cast<double>(bytes) * 1e-9);
}

std::string head(const PlanAnswer& a) {
  const std::int32_t nodes = (a.gpus + a.gpus_per_node - 1) / a.gpus_per_node;
  return fmt::format("{}, {:.4g} billion parameters, on {} x {} ({} of {})\n", a.model,
                     static_cast<double>(a.parameters) * 1e-9, a.gpus, a.gpu,
                     counted(nodes, "node"), a.cluster);
}

struct Share {
  std::string_view name;
  std::int64_t bytes = 0;
};
std::vector<Share> shares(const sim::MemoryParts& p) {
  return {{"parameters", p.parameters},
          {"gradients", p.gradients},
          {"optimizer", p.optimizer},
          {"activations", p.activations},
          {"buffers", p.buffers},
          {"workspace", p.workspace},
          {"outside the allocator", p.communicators + p.context}};
}

std::string memory(const sim::FoundPlan& plan) {
  std::vector<Share> parts = shares(plan.parts);
  std::ranges::stable_sort(parts, std::greater<>{}, &Share::bytes);
  std::string text;
  for (const Share& part : parts) {
    if (part.bytes * 200 < plan.peak_device) continue;  // below half a per cent
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", part.name, gb(part.bytes));
  }
  return text;
}

std::string batch(const Plan& p) {
  const std::string replicas =
      p.data_parallel == 1 ? "" : fmt::format(" on each of {} replicas", p.data_parallel);
  return fmt::format("{} of {} x {} tokens{}; {} recomputed",
                     counted(p.microbatches(), "micro-batch"), p.micro_batch, p.sequence_length,
                     replicas, recomputed_text(p));
}

// Verdict, and the worst day that it is said of.
std::string fit(const sim::FoundPlan& plan) {
  std::string text = fmt::format("{}: {} of {} on the fullest GPU\n", name_of(plan.verdict),
                                 gb(plan.peak_device), gb(plan.capacity));
  const bool tight = plan.verdict == sim::Verdict::Tight;
  std::string day = sim::day_words(plan.load);
  if (plan.bad_day == sim::BadDayCause::AllocatorMargin)
    day = "holes in the allocator take 5 % of it";
  if (!day.empty()) {
    text += fmt::format("bad day   {} when {}\n", tight ? "it breaks" : "it holds", day);
  }
  return text;
}

std::string where(const sim::FoundPlan& plan) {
  std::string text = fmt::format("computing {:.0f} %", 100 * plan.busy_s / plan.step_s);
  std::vector<std::pair<double, std::string_view>> causes;
  for (std::size_t c = 0; c < kNumIdleCauses; ++c) {
    causes.emplace_back(plan.causes_s[c] / plan.step_s, cause_word(c, plan.plan.gpus()));
  }
  std::ranges::stable_sort(causes, std::greater<>{}, [](const auto& cause) { return cause.first; });
  for (const auto& [share, name] : causes) {
    if (share >= 0.01) text += fmt::format(", {} {:.0f} %", name, 100 * share);
  }
  return text;
}

// Layouts within the band of their difference.
std::string near(const PlanAnswer& a) {
  if (a.near.empty()) return {};
  double widest = 0;
  for (const sim::NearPlan& one : a.near) widest = std::max(widest, one.band);
  const sim::NearPlan& next = a.near.front();
  return fmt::format(
      "near      {} within the band of their difference (up to {:.1f} %), which a measured step "
      "of\n"
      "          each tells apart; the next takes {}: {}\n",
      counted(static_cast<std::int64_t>(a.near.size()), "other layout"), 100 * std::expm1(widest),
      seconds(next.step_s), plan_line(next.plan));
}

std::string limits(const PlanAnswer& a) {
  std::string text;
  int told = 0;
  for (const sim::Sensitivity& s : a.sensitivities) {
    const double gain = a.fastest_s / s.step_s - 1;
    if (gain < 0.005 || ++told > 3) continue;
    text += fmt::format("{}{} +{:.0f} %: {:.1f} % faster", text.empty() ? "" : "; ", s.what,
                        100 * (s.factor - 1), 100 * gain);
  }
  return text;
}

// What Megatron-LM and its fork call alike.
std::string common_flags(const Plan& p) {
  return fmt::format(
      "--tensor-model-parallel-size {} --pipeline-model-parallel-size {} --micro-batch-size {} "
      "--global-batch-size {} --seq-length {}",
      p.tensor_parallel, p.pipeline_parallel, p.micro_batch, p.global_batch, p.sequence_length);
}

// Sharded gradients and parameters: Megatron-FSDP, which sets CUDA_DEVICE_MAX_CONNECTIONS free
// and has a checkpoint format of its own (megatron/training/arguments.py, d98e8a6).
std::string megatron_sharding(const Plan& p) {
  if (p.zero_stage == 0) return "";
  if (p.zero_stage == 1) return " --use-distributed-optimizer";
  return fmt::format(
      " --use-distributed-optimizer --use-megatron-fsdp --data-parallel-sharding-strategy {} "
      "--ckpt-format fsdp_dtensor, with CUDA_DEVICE_MAX_CONNECTIONS unset",
      p.zero_stage == 2 ? "optim_grads" : "optim_grads_params");
}

// Megatron-LM's words for parts of a layer (NVIDIA/Megatron-LM megatron/core/transformer/
// transformer_config.py, recompute_modules); empty: it computes the part again by no flag.
constexpr std::array<std::string_view, kNumRecomputeParts> kModules{
    "core_attn",      "layernorm",   "", "moe_act", "mla_up_proj", "mlp", "moe",
    "shared_experts", "gdn_norm_out"};

std::string recompute_flags(const Plan& p) {
  if (!p.recompute.any()) return "";
  if (p.recompute.is_full()) {
    return " --recompute-granularity full --recompute-method uniform --recompute-num-layers 1";
  }
  std::string text = " --recompute-granularity selective";
  if (p.recompute.is_word_selective()) return text;
  text += " --recompute-modules";
  for (std::size_t i = 0; i < kModules.size(); ++i) {
    if (p.recomputes(static_cast<RecomputePart>(i))) text += " " + std::string(kModules[i]);
  }
  return text;
}

// Flags of Megatron-LM's training scripts (megatron/training/arguments.py).
std::string megatron_flags(const Plan& p) {
  constexpr RecomputePart kUnsaid = RecomputePart::MlpActivation;
  if (!p.recompute.is_full() && p.recomputes(kUnsaid)) {
    return fmt::format("none: {} has none that compute {} again", p.runtime.title,
                       kRecomputePartNames[static_cast<std::size_t>(kUnsaid)]);
  }
  std::string text = common_flags(p);
  if (p.context_parallel > 1)
    text += fmt::format(" --context-parallel-size {}", p.context_parallel);
  if (p.expert_parallel > 1) {
    text += fmt::format(" --expert-model-parallel-size {} --expert-tensor-parallel-size {} ",
                        p.expert_parallel, p.expert_tensor_parallel);
    text += p.expert_dispatch == ExpertDispatch::Deduplicated
                ? "--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend deepep"
            : p.expert_dispatch == ExpertDispatch::AllGather
                ? "--moe-token-dispatcher-type allgather"
                : "--moe-token-dispatcher-type alltoall";
    text += p.runtime.grouped_experts ? " --moe-grouped-gemm" : "";
  }
  if (p.stage_layers != usual_stage_layers(p)) {
    text += fmt::format(" --pipeline-model-parallel-layout '{}'", layout_text(p.stage_layers));
  } else if (p.virtual_stages > 1) {
    text += fmt::format(" --num-virtual-stages-per-pipeline-rank {}", p.virtual_stages);
  }
  if (p.sequence_parallel && p.tensor_parallel > 1) text += " --sequence-parallel";
  return text + recompute_flags(p) + megatron_sharding(p);
}

// Before Megatron-FSDP.
std::string earlier_megatron_flags(const Plan& p) {
  if (p.zero_stage <= 1) return megatron_flags(p);
  return fmt::format("none: {} shards the optimizer's states alone, which is ZeRO-1",
                     p.runtime.title);
}

// Flags of microsoft/Megatron-DeepSpeed (megatron/arguments.py, examples_deepspeed/MoE).
std::string megatron_deepspeed_flags(const Plan& p) {
  std::string text = common_flags(p) + fmt::format(" --deepspeed --zero-stage {}", p.zero_stage);
  if (p.pipeline_parallel == 1) text += " --no-pipeline-parallel";
  if (p.expert_parallel > 1) {
    text += fmt::format(" --moe-expert-parallel-size {}", p.expert_parallel);
    if (p.expert_tensor_parallel > 1) text += " --enable-expert-tensor-parallelism";
  }
  if (p.sequence_parallel && p.tensor_parallel > 1) text += " --sequence-parallel";
  if (p.recompute.is_full()) {
    text += " --checkpoint-activations --deepspeed-activation-checkpointing";
  } else if (p.recompute.any()) {
    text += " --recompute-granularity selective";
  }
  return text;
}

// Whose arguments a runtime's profile stands for, the first whose name it begins with; or why there
// are none.
std::string flags_of(const Plan& plan) {
  struct Arguments {
    std::string_view runtimes;
    std::string (*flags)(const Plan&);
  };
  constexpr Arguments kArguments[]{{"megatron_deepspeed", megatron_deepspeed_flags},
                                   {"megatron_20", earlier_megatron_flags},
                                   {"megatron", megatron_flags}};
  for (const Arguments& one : kArguments) {
    if (plan.runtime.name.starts_with(one.runtimes)) return one.flags(plan);
  }
  return fmt::format("none: those of {} are not known here; the layout above is the plan",
                     plan.runtime.title);
}

Json plan_of(const sim::FoundPlan& plan) {
  return {{"step_time_s", plan.step_s},
          {"low_s", plan.low_s},
          {"high_s", plan.high_s},
          {"tokens_per_s", plan.tokens_per_s},
          {"mfu", plan.mfu ? Json(*plan.mfu) : Json(nullptr)},
          {"bubble_ratio", plan.bubble_ratio},
          {"peak_bytes", plan.peak_device},
          {"capacity_bytes", plan.capacity},
          {"verdict", name_of(plan.verdict)},
          {"bad_day",
           plan.bad_day == sim::BadDayCause::None ? Json(nullptr) : Json(name_of(plan.bad_day))},
          {"plan", Json::parse(plan_json(plan.plan, -1))}};
}

}  // namespace

std::string answer_text(const PlanAnswer& a) {
  std::string text = head(a);
  for (const std::string& one : a.assumed) text += "  assumed: " + one + "\n";
  if (!a.best) {
    text += fmt::format(
        "\nfits      NO: none of {} layouts fits into {} of a GPU on every day, whatever is "
        "sharded "
        "or recomputed\n",
        with_commas(static_cast<double>(a.considered)), gb(a.capacity));
    if (a.ways.empty()) return text + "          nothing that was tried makes it fit\n";
    for (const Way& way : a.ways) {
      text +=
          fmt::format("would fit {}: {} on the fullest GPU, {} a step ({})\n", way.what,
                      gb(way.plan.peak_device), seconds(way.plan.step_s), plan_line(way.plan.plan));
    }
    return text;
  }
  const sim::FoundPlan& best = *a.best;
  text += "\nfits      " + fit(best);
  text += fmt::format("step      {}, likely {} to {}; {} tokens/s, {} per GPU",
                      seconds(best.step_s), seconds(best.low_s), seconds(best.high_s),
                      with_commas(best.tokens_per_s), with_commas(best.tokens_per_s / a.gpus));
  if (best.mfu) {
    text += fmt::format("; MFU {:.0f} % of the peak in {}", 100 * *best.mfu,
                        name_of(best.plan.precision.compute));
  }
  text += "\nlayout    " + plan_line(best.plan) + layers_text(best.plan) + "\nbatch     " +
          batch(best.plan) + "\nmemory    " + memory(best) + "\ntime      " + where(best) + "\n";
  text += near(a);
  if (const std::string limit = limits(a); !limit.empty()) text += "limits    " + limit + "\n";
  if (a.experts) {
    const std::string said = sim::expert_advice_text(*a.experts, best);
    const std::size_t second = said.find('\n') + 1;
    constexpr std::size_t kWord = std::string_view("experts: ").size();
    text += "experts   " + said.substr(kWord, second - kWord) + "          " + said.substr(second);
  }
  text += "flags     " + flags_of(best.plan) + "\n";
  text += fmt::format("          the fastest of {} layouts for {}\n",
                      with_commas(static_cast<double>(a.considered)), best.plan.runtime.title);
  if (!a.saved.empty()) {
    text += fmt::format(
        "next      rehearse simulate {0}; rehearse simulate {0} --trace step.trace; "
        "rehearse view step.trace\n",
        a.saved);
  } else {
    text += "next      --save FILE writes it as a scenario for simulate, run and view\n";
  }
  return text;
}

std::string answer_json(const PlanAnswer& a) {
  Json json{{"schema", "rehearse.plan/1"},
            {"model", a.model},
            {"parameters", a.parameters},
            {"cluster", a.cluster},
            {"gpu", a.gpu},
            {"gpus", a.gpus},
            {"assumed", a.assumed},
            {"considered", a.considered},
            {"fits", a.best.has_value()}};
  json["best"] = a.best ? plan_of(*a.best) : Json(nullptr);
  json["near"] = Json::array();
  for (const sim::NearPlan& one : a.near) {
    json["near"].push_back({{"step_time_s", one.step_s},
                            {"difference_band", std::expm1(one.band)},
                            {"plan", Json::parse(plan_json(one.plan, -1))}});
  }
  json["ways"] = Json::array();
  for (const Way& way : a.ways) {
    Json row{{"what", way.what}};
    row.update(plan_of(way.plan));
    json["ways"].push_back(std::move(row));
  }
  json["limits"] = Json::array();
  for (const sim::Sensitivity& s : a.sensitivities) {
    json["limits"].push_back({{"what", s.what}, {"factor", s.factor}, {"step_time_s", s.step_s}});
  }
  json["experts"] = nullptr;
  if (a.experts) {
    const auto& other = a.experts->other;
    json["experts"] = {{"limit", name_of(a.experts->limit)},
                       {"tokens_cross_nodes", a.experts->crosses},
                       {"otherwise_step_time_s", other ? Json(other->step_s) : Json(nullptr)}};
  }
  return json.dump(2) + "\n";
}

}  // namespace rehearse::cli
