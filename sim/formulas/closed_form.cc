// SPDX-License-Identifier: Apache-2.0
#include "sim/formulas/closed_form.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace rehearse::sim {

double zero_model_state_bytes(double parameters, std::int32_t replicas, std::int32_t stage,
                              double optimizer_bytes) {
  const auto part = [&](double bytes, bool sharded) { return sharded ? bytes / replicas : bytes; };
  return parameters *
         (part(2, stage >= 3) + part(2, stage >= 2) + part(optimizer_bytes, stage >= 1));
}

double layer_activation_bytes(const ActivationShape& x, const Recompute& recompute,
                              bool sequence_parallel) {
  const double sbh = x.sequence * x.micro_batch * x.hidden, t = x.tensor_parallel;
  if (recompute.is_full()) return 2 * sbh;
  const bool core_again =
      recompute.has(RecomputePart::AttentionCore) || recompute.has(RecomputePart::Operators);
  const double core = core_again ? 0 : 5 * x.heads * x.sequence / x.hidden;
  if (sequence_parallel) return sbh / t * (34 + core);
  return sbh * (10 + (24 + core) / t);
}

double interleave_factor(double positions, double chunks) {
  return chunks > 1 ? 1 + (positions - 1) / (positions * chunks) : 1;
}

double first_position_activation_bytes(const ActivationShape& shape, const Recompute& recompute,
                                       bool sequence_parallel, double layers, double positions,
                                       double chunks) {
  return layers * layer_activation_bytes(shape, recompute, sequence_parallel) *
         interleave_factor(positions, chunks);
}

double extra_activation_bytes(const ActivationShape& x, double positions, double vocabulary) {
  const double sbh_t = x.sequence * x.micro_batch * x.hidden / x.tensor_parallel;
  const double head = positions == 1 ? 4 * sbh_t * (1 + vocabulary / x.hidden) : 0;
  return sbh_t * positions + head;
}

double output_tensor_bytes(const ActivationShape& x, double positions) {
  return 2 * x.sequence * x.micro_batch * x.hidden * positions;
}

double figure1_state_bytes(double hidden, double layers, double tensor_parallel, double positions) {
  return 18 * 12 * layers * hidden * hidden / (tensor_parallel * positions);
}

double narayanan_flops(double B, double s, double L, double h, double V) {
  return 96 * B * s * L * h * h * (1 + s / (6 * h) + V / (16 * L * h));
}

double korthikanti_model_flops(double B, double s, double L, double h, double V) {
  return 72 * B * s * L * h * h * (1 + s / (6 * h) + V / (12 * h * L));
}

double selective_hardware_flops(double B, double s, double L, double h, double V, bool paper) {
  const double core = 4 * B * L * s * s * h;
  return korthikanti_model_flops(B, s, L, h, V) + (paper ? 3 : 1) * core;
}

double palm_mfu(double tokens_per_second, double parameters, double layers, double heads,
                double head_dim, double sequence, double peak_flops) {
  const double per_token = 6 * parameters + 12 * layers * heads * head_dim * sequence;
  return tokens_per_second * per_token / peak_flops;
}

namespace {

// Bubble = (p-1) (F + I + W - lost W) / (chunked ? v : 1).
struct BubbleForm {
  std::string_view name;
  double weights_filled;  // how many W of 2 fit into the bubble beside the one that is work
  bool chunked;
};
constexpr std::array<BubbleForm, 8> kBubbleForms{{{"naive", 0, false},
                                                  {"gpipe", 0, false},
                                                  {"1f1b", 0, false},
                                                  {"eager_1f1b", 0, false},
                                                  {"interleaved_1f1b", 0, true},
                                                  {"looped_bfs", 0, true},
                                                  {"zb_h1", 2, false},
                                                  {"interleaved_zb1p", 2, true}}};

}  // namespace

std::optional<double> pipeline_bubble(std::string_view schedule, std::int32_t positions,
                                      std::int32_t chunks, const PositionTimes& times) {
  for (const BubbleForm& form : kBubbleForms) {
    if (form.name != schedule) continue;
    const double slot = times.sum() - form.weights_filled * times.weight;
    return (positions - 1) * slot / (form.chunked ? chunks : 1);
  }
  return std::nullopt;
}

std::optional<double> pipeline_bubble_overhead(std::string_view schedule, std::int32_t positions,
                                               std::int32_t microbatches, std::int32_t chunks,
                                               const PositionTimes& times) {
  const std::optional<double> bubble = pipeline_bubble(schedule, positions, chunks, times);
  if (!bubble) return std::nullopt;
  const double repeated = schedule == "naive" ? *bubble * microbatches : *bubble;
  return repeated / (microbatches * times.sum());
}

std::optional<double> pipeline_span(std::string_view schedule, std::int32_t positions,
                                    std::int32_t microbatches, std::int32_t chunks,
                                    const PositionTimes& times, double comm) {
  const double p = positions, m = microbatches, v = chunks, work = m * times.sum();
  const double F = times.forward, I = times.input, W = times.weight;
  if (schedule == "1f1b") {
    return work + (p - 1) * times.sum() + (2 * (p - 1) * (m / p + 1) - 2) * comm;
  }
  if (schedule == "interleaved_1f1b") {
    return work + (p - 1) * times.sum() / v + (2 * (p * v - 1) - p) * comm;
  }
  if (schedule == "zb_h1") return work + (p - 1) * (F + I - W) + 4 * (p - 1) * comm;
  if (schedule == "zb_h2") return work + (p - 1) * (F + I - 2 * W) + 2 * (p - 1) * comm;
  return std::nullopt;
}

std::optional<std::int32_t> peak_activations(std::string_view schedule, std::int32_t position,
                                             std::int32_t positions, std::int32_t microbatches,
                                             std::int32_t chunks) {
  const std::int32_t after = positions - position - 1;  // positions behind this one
  if (schedule == "naive") return 1;
  if (schedule == "gpipe") return microbatches;
  if (schedule == "looped_bfs") return microbatches * chunks;
  if (schedule == "1f1b") return std::min(microbatches, after + 1);
  if (schedule == "eager_1f1b") return std::min(microbatches, 2 * after + 1);
  if (schedule == "zb_h1") return std::min(microbatches, positions);
  if (schedule == "interleaved_1f1b") {
    return std::min(microbatches * chunks, (chunks - 1) * positions + 2 * after + 1);
  }
  return std::nullopt;
}

double ring_all_reduce_seconds(double bytes, double ranks, double latency, double bandwidth) {
  return 2 * ring_all_gather_seconds(bytes, ranks, latency, bandwidth);
}

double ring_all_gather_seconds(double bytes, double ranks, double latency, double bandwidth) {
  return (ranks - 1) * latency + (ranks - 1) / ranks * bytes / bandwidth;
}

double ring_broadcast_seconds(double bytes, double ranks, double latency, double bandwidth) {
  const double root = std::sqrt((ranks - 2) * latency) + std::sqrt(bytes / bandwidth);
  return root * root;
}

double through_root_seconds(double weights, double gradients, double outputs, double ranks,
                            double bandwidth) {
  return (weights + gradients + 2 * (ranks - 1) / ranks * outputs) / bandwidth;
}

double checkpoint_interval(double save, double mtbf) {
  return std::sqrt(2 * save * mtbf);
}

double goodput_loss(double interval, double save, double restart, double mtbf) {
  return save / interval + (interval / 2 + restart) / mtbf;
}

double daly_share(double interval, double save, double restart, double mtbf) {
  return interval / (mtbf * std::exp(restart / mtbf) * std::expm1((interval + save) / mtbf));
}

}  // namespace rehearse::sim
