// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/predict/directions.h"

#include <algorithm>
#include <optional>

#include "schedules/scenario/memory/recompute_parts.h"
#include "sim/predict/order_prices.h"
#include "sim/predict/predict.h"
#include "sim/report/overlap_note.h"
#include "sim/report/zero_order.h"

namespace rehearse::sim {
namespace {

// --- changes of hardware

template <class T>
void scale(std::optional<T>& value, double factor) {
  if (value) value = T{*value * factor};
}
void scale(BytesPerSecond& value, double factor) {
  value.value *= factor;
}
void scale(std::optional<BytesPerSecond>& value, double factor) {
  if (value) value->value *= factor;
}

bool faster_nics(RandomScenario& to) {
  if (to.cluster.nics.count == 0 || to.scenario.gpus <= to.cluster.gpus_per_node) return false;
  scale(to.cluster.nics.bandwidth_each, 2);
  if (to.cluster.fabric) scale(to.cluster.fabric->port_bandwidth, 2);
  return true;
}
bool faster_links(RandomScenario& to) {
  Cluster& c = to.cluster;
  ScaleUp& s = c.scale_up;
  for (auto* rate :
       {&s.bandwidth_per_gpu, &s.bandwidth_per_pair, &s.bandwidth_per_link, &s.reference,
        &c.gpu.nvlink, &c.gpu.c2c_to_cpu, &c.host.inter_socket,
        &c.gpu.calibration.all_reduce_8_asymptotic_busbw, &c.gpu.calibration.all_reduce_8_busbw,
        &c.gpu.calibration.nvls_busbw, &c.gpu.calibration.ring_busbw}) {
    scale(*rate, 2);
  }
  scale(c.gpu.pcie.bandwidth, 2);
  scale(c.pcie.bandwidth_per_link, 2);
  faster_nics(to);
  return to.scenario.gpus > 1;
}
bool more_flops(RandomScenario& to) {
  PeakRates& peaks = to.cluster.gpu.peaks;
  for (auto* rate :
       {&peaks.fp32_vector, &peaks.tf32, &peaks.fp16, &peaks.bf16, &peaks.fp8, &peaks.nvfp4}) {
    scale(*rate, 2);
  }
  return true;
}
bool faster_memory(RandomScenario& to) {
  scale(to.cluster.gpu.memory_bandwidth, 2);
  return true;
}
bool larger_memory(RandomScenario& to) {
  to.cluster.gpu.memory_capacity_gb *= 2;
  scale(to.cluster.gpu.usable_memory_gib, 2);
  return true;
}
bool lower_latency(RandomScenario& to) {
  to.cluster.scale_up.hop_latency_us /= 2;
  to.cluster.nics.one_way_latency_us /= 2;
  scale(to.cluster.gpu.calibration.all_reduce_8_alpha_us, 0.5);
  if (Fabric* fabric = to.cluster.fabric ? &*to.cluster.fabric : nullptr) {
    fabric->switch_latency_us /= 2;
    fabric->cable_latency_us_per_hop /= 2;
    fabric->between_pods_latency_us /= 2;
  }
  return to.scenario.gpus > 1;
}

// --- changes of a scenario

std::map<std::string, std::string>& plan(RandomScenario& to) {
  return to.text.plan;
}
std::string text_of(std::int64_t value) {
  return std::to_string(value);
}
// All of a plan that its other keys' values are the defaults of, said, so that the change is one.
void pin(RandomScenario& to) {
  const Plan& p = to.scenario.plan;
  plan(to)["runtime"] = json_quoted(p.runtime.name);
  plan(to)["global_batch"] = text_of(p.global_batch);
  plan(to)["micro_batch"] = text_of(p.micro_batch);
  if (p.expert_parallel > 1) {  // else 1 or tensor_parallel, as the replicas are
    plan(to)["expert_tensor_parallel"] = text_of(p.expert_tensor_parallel);
  }
}
bool times(RandomScenario& to, const char* key, std::int64_t value, std::int64_t factor) {
  pin(to);
  plan(to)[key] = text_of(value * factor);
  return true;
}

bool longer_sequence(RandomScenario& to) {
  return times(to, "sequence_length", to.scenario.plan.sequence_length, 2);
}
bool larger_batch(RandomScenario& to) {
  // Searched for every number of micro-batches anew (schedules/order/registry.cc).
  const std::string& name = to.scenario.plan.schedule;
  if (name == "v_half" || name == "v_min" || name == "zb_v") return false;
  return times(to, "global_batch", to.scenario.plan.global_batch, 2);
}
bool larger_micro_batch(RandomScenario& to) {
  times(to, "micro_batch", to.scenario.plan.micro_batch, 2);
  plan(to)["global_batch"] = text_of(2 * to.scenario.plan.global_batch);
  return true;
}

// A model of one's own has its sizes under the names of its dialect.
bool model_size(RandomScenario& to, const char* ours, const char* gpt2, std::int64_t value) {
  if (!to.text.model.starts_with('{')) return false;
  pin(to);
  to.text.set.push_back(std::string("model.") +
                        (to.scenario.model.model_type == "gpt2" ? gpt2 : ours) + '=' +
                        text_of(value));
  return true;
}
bool more_layers(RandomScenario& to) {
  const Plan& p = to.scenario.plan;
  const auto chunks = static_cast<std::int64_t>(p.stage_layers.size());
  const bool own_cut = to.text.has("stage_layers") || to.scenario.model.has_dense_layers();
  if (own_cut && to.scenario.model.experts.count > 0) return false;
  if (to.text.has("stage_layers")) return false;
  return model_size(to, "num_hidden_layers", "n_layer", to.scenario.model.layers + chunks);
}
bool wider_mlp(RandomScenario& to) {
  if (!to.scenario.model.has_dense_layers()) return false;
  return model_size(to, "intermediate_size", "n_inner", 2 * to.scenario.model.ffn_hidden);
}
bool larger_vocabulary(RandomScenario& to) {
  return model_size(to, "vocab_size", "vocab_size", 2 * to.scenario.model.vocabulary);
}

// What is computed again is not copied to the host, so beside that it may save time.
bool keeps_activations(const RandomScenario& of) {
  return !of.scenario.plan.offload.activations;
}
bool lists_parts(const Recompute& of) {
  return of.any() && !of.is_full() && !of.is_word_selective();
}
bool recompute(RandomScenario& to, bool from, const char* mode) {
  if (!from || !keeps_activations(to)) return false;
  pin(to);
  plan(to)["recompute"] = json_quoted(mode);
  return true;
}
bool selective(RandomScenario& to) {
  return recompute(to, !to.scenario.plan.recompute.any(), "selective");
}
bool full_after_selective(RandomScenario& to) {
  return recompute(to, to.scenario.plan.recompute.is_word_selective(), "full");
}
bool full(RandomScenario& to) {
  return recompute(to, !to.scenario.plan.recompute.any(), "full");
}
bool full_after_parts(RandomScenario& to) {
  if (!lists_parts(to.scenario.plan.recompute) || !keeps_activations(to)) return false;
  pin(to);
  plan(to)["recompute"] = "\"full\"";
  return true;
}
bool part(RandomScenario& to, const char* list) {
  if (to.scenario.plan.recompute.any() || !keeps_activations(to)) return false;
  pin(to);
  plan(to)["recompute"] = list;
  return true;
}
bool mlp_again(RandomScenario& to) {
  return part(to, R"(["mlp"])");
}
bool experts_again(RandomScenario& to) {
  return part(to, R"(["experts"])");
}

// One stage more of the same framework, in the same precision.
bool shard(RandomScenario& to, std::int32_t from) {
  const Plan& p = to.scenario.plan;
  if (p.zero_stage != from) return false;
  pin(to);
  plan(to)["zero_stage"] = text_of(from + 1);
  plan(to)["overlap.gradient_reduce"] = json_bool(p.overlap_gradient_reduce);
  plan(to)["overlap.parameter_gather"] = json_bool(p.overlap_parameter_gather);
  return true;
}
bool zero_1(RandomScenario& to) {
  return shard(to, 0);
}
bool zero_2(RandomScenario& to) {
  return shard(to, 1);
}
bool zero_3(RandomScenario& to) {
  return shard(to, 2);
}

// Half the replicas, of a plan that shards nothing over them, and as many micro-batches.
bool tensor_for_data(RandomScenario& to) {
  const Plan& p = to.scenario.plan;
  if (p.data_parallel % 2 != 0 || p.zero_stage > 0) return false;
  if (to.scenario.model.experts.count > 0 || p.global_batch % 2 != 0) return false;
  times(to, "tensor_parallel", p.tensor_parallel, 2);
  plan(to)["data_parallel"] = text_of(p.data_parallel / 2);
  plan(to)["global_batch"] = text_of(p.global_batch / 2);
  return true;
}
// Whole nodes more, where replicas divide no work: no link has less to carry than before. (On a
// mesh of direct links a larger group has more of them.)
bool more_replicas(RandomScenario& to) {
  const Plan& p = to.scenario.plan;
  const bool whole = p.gpus() / p.pipeline_parallel % to.cluster.gpus_per_node == 0 &&
                     to.cluster.scale_up.kind != ScaleUpKind::FullMesh;
  if (!whole || p.data_parallel == 1 || p.zero_stage > 0) return false;
  if (to.scenario.model.experts.count > 0 && p.expert_replicas() == 1) return false;
  times(to, "global_batch", p.global_batch, 2);
  plan(to)["data_parallel"] = text_of(p.data_parallel * 2);
  return true;
}
bool schedule(RandomScenario& to, std::string_view from, const char* name) {
  const Plan& p = to.scenario.plan;
  if (p.pipeline_parallel == 1 || p.schedule != from) return false;
  pin(to);
  plan(to)["schedule"] = json_quoted(name);
  return true;
}
bool one_f_one_b(RandomScenario& to) {
  return schedule(to, "gpipe", "1f1b");
}
bool gpipe_for_naive(RandomScenario& to) {
  return schedule(to, "naive", "gpipe");
}
bool overlap(RandomScenario& to, const char* key) {
  pin(to);
  plan(to)[std::string("overlap.") + key] = "true";
  return true;
}
bool hidden_reduction(RandomScenario& to) {
  const Plan& p = to.scenario.plan;
  return !p.overlap_gradient_reduce && p.replicas() > 1 && overlap(to, "gradient_reduce");
}
bool hidden_gather(RandomScenario& to) {
  const Plan& p = to.scenario.plan;
  return !p.overlap_parameter_gather && p.zero_stage > 0 && overlap(to, "parameter_gather");
}
bool hidden_transfers(RandomScenario& to) {
  const Plan& p = to.scenario.plan;
  return !p.overlap_pipeline && p.pipeline_parallel > 1 && overlap(to, "pipeline");
}
bool slow_rank(RandomScenario& to) {
  to.text.variation = R"({"slow": [{"ranks": "0", "speed": 0.8}]})";
  return !to.scenario.variation.any();
}
// The replica of rank 0 has a row of its own, whose ops take a ten-millionth longer.
bool own_row(RandomScenario& to) {
  to.text.variation = R"({"slow": [{"ranks": "0", "speed": 0.9999999}]})";
  return !to.scenario.variation.any();
}
bool value(RandomScenario& to, const char* key, const char* to_value, bool applies = true) {
  if (!applies) return false;
  pin(to);
  plan(to)[key] = to_value;
  return true;
}
// Products in fp32, all tensors as before. The update, which moves less without a copy of what it
// updates, must not be most of the step.
bool fp32(RandomScenario& to) {
  const Precision& p = to.scenario.plan.precision;
  const Plan& of = to.scenario.plan;
  if (of.microbatches() * of.microbatch_tokens() < 16384) return false;
  const std::string bytes = R"({"parameters": )" + text_of(p.parameters) + R"(, "gradients": )" +
                            text_of(p.gradients) + R"(, "optimizer": )" + text_of(p.optimizer) +
                            R"(, "compute": "fp32"})";
  return value(to, "precision", bytes.c_str(), p.compute == ComputeType::Bf16);
}
bool eight_bit_moments(RandomScenario& to) {
  const bool adamw = to.scenario.plan.optimizer == Optimizer::AdamW;
  return value(to, "optimizer", "\"adamw_8bit\"", adamw);
}
// A fused kernel computes its scores again in the backward: products in fp32 are too dear for that.
bool fused_attention(RandomScenario& to) {
  const Plan& p = to.scenario.plan;
  to.text.plan.erase("flash_attention");
  const bool in_16_bit = p.precision.compute != ComputeType::Fp32;
  const bool eager = !p.flash_attention && !p.runtime.own_executor;  // which has one kernel
  return value(to, "attention_kernel", "\"flash2\"", eager && in_16_bit);
}
bool no_offload(const RandomScenario& of) {
  return !of.scenario.plan.offload.any();
}
bool host_optimizer(RandomScenario& to) {
  return value(to, "offload", "\"optimizer\"", no_offload(to));
}
bool host_activations(RandomScenario& to) {
  return value(to, "offload", "\"activations\"", no_offload(to));
}
bool unbalanced(RandomScenario& to) {
  const bool even = to.scenario.plan.expert_routing == ExpertRouting::Balanced;
  return value(to, "expert_routing", "1.5", even && to.scenario.model.experts.count > 0);
}
bool documents(RandomScenario& to) {
  return value(to, "document_length", "200", to.scenario.plan.document_length == 0);
}
bool fewer_shards(RandomScenario& to) {
  const Plan& p = to.scenario.plan;
  const bool whole = p.zero_stage > 0 && p.shard_group == 0 && p.replicas() % 2 == 0;
  return value(to, "shard_group", text_of(p.replicas() / 2).c_str(), whole);
}
bool waiting_host(RandomScenario& to) {
  for (const char* key : {"gradient_reduce", "parameter_gather", "tensor_parallel", "pipeline"}) {
    to.text.plan.erase(std::string("overlap.") + key);
  }
  return value(to, "synchronous_launch", "true", !to.scenario.plan.runtime.synchronous_launch);
}
bool graphs(RandomScenario& to) {
  return value(to, "cuda_graphs", "true", !to.scenario.plan.runtime.cuda_graphs.whole);
}
bool compiled(RandomScenario& to) {
  return value(to, "compiled", "true", !to.scenario.plan.runtime.compiled);
}
bool split_norms(RandomScenario& to) {
  const Plan& p = to.scenario.plan;
  return value(to, "sequence_parallel", "true", !p.sequence_parallel && p.tensor_parallel > 1);
}
bool masks(RandomScenario& to) {
  return value(to, "dropout", "0.1", plan(to)["dropout"] == "0");
}

std::string overlap_said(const RandomScenario& of) {
  const Result<Prediction> made = predict(of.scenario, of.cluster, {.lifetimes = false});
  return made ? overlap_note(of.scenario, of.cluster, made.value()) : "";
}
std::string zero_said(const RandomScenario& of) {
  const Result<Prediction> made = predict(of.scenario, of.cluster);
  if (!made) return "";
  return zero_order_note(of.scenario.model, made.value(), of.cluster,
                         order_prices(made.value().models));
}

// Which of two transfers goes first is decided as they come, and what waits for the one that goes
// second may be more than what waits for the other (the anomalies of list scheduling: Graham,
// 1969).
constexpr double kTurns = 0.005;

constexpr Direction kDirections[]{
    {"links twice as fast", faster_links, Way::NoMore, Way::Any, kTurns, kTurnsWhy},
    {"NICs twice as fast", faster_nics, Way::NoMore, Way::Any, kTurns, kTurnsWhy},
    {"twice the FLOP/s", more_flops, Way::NoMore, Way::Any, kTurns, kTurnsWhy},
    {"memory twice as fast", faster_memory, Way::NoMore, Way::Any, kTurns, kTurnsWhy},
    {"half the latency", lower_latency, Way::NoMore, Way::Any, kTurns, kTurnsWhy},
    {"twice the memory", larger_memory, Way::NoMore, Way::NoLess},
    {"sequences twice as long", longer_sequence, Way::NoLess, Way::NoLess, kTurns, kTurnsWhy},
    {"twice the micro-batches", larger_batch, Way::NoLess, Way::NoLess, kTurns, kTurnsWhy},
    {"micro-batches twice as large", larger_micro_batch, Way::NoLess, Way::NoLess, kTurns,
     kTurnsWhy},
    {"a layer more on every chunk", more_layers, Way::NoLess, Way::NoLess, kTurns, kTurnsWhy},
    {"an MLP twice as wide", wider_mlp, Way::NoLess, Way::NoLess, kTurns, kTurnsWhy},
    {"twice the vocabulary", larger_vocabulary, Way::NoLess, Way::NoLess, kTurns, kTurnsWhy},
    {"recompute none to selective", selective, Way::NoLess, Way::NoMore, kTurns, kTurnsWhy},
    {"recompute none to full", full, Way::NoLess, Way::NoMore, kTurns, kTurnsWhy},
    {"recompute selective to full", full_after_selective, Way::NoLess, Way::NoMore, kTurns,
     kTurnsWhy},
    {"recompute parts to full", full_after_parts, Way::NoLess, Way::NoMore, kTurns, kTurnsWhy},
    {"recompute none to mlp", mlp_again, Way::NoLess, Way::NoMore, kTurns, kTurnsWhy},
    {"recompute none to experts", experts_again, Way::NoLess, Way::NoMore, kTurns, kTurnsWhy},
    {"zero_stage 0 to 1", zero_1, Way::Any, Way::NoMore, 0, {}, zero_said},
    {"zero_stage 1 to 2", zero_2, Way::Any, Way::NoMore, 0, {}, zero_said},
    {"zero_stage 2 to 3", zero_3, Way::Any, Way::NoMore, 0, {}, zero_said},
    {"tensor parallel for data parallel", tensor_for_data, Way::Any, Way::NoMore},
    {"replicas with their samples", more_replicas, Way::NoLess, Way::NoMore, kTurns, kTurnsWhy},
    {"1F1B for GPipe", one_f_one_b, Way::Any, Way::NoMore},
    {"GPipe for naive", gpipe_for_naive, Way::NoMore, Way::Any},
    {"reduction beside the backward", hidden_reduction, Way::NoMore, Way::Any, 0, {}, overlap_said},
    {"gathers beside the forward", hidden_gather, Way::NoMore, Way::Any, kTurns, kTurnsWhy},
    {"transfers beside compute", hidden_transfers, Way::NoMore, Way::Any, kTurns, kTurnsWhy},
    {"a slow rank", slow_rank, Way::NoLess, Way::Any, kTurns, kTurnsWhy},
    {"a replica that is told apart", own_row, Way::Same, Way::Any, 1e-5,
     "its ops take a ten-millionth longer"},
    {"products in fp32", fp32, Way::NoLess, Way::Any, 0.03,
     "nothing is cast, and the update moves less"},
    {"moments in 8 bit", eight_bit_moments, Way::NoMore, Way::NoMore},
    {"fused attention", fused_attention, Way::NoMore, Way::NoMore, 0.02,
     "its backward computes the scores again, which costs more than it saves where they are few"},
    {"optimizer states in host memory", host_optimizer, Way::NoLess, Way::NoMore},
    {"activations in host memory", host_activations, Way::NoLess, Way::NoMore, 0.01,
     "the host issues a layer's kernels in other portions"},
    {"experts with more rows than others", unbalanced, Way::NoLess, Way::NoLess, kTurns, kTurnsWhy},
    {"attention inside documents", documents, Way::NoMore, Way::Any, kTurns, kTurnsWhy},
    {"shards over half of the replicas", fewer_shards, Way::Any, Way::NoLess},
    {"a host that waits for every kernel", waiting_host, Way::NoLess, Way::Any},
    {"segments in one launch", graphs, Way::NoMore, Way::Any, kTurns, kTurnsWhy},
    {"compiled kernels", compiled, Way::NoMore, Way::Any, kTurns, kTurnsWhy},
    {"norms split over the tensor-parallel ranks", split_norms, Way::Any, Way::NoMore},
    {"dropout", masks, Way::NoLess, Way::NoLess, kTurns, kTurnsWhy},
};

}  // namespace

std::span<const Direction> directions() {
  return kDirections;
}

}  // namespace rehearse::sim
