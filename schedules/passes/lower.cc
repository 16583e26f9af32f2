// SPDX-License-Identifier: Apache-2.0
#include "schedules/passes/lower.h"

#include <algorithm>

#include "schedules/body/leaving.h"
#include "schedules/passes/row_draft.h"
#include "schedules/scenario/memory/recompute_parts.h"

namespace rehearse {

// Orders need ratios only: 10^14 FLOP/s, a transfer or copy at 20 B/ns after 10 us, all else 10 us.
Estimates estimate_by_flops(const Layout& layout) {
  const Transformer& model = layout.model;
  const Plan& plan = layout.plan;
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
  const bool core_again =
      plan.recomputes(RecomputePart::AttentionCore) || plan.recomputes(RecomputePart::Operators);
  const double recompute = plan.recompute.is_full() ? 2.0 * n * weights + core
                           : core_again             ? core
                                                    : 0.0;
  const double logits = 2.0 * n * h * static_cast<double>(s.vocabulary);
  const bool early = loss_gradient_with_forward(plan);
  Estimates e;
  e.layer_forward = ns(2.0 * n * weights + core);
  e.layer_input = ns(2.0 * n * weights + 2.5 * core + recompute);
  e.layer_weight = ns(2.0 * n * weights);
  e.layer_again = recompute > 0 ? ns(recompute) : 0;
  e.head_forward = ns(logits * (early ? 3 : 1));
  e.head_backward = early ? 1000 : ns(2.0 * logits);
  e.head_forward *= 1 + layout.prediction_layers();  // each has a head of its own
  e.head_backward *= 1 + layout.prediction_layers();
  e.embedding_forward = e.embedding_backward = 1000;
  e.transfer = 10000 + layout.activation_bytes() / 20;
  e.other = 10000;
  e.copied_per_ns = 20;
  return e;
}

std::int64_t Estimates::of(SegmentKind kind, Direction direction) const {
  const bool forward = direction == Direction::Forward;
  const bool input = direction == Direction::InputGradient;
  const bool weight = direction == Direction::WeightGradient;
  if (direction == Direction::Recompute) return kind == SegmentKind::Layer ? layer_again : 0;
  switch (kind) {
    case SegmentKind::Embedding:
      return forward ? embedding_forward : input ? 0 : embedding_backward;
    case SegmentKind::Layer:
      return forward  ? layer_forward
             : input  ? layer_input
             : weight ? layer_weight
                      : layer_input + layer_weight;
    case SegmentKind::Head:
      return forward ? head_forward : weight ? 0 : head_backward;
  }
  return 1;
}

void fill_planned_times(const Layout& layout, ScheduleShape& shape) {
  const Plan& plan = layout.plan;
  if (!plan.planned_stages.empty()) {
    shape.stage_times = plan.planned_stages;
    shape.times.transfer = plan.planned_transfer;
    return;
  }
  const Estimates e = estimate_by_flops(layout);
  shape.stage_times.clear();
  for (const auto& segments :
       stage_segments(layout, static_cast<std::int32_t>(plan.stage_layers.size()))) {
    StageTimes times{{0}, {0}, {0}, {0}, {0}};
    for (const SegmentInfo& segment : segments) {
      times.forward.value += e.of(segment.kind, Direction::Forward);
      times.input_gradient.value += e.of(segment.kind, Direction::InputGradient);
      times.weight_gradient.value += e.of(segment.kind, Direction::WeightGradient);
      if (plan.may_place_recompute() || recomputes_in_advance(plan)) {
        times.recompute.value += e.of(segment.kind, Direction::Recompute);
      }
    }
    times.backward = times.input_gradient + times.weight_gradient;
    shape.stage_times.push_back(times);
  }
  shape.times.transfer = {e.transfer};
}

namespace {

// All rows' programs, priced where somebody can.
Result<> draft_rows(Draft& draft, const LowerOptions& options) {
  make_buckets(draft);
  for (RankClass row{0}; row.index() < draft.schedule.rows.size(); ++row.value) {
    RowDraft program(draft, row);
    split_parts(program);
    hold_parameters(program);
    place_exchanges(program);
    compute_parts(program);
    place_transfers(program);
    shard_parameters(program);
    sync_gradients(program);
    offload(program);
    end_step(program);
    weave(program);
  }
  group_transfers(draft);
  return options.price ? price_draft(draft, options.price) : Result<>{};
}

}  // namespace

Result<Lowered> lower_priced(const Schedule& l0, const Layout& layout,
                             const LowerOptions& options) {
  const Plan& plan = layout.plan;
  if (plan.offload.activations && l0.slices > 1) {
    return Error{"plan.offload: activations of a sequence in slices stay on the device"};
  }
  Draft draft = make_draft(l0, layout, options);
  if (chooses_leaving(plan)) {
    Draft all = make_draft(l0, layout, options);
    if (const Result<> priced = draft_rows(all, options); !priced) return priced.error();
    draft.leaving = chosen_leaving(all);
  }
  if (const Result<> priced = draft_rows(draft, options); !priced) return priced.error();
  // Compute waits for reductions that are not overlapped: they need no margin.
  const std::int64_t margin = draft.layer_forward;
  const Margins margins{.transfers = margin,
                        .reductions = plan.overlap_gradient_reduce ? margin : 0,
                        .copies = chooses_leaving(plan) ? margin : 0};
  Ordered ordered = order(std::move(draft));
  Schedule& lowered = ordered.schedule;
  if (lowered.rows.empty()) return Error{"the compute order cannot run: it waits for itself"};
  if (options.lifetimes) {
    plan_lifetimes(lowered, margins, ordered.duration, options.plan_arena);
  }
  add_waits(ordered);
  return Lowered{std::move(lowered), std::move(ordered.drafted)};
}

Result<Schedule> lower(const Schedule& l0, const Layout& layout, const LowerOptions& options) {
  Result<Lowered> lowered = lower_priced(l0, layout, options);
  if (!lowered) return lowered.error();
  return std::move(lowered).value().schedule;
}

}  // namespace rehearse
