// SPDX-License-Identifier: Apache-2.0
#include "schedules/passes/lower.h"

#include <algorithm>

#include "schedules/passes/draft.h"

namespace rehearse {

// Orders need ratios only: 10^14 FLOP/s, a transfer or copy at 20 B/ns after 10 us, all else 10 us.
Estimates estimate_by_flops(const Transformer& model, const Plan& plan) {
  const Layout layout(model, plan);
  const RankShape& s = layout.shape;
  const auto ns = [](double flops) {
    return std::max<std::int64_t>(1, static_cast<std::int64_t>(flops * 1e-5));
  };
  const double n = static_cast<double>(s.tokens), h = static_cast<double>(s.hidden);
  const double t = static_cast<double>(s.tensor);
  const double weights = static_cast<double>(layer_parameters(model, model.layers - 1)) / t *
                         (model.experts.count > 0 ? static_cast<double>(active_parameters(model)) /
                                                        static_cast<double>(total_parameters(model))
                                                  : 1.0);
  const double core = 2.0 * n * static_cast<double>(plan.sequence_length) *
                      static_cast<double>(s.heads * s.head_dim);
  const double recompute = plan.recompute == RecomputeMode::Full        ? 2.0 * n * weights + core
                           : plan.recompute == RecomputeMode::Selective ? core
                                                                        : 0.0;
  const double logits = 2.0 * n * h * static_cast<double>(s.vocabulary);
  const bool early = plan.runtime.own_executor;  // the loss's gradients run with F
  Estimates e;
  e.layer_forward = ns(2.0 * n * weights + core);
  e.layer_input = ns(2.0 * n * weights + 2.5 * core + recompute);
  e.layer_weight = ns(2.0 * n * weights);
  e.head_forward = ns(logits * (early ? 3 : 1));
  e.head_backward = early ? 1000 : ns(2.0 * logits);
  e.embedding_forward = e.embedding_backward = 1000;
  e.transfer = 10000 + layout.activation_bytes() / 20;
  e.other = 10000;
  e.copied_per_ns = 20;
  return e;
}

void fill_planned_times(const Transformer& model, const Plan& plan, ScheduleShape& shape) {
  const Estimates e = estimate_by_flops(model, plan);
  shape.stage_times.clear();
  for (const auto& segments :
       stage_segments(plan, static_cast<std::int32_t>(plan.stage_layers.size()))) {
    StageTimes times{{0}, {0}, {0}, {0}};
    for (const SegmentInfo& segment : segments) {
      switch (segment.kind) {
        case SegmentKind::Embedding:
          times.forward.value += e.embedding_forward;
          times.weight_gradient.value += e.embedding_backward;
          break;
        case SegmentKind::Layer:
          times.forward.value += e.layer_forward;
          times.input_gradient.value += e.layer_input;
          times.weight_gradient.value += e.layer_weight;
          break;
        case SegmentKind::Head:
          times.forward.value += e.head_forward;
          times.input_gradient.value += e.head_backward;
          break;
      }
    }
    times.backward = times.input_gradient + times.weight_gradient;
    shape.stage_times.push_back(times);
  }
  shape.times.transfer = {e.transfer};
}

Result<Schedule> lower(const Schedule& l0, const Transformer& model, const Plan& plan,
                       const LowerOptions& options) {
  if (plan.offload == OffloadMode::Activations && l0.slices > 1) {
    return Error{"plan.offload: activations of a sequence in slices stay on the device"};
  }
  Draft draft{.model = model,
              .plan = plan,
              .estimates = options.estimates ? *options.estimates : estimate_by_flops(model, plan),
              .kept = options.kept};
  Schedule& s = draft.schedule;
  s.level = Level::Full;
  s.name = l0.name;
  s.microbatches = l0.microbatches;
  s.slices = l0.slices;
  s.placement = l0.placement;
  s.segments = stage_segments(plan, l0.placement.stages());
  // Folding: one row per position; a parameter server is an odd replica and gets rows of its own.
  const std::int32_t replicas = plan.data_parallel * plan.context_parallel;
  const bool server =
      plan.data_parallel_algorithm == DataParallelAlgorithm::ParameterServer && replicas > 1;
  for (Position position{0}; position.value < s.placement.positions; ++position.value) {
    if (server) s.rows.push_back({position, plan.tensor_parallel, 0, 1});
    const std::int32_t first = server ? 1 : 0;
    s.rows.push_back({position, plan.tensor_parallel * (replicas - first), first, replicas});
  }
  make_buckets(draft);
  emit(draft, l0);
  // Compute waits for reductions that are not overlapped: they need no margin.
  const std::int64_t margin = draft.estimates.layer_forward;
  const Margins margins{.transfers = margin,
                        .reductions = plan.overlap_gradient_reduce ? margin : 0};
  Ordered ordered = order(std::move(draft));
  Schedule& lowered = ordered.schedule;
  if (lowered.rows.empty()) return Error{"the compute order cannot run: it waits for itself"};
  if (options.lifetimes) {
    plan_lifetimes(lowered, margins, ordered.duration, options.plan_arena);
  }
  add_waits(ordered);
  return std::move(lowered);
}

}  // namespace rehearse
