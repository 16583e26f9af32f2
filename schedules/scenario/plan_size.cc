// SPDX-License-Identifier: Apache-2.0
#include "schedules/scenario/plan_size.h"
#include "schedules/scenario/plan_shape.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "schedules/model/parts.h"
#include "schedules/order/registry.h"
#include "schedules/scenario/expert_plan.h"
#include "schedules/scenario/keys/plan_rows.h"
#include "schedules/scenario/layout.h"

namespace rehearse {
namespace {

// At 0.7 microseconds per op from order to report on one core minutes, where
// the arena is planned (7 microseconds) half an hour: mostly memory is what refuses.
constexpr double kMostLowered = 1 << 28;
// Compute ops of an order alone: 1.2 microseconds and 380 bytes for each, with its transfers.
constexpr double kMostOrdered = 1 << 24;
// Bytes per op that all columns, costs and times take together at their peak, and what the arena's
// planner adds, as measured on pipelines, ZeRO-2 and FSDP of 0.3 to 5 M ops (270 to 390; 430 to
// 800), rounded up; and bytes per operand beyond the four or five that most ops have (13 to 16).
constexpr double kBytesPerOp = 400, kBytesPerArenaOp = 800, kBytesPerOperand = 16;
// Operands, and what follows from them, are counted in 31 bits. Each is followed by two ops at most
// (what wrote it, and one more read until it is written anew).
constexpr double kMostOperands = 0x1p30;

std::string rounded(double value, double unit) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", value / unit);
  return text;
}

// [B] Most that one micro-batch may keep on a rank: what the allocator takes as one block.
constexpr double kMostKept = 0x1p58;

// [B] Above what a micro-batch keeps and works in on a rank, with a term for every kind of tensor:
// each of a layer's activations at most four times in four bytes, scores and logits likewise.
double kept_at_most(const Layout& layout) {
  const RankShape& s = layout.shape;
  const auto of = [](std::int64_t size) { return static_cast<double>(size); };
  const LatentAttention& latent = layout.model.latent;
  const double heads = of(s.heads), tokens = of(s.tokens);
  double widths = of(s.hidden + s.qkv + s.up) + heads * of(s.head_dim + s.value_dim) +
                  heads * of(2 * latent.qk_nope_head_dim + 2 * latent.qk_rope_head_dim) +
                  of(compressed_columns(layout.model));
  if (!is_fused(layout.plan.attention_kernel)) widths += heads * of(layout.plan.sequence_length);
  if (layout.model.experts.count > 0) {
    const double rows = of(s.experts.rows) * std::max(1.0, row_limit(layout.plan));
    widths += rows / tokens * of(s.hidden + 2 * s.experts.width) + 2 * of(s.experts.shared) +
              of(layout.model.experts.count);
  }
  const double layers = of(layout.model.layers + layout.prediction_layers()),
               heads_of_loss = 1 + of(layout.prediction_layers());
  return 16 * tokens * (layers * widths + heads_of_loss * of(s.vocabulary * s.tensor));
}

// Operands of compute ops beyond the usual: every bucket of a stage, as parameters and as
// gradients. Where ops are cut at buckets each part has its own.
double more_operands(const Transformer& model, const Plan& plan) {
  if (plan.bucket_bytes == 0 || plan.zero_stage >= 2) return 0;
  const double chunks = std::max({1.0, static_cast<double>(plan.stage_layers.size()),
                                  1.0 * plan.pipeline_parallel * plan.virtual_stages});
  const double segments = static_cast<double>(model.layers) + 2;
  const double bytes = 4.0 * static_cast<double>(total_parameters(model)) / plan.tensor_parallel;
  const double buckets =
      std::min(segments, bytes / static_cast<double>(plan.bucket_bytes) + chunks);
  const double m = static_cast<double>(plan.global_batch) /
                   (static_cast<double>(plan.data_parallel) * plan.micro_batch);
  return m * plan.sequence_slices * 4 * std::max(0.0, buckets - chunks);  // in forward and backward
}

}  // namespace

double memory_there() {
  const long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
  double there = pages > 0 && size > 0 ? static_cast<double>(pages) * static_cast<double>(size) : 0;
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    const auto most = static_cast<double>(limit.rlim_cur);
    there = there > 0 ? std::min(there, most) : most;
  }
  return there;
}

double lowered_ops(const Transformer& model, const Plan& plan) {
  const ScheduleInfo* info = find_schedule(name_of_order(plan));
  const double p = plan.pipeline_parallel, v = plan.virtual_stages,
               segments = static_cast<double>(model.layers) + 2;
  const double chunks = std::max(p * v, static_cast<double>(plan.stage_layers.size()));
  const double passes = info != nullptr && info->splits_backward ? 3 : 2;
  double per_microbatch = passes * chunks + 4 * (chunks - 1);
  // Each layer is gathered, computed in parts and its gradients reduced; where what is gathered
  // stays, once per step.
  if (plan.gathers_each_microbatch()) {
    per_microbatch += (plan.gathers_twice() ? 6 : 5) * segments;
  } else if (plan.zero_stage == 2 && plan.runtime.performer().frees_reduced_gradients) {
    per_microbatch += 4 * segments;  // reduced and added, bucket by bucket
  } else if (plan.zero_stage == 2 && plan.overlap_gradient_reduce) {
    per_microbatch += 2 * segments;
  }
  if (plan.offload.activations) per_microbatch += 4 * segments;
  if (plan.offload.parameters) per_microbatch += 6 * segments;  // parts with a FETCH each
  const double m = static_cast<double>(plan.global_batch) /
                   (static_cast<double>(plan.data_parallel) * plan.micro_batch);
  return m * per_microbatch * plan.sequence_slices;
}

Result<> check_lowered_size(const Transformer& model, const Plan& plan) {
  const Layout layout(model, plan);
  if (const double kept = kept_at_most(layout); kept > kMostKept) {
    return Error{
        "plan." +
        path_of(plan.micro_batch > 1 ? PlanField(&Plan::micro_batch) : &Plan::sequence_length) +
        ": a micro-batch of " + std::to_string(layout.shape.tokens) + " tokens a GPU may keep " +
        rounded(kept, 1e15) + " PB in all layers, more than the " + rounded(kMostKept, 1e15) +
        " that are counted"};
  }
  const double ops = lowered_ops(model, plan);
  const std::string what =
      "plan.global_batch: " +
      std::to_string(plan.global_batch / (std::int64_t{plan.data_parallel} * plan.micro_batch)) +
      " micro-batches make a schedule of about " + rounded(ops, 1e6) + " million ops";
  if (ops > kMostLowered) {
    return Error{what + ", more than the " + rounded(kMostLowered, 1e6) +
                 " that are simulated and run"};
  }
  const bool arena = plan.runtime.performer().plans_arena;
  const double more = more_operands(model, plan), operands = (arena ? 5 : 4) * ops + more;
  if (operands > kMostOperands) {
    return Error{what + " with " + rounded(operands, 1e6) + " million operands, more than the " +
                 rounded(kMostOperands, 1e6) + " that are counted"};
  }
  const double bytes = ops * (arena ? kBytesPerArenaOp : kBytesPerOp) + more * kBytesPerOperand;
  const double there = memory_there();
  if (there > 0 && bytes > there) {
    return Error{what + ", which take " + rounded(bytes, 1e9) + " GB: this machine gives " +
                 rounded(there, 1e9)};
  }
  return {};
}

Result<> check_ops_fit(const std::string& what, double ops) {
  const double bytes = ops * kBytesPerOp, there = memory_there();
  if (there <= 0 || bytes <= there) return {};
  return Error{what + " are " + rounded(ops, 1e6) + " million ops, which take " +
               rounded(bytes, 1e9) + " GB: this machine gives " + rounded(there, 1e9)};
}

Result<> check_order_size(const ScheduleInfo& info, const ScheduleShape& shape) {
  const double chunks = info.chunks == ChunkRule::One || info.chunks == ChunkRule::Bidirectional
                            ? 1
                            : std::max(1, shape.chunks);
  const double ops = (info.splits_backward ? 3.0 : 2.0) * shape.positions * shape.microbatches *
                     chunks * std::max(1, shape.slices);
  const std::string what = "microbatches: " + std::to_string(shape.positions) + " positions with " +
                           std::to_string(shape.microbatches) + " micro-batches";
  if (ops > kMostOrdered) {
    return Error{what + " are " + rounded(ops, 1e6) + " million ops, more than the " +
                 rounded(kMostOrdered, 1e6) + " that are timed"};
  }
  return check_ops_fit(what, ops);
}

}  // namespace rehearse
