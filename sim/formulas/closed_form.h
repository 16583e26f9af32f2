// SPDX-License-Identifier: Apache-2.0
// The papers' formulas: oracles for tests and quick estimates, never the model.
//
// The simulator and the memory replay do not use these; tests hold both against them where the
// paper's assumptions are met. Letters as in the papers: s sequence, b micro-batch, h hidden, a
// heads, L layers, V vocabulary, t tensor-parallel, p positions, v chunks, m micro-batches.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "schedules/scenario/plan.h"

namespace rehearse::sim {

// --- Model states ------------------------------------------------------------

// Rajbhandari et al., ZeRO, arXiv 1910.02054, Figure 1 and Table 1: bytes of one of `replicas`
// ranks, for 16-bit weights and gradients and `optimizer_bytes` (12 = fp32 copy and two moments)
// per parameter. Stage 0 is plain data parallelism. [B]
double zero_model_state_bytes(double parameters, std::int32_t replicas, std::int32_t stage,
                              double optimizer_bytes = 12);

// --- Activations
// -----------------------------------------------------------------------------

// Korthikanti et al., Reducing Activation Recomputation, arXiv 2205.05198 (GPT layers, 16-bit,
// dropout, unfused attention).
struct ActivationShape {
  double sequence = 0, micro_batch = 0, hidden = 0, heads = 0;  // s, b, h, a
  double tensor_parallel = 1;                                   // t
};

// Bytes kept per layer: none: Eq. 1 (t = 1), Eq. 2 (t > 1), Eq. 4 (with sequence parallelism);
// selective: the same without the attention core 5as/h (Section 5, Eq. 6 with sequence
// parallelism); full: 2sbh, the layer's input. [B]
double layer_activation_bytes(const ActivationShape& shape, const Recompute& recompute,
                              bool sequence_parallel);

// Section 4.2.3: the first position keeps p micro-batches of L/p layers, whatever p; interleaving
// multiplies by 1 + (p-1)/(pv).
double interleave_factor(double positions, double chunks);
// Eq. 5 and its variants: layers of the first position. [B]
double first_position_activation_bytes(const ActivationShape& shape, const Recompute& recompute,
                                       bool sequence_parallel, double layers, double positions,
                                       double chunks);
// Section 4.3, what Eq. 5 leaves out on the first position: sbhp/t of the embedding's dropout; and
// 4sbh/t (1 + V/h) of the head where p = 1. [B]
double extra_activation_bytes(const ActivationShape& shape, double positions, double vocabulary);
// Appendix B: output tensors that may be freed once sent, p of 2sbh. [B]
double output_tensor_bytes(const ActivationShape& shape, double positions);
// Weights, gradients and optimizer states of one rank as Figure 1 counts them: 18 bytes for each of
// 12 L h^2 / (tp) parameters, without embedding and biases. [B]
double figure1_state_bytes(double hidden, double layers, double tensor_parallel, double positions);

// --- FLOPs of one step
// ----------------------------------------------------------------------------

// Narayanan et al., Efficient Large-Scale Language Model Training, arXiv 2104.04473, Section 5.1:
// with full recomputation, 96 B s L h^2 (1 + s/6h + V/16Lh); B samples per step.
double narayanan_flops(double samples, double sequence, double layers, double hidden,
                       double vocabulary);
// Korthikanti et al., Eq. 7: without recomputation, 72 B s L h^2 (1 + s/6h + V/12hL).
double korthikanti_model_flops(double samples, double sequence, double layers, double hidden,
                               double vocabulary);
// Selective recomputation really repeats 4 B L s^2 h (the text of Appendix A, the forward pass of
// the attention core). Eq. 8 of the paper adds three times that: `paper` gives its number.
double selective_hardware_flops(double samples, double sequence, double layers, double hidden,
                                double vocabulary, bool paper);
// Chowdhery et al., PaLM, arXiv 2204.02311, Appendix B: MFU of N parameters, a heads of
// dimension d, from tokens per second and the peak of the whole machine [FLOP/s].
double palm_mfu(double tokens_per_second, double parameters, double layers, double heads,
                double head_dim, double sequence, double peak_flops);

// --- Pipelines
// -----------------------------------------------------------------------------

// Times of one position for one micro-batch, all its chunks together; any unit.
struct PositionTimes {
  double forward = 1, input = 1, weight = 1;  // F, I, W
  double sum() const { return forward + input + weight; }
};

// Makespan of a step minus the work of a rank, transfers taking no time. Empty for a schedule
// without a closed form. naive, gpipe, 1f1b, eager_1f1b: (p-1)(F+I+W), interleaved_1f1b and
// looped_bfs: a v-th of it [Narayanan et al., Section 2.2]; zb_h1, interleaved_zb1p: (p-1)(F+I-W)
// and its v-th [Qi et al., Zero Bubble, arXiv 2401.10241, Table 2]. Holds where N = p, m >= p.
std::optional<double> pipeline_bubble(std::string_view schedule, std::int32_t positions,
                                      std::int32_t chunks, const PositionTimes& times);
// Bubble overhead (bubble / work) of m micro-batches; for naive m times the bubble of one.
std::optional<double> pipeline_bubble_overhead(std::string_view schedule, std::int32_t positions,
                                               std::int32_t microbatches, std::int32_t chunks,
                                               const PositionTimes& times);
// Longest span of a rank with transfers of `comm`, in the closed forms that reproduce Tables 5 and
// 9 of Zero Bubble (data/validation/zero_bubble_bubbles.json): 1f1b, interleaved_1f1b, zb_h1,
// zb_h2. 1f1b REQUIRES m to be a multiple of p.
std::optional<double> pipeline_span(std::string_view schedule, std::int32_t positions,
                                    std::int32_t microbatches, std::int32_t chunks,
                                    const PositionTimes& times, double comm);

// Most stage-chunk activations alive at once on a position (0-based), freed at B or W. gpipe: m;
// looped_bfs: mv; 1f1b: min(m, p-i); eager_1f1b: min(m, 2(p-i)-1); interleaved_1f1b with N = p:
// min(mv, (v-1)p + 2(p-i-1) + 1); zb_h1: min(m, p). Empty for other names.
std::optional<std::int32_t> peak_activations(std::string_view schedule, std::int32_t position,
                                             std::int32_t positions, std::int32_t microbatches,
                                             std::int32_t chunks);

// --- Collectives
// -----------------------------------------------------------------------------

// Ring all-reduce and ring all-gather (= reduce-scatter) of S bytes over n ranks, a step taking
// `latency` [s] and `bandwidth` [B/s]: 2(n-1) a + 2(n-1)/n S/B, and half of it. [s]
double ring_all_reduce_seconds(double bytes, double ranks, double latency, double bandwidth);
double ring_all_gather_seconds(double bytes, double ranks, double latency, double bandwidth);
// Ring broadcast cut into the best number of chunks: (sqrt((n-2) a) + sqrt(S/B))^2. [s]
double ring_broadcast_seconds(double bytes, double ranks, double latency, double bandwidth);
// DataParallel through one rank, a micro-batch: rings bring W bytes of weights and sum G of
// gradients; outputs of all replicas, O bytes, come to the root and their gradients go back, all
// but the root's own through its link. No latencies. [s]
double through_root_seconds(double weights, double gradients, double outputs, double ranks,
                            double bandwidth);

// --- Long runs
// -----------------------------------------------------------------------------

// Young/Daly: interval between checkpoints that take `save`, at one failure per `mtbf`: sqrt(2 d
// M).
double checkpoint_interval(double save, double mtbf);
// Share of time lost to saving, to lost work and to restarts: d/T + (T/2 + r)/M.
double goodput_loss(double interval, double save, double restart, double mtbf);
// Share of time that makes progress where failures are exponential and end checkpoints and restarts
// too: T / (M e^(r/M) (e^((T+d)/M) - 1)). Daly, A higher order estimate of the optimum checkpoint
// interval for restart dumps, FGCS 22 (2006), eq. 20 (unverified).
double daly_share(double interval, double save, double restart, double mtbf);

}  // namespace rehearse::sim
