// SPDX-License-Identifier: Apache-2.0
#include "sim/report/plan_remarks.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "schedules/body/leaving.h"
#include "schedules/ir/payload.h"
#include "schedules/ir/placed_recompute.h"
#include "schedules/scenario/keys/plan_rows.h"

namespace rehearse::sim {
namespace {

// Every profile sums attention's and the MLP's output by itself, as transformers' own plan does
// (gpt_neox: attention.dense and mlp.dense_4h_to_h, both "rowwise"); Megatron-LM has no such layer.
// EleutherAI/gpt-neox, megatron/model/transformer.py, adds both first and reduces once
// (`self.reduce`), in the forward alone.
std::string parallel_residual_remark(const Prediction& p, const Transformer& model) {
  if (!model.parallel_residual || p.plan.tensor_parallel == 1) return {};
  return fmt::format(
      "model.use_parallel_residual: with the profile of {} what attention and MLP give is summed "
      "over tp one after the other, so a step takes what it takes with false. EleutherAI's "
      "gpt-neox "
      "sums both at once in the forward; no profile here does",
      p.plan.runtime.title);
}

// Parameters that the host updates for one rank, the most of any.
std::int64_t updated_on_host(const Schedule& s, const Plan& plan) {
  std::int64_t most = 0;
  for (RankClass row{0}; row.value < s.num_rows(); ++row.value) {
    std::int64_t sum = 0;
    for (auto i = static_cast<std::size_t>(s.row_begin[row.index()]);
         i < static_cast<std::size_t>(s.row_begin[row.index() + 1]); ++i) {
      const Op& op = s.ops[i];
      if (op.kind != OpKind::OptimizerStep || op.stream == Stream::Compute) continue;
      sum += s.owned_elements(s.buckets[op.bucket.index()], plan.zero_stage);
    }
    most = std::max(most, sum);
  }
  return most;
}

std::string billions(std::int64_t parameters) {
  const auto n = static_cast<double>(parameters);
  return n >= 1e9 ? fmt::format("{:.2f} billion", n * 1e-9)
                  : fmt::format("{:.1f} million", n * 1e-6);
}

std::string host_update_remark(const Prediction& p, const Cluster& cluster) {
  const std::int64_t mine = updated_on_host(p.schedule, p.plan);
  if (mine == 0) return {};
  const std::int32_t ranks = std::min(p.gpus, cluster.gpus_per_node);
  std::string text = fmt::format(
      "plan.offload: the hosts update the parameters, {} for each rank and {} on each host of {}; "
      "their time is idle time of the cause host",
      billions(mine), billions(mine * ranks), ranks);
  if (p.plan.zero_stage == 0 && p.plan.replicas() > 1) {
    text += fmt::format(
        ". With zero_stage 0 each of the {} replicas updates all of its parameters; from 1 on they "
        "share the work",
        p.plan.replicas());
  }
  return text;
}

// How many of all stages' layers could leave and come back for nothing, by the rule by which
// our executor chooses (OffloadedActivations::Chosen) and the prices of the step's own ops.
struct Leaving {
  std::int64_t layers = 0, free = 0;
};
Leaving leaving_of(const Prediction& p) {
  using Part = std::pair<std::int32_t, std::int16_t>;  // stage, first segment
  std::map<Part, StageCopies> parts;                   // the most of any micro-batch
  for (std::int32_t i = 0; i < p.schedule.num_ops(); ++i) {
    const Op& op = p.schedule.ops[static_cast<std::size_t>(i)];
    if (!op.stage) continue;
    StageCopies& part = parts[{op.stage.value, op.segment_begin}];
    std::int64_t* const which = op.kind == OpKind::Forward ? &part.forward
                                : op.kind == OpKind::Backward || op.kind == OpKind::InputGradient
                                    ? &part.backward
                                : op.kind == OpKind::Offload ? &part.out
                                : op.kind == OpKind::Fetch   ? &part.in
                                                             : nullptr;
    if (which != nullptr) *which = std::max(*which, p.pricing.table.cost({i}).time.value);
  }
  std::map<std::int32_t, StageCopies> stages;
  for (const auto& [at, part] : parts) {
    StageCopies& stage = stages[at.first];
    stage.forward += part.forward;
    stage.backward += part.backward;
    stage.out += part.out;
    stage.in += part.in;
  }
  Leaving sum;
  for (const auto& [stage, copies] : stages) {
    const std::int64_t layers = layers_of(p.schedule.segments[static_cast<std::size_t>(stage)]);
    sum.layers += layers;
    if (copies.out > 0) sum.free += leaves_for_nothing(layers, copies);
  }
  return sum;
}

// How many activations leave, and how many could for nothing.
std::string offload_remark(const Prediction& p) {
  if (!p.plan.offload.activations) return {};
  std::int64_t bytes = 0;
  for (std::int32_t i = 0; i < p.schedule.num_ops(); ++i) {
    const Op& op = p.schedule.ops[static_cast<std::size_t>(i)];
    if (op.kind == OpKind::Offload && op.stage) bytes += payload_of(p.schedule, {i}).bytes();
  }
  const bool chosen = p.plan.offload_activations == OffloadedActivations::Chosen;
  std::string what;
  if (chosen) what = " and come back for nothing";
  if (!chosen && p.plan.runtime.performer().keeps_slabs) {
    what = "; offload_activations chosen finds how much does for nothing";
  } else if (!chosen && bytes > 0) {
    const Leaving leaving = leaving_of(p);
    what = fmt::format("; those of {} of {} layers could leave and come back for nothing",
                       leaving.free, leaving.layers);
  }
  return fmt::format("plan.offload: of a micro-batch {:.3g} GB of activations leave{}",
                     static_cast<double>(bytes) / 1e9 / p.plan.microbatches(), what);
}

// A framework's order with recomputation as ops of its own is a question, not what it does:
// NVIDIA/Megatron-LM@d98e8a6 megatron/core/pipeline_parallel/schedules.py, deepspeedai/DeepSpeed
// @83fd8f8 deepspeed/runtime/pipe/schedule.py and pytorch/pytorch@00722e6
// torch/distributed/pipelining/schedules.py have no such op.
std::string ahead_remark(const Prediction& p) {
  if (p.plan.runtime.performer().places_recompute || !PlacedRecompute(p.order).any()) return {};
  const bool file = p.plan.schedule.starts_with("file:");
  return fmt::format(
      "plan.{}: this is what it would be worth: {} computes again inside the backward, once the "
      "gradient is there. MindSpeed (--recompute-in-advance) and the zero-bubble fork of "
      "Megatron-LM have such an op",
      file ? key_of(&Plan::schedule) : key_of(&Plan::places_recompute), p.plan.runtime.title);
}

std::string milliseconds(double seconds) {
  return fmt::format("{:.4g} ms", 1e3 * seconds);
}

}  // namespace

std::string micro_batch_note(const Prediction& chosen, const std::string& cluster_id) {
  if (chosen.micro_batches.empty()) return {};
  std::string tried;
  const MicroBatchTried* next = nullptr;
  for (const MicroBatchTried& one : chosen.micro_batches) {
    tried += (tried.empty() ? "" : ", ") + std::to_string(one.micro_batch);
    if (!one.fits || one.micro_batch == chosen.plan.micro_batch) continue;
    if (next == nullptr || one.step_s < next->step_s) next = &one;
  }
  std::string said = fmt::format("plan.micro_batch: {}, ", chosen.plan.micro_batch);
  if (!chosen.memory.fits) return said + "though of " + tried + " none fits " + cluster_id;
  said += fmt::format("the fastest that fits of {}: {} per step predicted on {}", tried,
                      milliseconds(chosen.step_s), cluster_id);
  if (next != nullptr) {
    said += fmt::format(", next is {} with {}", next->micro_batch, milliseconds(next->step_s));
  }
  return said;
}

std::vector<std::string> plan_remarks(const Prediction& prediction, const Scenario& scenario,
                                      const Cluster& cluster) {
  std::vector<std::string> remarks;
  for (const std::string& text :
       {micro_batch_note(prediction, cluster.id) + prediction.micro_batch_note,
        parallel_residual_remark(prediction, scenario.model),
        host_update_remark(prediction, cluster), offload_remark(prediction),
        ahead_remark(prediction)}) {
    if (!text.empty()) remarks.push_back(text);
  }
  return remarks;
}

}  // namespace rehearse::sim
