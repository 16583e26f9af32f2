// SPDX-License-Identifier: Apache-2.0
// The few numbers about a GPU type that prices rest on: what its kernels sustain of its peaks.
//
// One set per architecture, read from scenarios/kernels/<architecture>.json (each number with its
// source there), with deviations of single types; a cluster's calibration overrides by name.
// Nothing here belongs to one measured file or row. Architectures without a file get default.json
// and the level Datasheet.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "schedules/base/result.h"
#include "schedules/scenario/plan.h"
#include "sim/cluster/cluster.h"
#include "sim/cost/cost.h"
#include "sim/cost/rests_on.h"

namespace rehearse::sim {

// Classes of memory-bound kernels: each reaches its own share of the memory bandwidth.
enum class MemoryClass : std::uint8_t {
  Elementwise,
  Dropout,
  Activation,
  Norm,            // a kernel that goes over its input more than once
  NormPersistent,  // one that keeps a row in registers (Transformer Engine)
  Rope,
  Softmax,
  CrossEntropy,
  Optimizer,
  Convolution,  // of a few tokens, each column for itself, with the copies of its layouts
};
inline constexpr std::size_t kNumMemoryClasses = 10;

// A tile of the output that one SM works on, and the rate it reaches relative to the best one.
struct GemmTile {
  std::int32_t m = 0, n = 0;
  double rate = 1;
};

// A measured product: what interpolation needs of it.
struct GemmEfficiency {
  double ln_m = 0, ln_n = 0, ln_k = 0;
  double fraction = 0;  // of the dense peak of its type
  MeasuredTable table = MeasuredTable::Products;
  bool accumulate = false, batched = false;
};

// A file of such products.
struct GemmTable {
  std::string file;          // its name; empty: there is none
  double near_distance = 0;  // points within this squared distance in ln(m, n, k) are interpolated
  // Its forward products stand for weight gradients too, which take `weight_gradient` as long: it
  // has none of its own.
  bool for_weight_gradients = false;
};

// Rate of attention with heads of `head_dim` over that of heads of 128.
struct HeadDimRate {
  double head_dim = 128, rate = 1;
};

struct KernelScalars {
  std::string source;                    // file that they were read from
  CostLevel level = CostLevel::Formula;  // Datasheet: defaults, nobody measured this GPU type

  // Matrix products (docs/cost_models.md, "Matrix products").
  double gemm_sustained = 0;     // f: share of the dense peak over minutes of training, whole waves
  double gemm_burst = 0;         // the same in short bursts, below the power limit
  double gemm_memory = 0;        // share of the bandwidth where a product is bound by it
  double gemm_prologue = 0;      // k at which filling the pipeline doubles the time
  double weight_gradient = 1;    // time of a weight gradient over that of an equal product
  double batched_sustained = 0;  // unfused attention's batched products, share of the peak
  double fp8_rate = 1;           // 8-bit over 16-bit products
  // 8-bit products with a scale per block of 128: share of twice the 16-bit peak, whole waves, and
  // the k at which the prologue doubles the time; of weight gradients, both operands by rows.
  double block_fp8 = 0, block_fp8_prologue = 0;
  double block_fp8_weight_gradient = 0, block_fp8_weight_gradient_prologue = 0;
  double kernel_us = 0;  // device time that every kernel costs on top
  // Grouped products are one call each, dealt to so many streams: their tiles share the SMs.
  double grouped_streams = 1;
  std::vector<GemmTile> tiles;
  double near_distance = 0;                               // of tables that do not say it
  std::array<GemmTable, kNumMeasuredTables> gemm_tables;  // by MeasuredTable
  std::vector<GemmEfficiency> gemm_points;  // of the GPU type, or of the calibration instead

  // Fused attention: share of the peak for long sequences, by kernel generation.
  std::array<double, 5> attention_forward{}, attention_backward{};  // by AttentionKernel
  double attention_length = 0;  // tokens at which half of that is reached
  // The same of what torch's scaled_dot_product_attention runs, where that is another kernel; 0: it
  // is one of these.
  double torch_forward = 0, torch_backward = 0;
  // By AttentionKernel; ascending, empty: every size of head has one rate.
  std::array<std::vector<HeadDimRate>, 5> head_dims;

  std::array<double, kNumMemoryClasses> memory{};  // share of the bandwidth

  // Rates that nobody measured: their `source` in the file is null. Times that rest on them are of
  // the level Datasheet.
  std::array<bool, kNumMemoryClasses> memory_assumed{};
  std::array<bool, 5> attention_assumed{};  // by AttentionKernel
  bool gemm_assumed = false, batched_assumed = false;
  CostLevel level_of(bool assumed) const { return assumed ? CostLevel::Datasheet : level; }

  // Scans of a state over the sequence (docs/cost_models.md, "Scans").
  double scan_tflops = 0;    // in forward and backward
  double scan_memory = 0;    // share of the bandwidth where a scan is bound by it
  double scan_chunk_us = 0;  // of one chunk, where the next one waits for it
  bool scan_assumed = false;

  // Power (docs/cost_models.md, "Power").
  double power_idle_w = 0;
  double pj_per_flop = 0;        // 16-bit matrix products at full clock
  double fp8_energy = 1;         // 8-bit over 16-bit
  double pj_per_byte = 0;        // device memory
  double clock_exponent = 1;     // energy per FLOP grows with clock to this power
  double idle_share_of_tdp = 0;  // what an idle GPU of a step takes of its power limit

  // Host: what a framework's thread needs to issue work.
  double issue_us = 0;           // one kernel, Python framework
  double executor_issue_us = 0;  // one kernel, our executor
  // One call of an expert's product: between these, the middle is used.
  double expert_call_least_us = 0, expert_call_most_us = 0;
  double expert_call_us() const { return (expert_call_least_us + expert_call_most_us) / 2; }
  double host_exponent = 1;  // of the soft maximum of host and device time

  // Work beside communication.
  double hidden_contention = 0;  // a hidden tensor-parallel collective costs this share of itself
  double overlap_slowdown = 0;   // compute runs at 1 - this while a collective of dp runs
  double dispatch_slowdown = 0;  // compute runs at 1 - this while tokens travel to experts
  double dispatch_stretch = 0;   // tokens travel at 1 - this while something computes
};

// Scalars of `cluster.gpu`. Errors: "FILE:LINE: KEY: what is wrong" of a broken kernels file.
Result<KernelScalars> read_kernel_scalars(const Cluster& cluster);  // of shipped_directory()
Result<KernelScalars> read_kernel_scalars(const Cluster& cluster, const std::string& directory);

}  // namespace rehearse::sim
