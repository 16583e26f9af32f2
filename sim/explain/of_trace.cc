// SPDX-License-Identifier: Apache-2.0
// The step of a trace or of a report by cause, as finely as these tell.
#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

#include "schedules/trace/device_time.h"
#include "sim/explain/breakdown_of.h"
#include "sim/explain/idle_causes.h"

namespace rehearse::sim {
namespace {

class Weighing {
 public:
  void add(CauseSet causes, double time) {
    if (time != 0) weights_[causes] += time;
  }
  // A cause of which the source would know, without any time so far, has none.
  void tell(CauseSet causes) {
    for (std::size_t c = 0; c < kNumCauses; ++c) {
      if ((causes >> c & 1) != 0) weights_[CauseSet{1} << c] += 0;
    }
  }
  Breakdown breakdown(std::int64_t step_ns) const {
    std::vector<Weight> all;
    for (const auto& [causes, weight] : weights_) all.push_back({causes, weight});
    return broken_down(step_ns, all);
  }

 private:
  std::map<CauseSet, double> weights_;
};

// What an op on the compute lane may be for; `inside`: what it may wait for meanwhile.
CauseSet causes_of(const Trace& trace, OpId op, CauseSet inside) {
  const TraceClass& of = trace.class_of(op);
  switch (traits(of.kind).op_class) {
    case OpClass::Transfer:
      return set_of({Cause::PipelineGroup});
    case OpClass::Collective:
      return set_of({cause_of_group(group_kind(trace.text(of.group)))});
    case OpClass::Copy:
      return set_of({Cause::Copies});
    case OpClass::Local:
    case OpClass::Text:
      return set_of({Cause::Update});
    case OpClass::Compute:
      break;
  }
  switch (of.kind) {
    case OpKind::Forward:
      return kForward | inside;
    case OpKind::Recompute:
      return kRecompute | inside;
    case OpKind::Overlap:
      return kForward | kBackward | kRecompute | inside;
    default:
      return kBackward | kRecompute | inside;
  }
}

// Whether ops communicate inside.
bool communicates_inside(const Trace& trace) {
  return std::ranges::any_of(trace.nodes,
                             [](const TraceNode& node) { return node.collective != 0; });
}

Breakdown of_ours(const Trace& trace) {
  Weighing weighing;
  const bool inside = communicates_inside(trace);
  const bool known = !trace.communicating_ns.empty();
  const CauseSet waits = kInsideOps | set_of({Cause::Imbalance, Cause::Straggler});
  for (std::size_t row = 0; row < trace.rows.size(); ++row) {
    const double ranks = trace.rows[row].multiplicity;
    std::int64_t rest = trace.step().value;
    const auto last = static_cast<std::int32_t>(trace.row_begin[row + 1]);
    for (OpId op{static_cast<std::int32_t>(trace.row_begin[row])}; op.value < last; ++op.value) {
      if (trace.class_of(op).slot != 0) continue;
      const std::int64_t lasted = trace.end_ns[op.index()] - trace.start_ns[op.index()];
      const bool computes = is_compute(trace.class_of(op).kind);
      const std::int64_t waited = known && computes ? trace.communicating_ns[op.index()] : 0;
      weighing.add(waits, ranks * static_cast<double>(waited));
      weighing.add(
          causes_of(trace, op,
                    inside && !known ? kInsideOps | set_of({Cause::Imbalance}) : CauseSet{0}),
          ranks * static_cast<double>(lasted - waited));
      rest -= lasted;
    }
    if (!trace.idle_begin.empty()) {
      for (std::int64_t i = trace.idle_begin[row]; i < trace.idle_begin[row + 1]; ++i) {
        const IdleSpan& span = trace.idle[static_cast<std::size_t>(i)];
        weighing.add(causes_of_idle(span.cause, kBetweenOps),
                     ranks * static_cast<double>(span.end - span.begin));
        rest -= span.end - span.begin;
      }
    }
    weighing.add(kWaiting | kBetweenOps, ranks * static_cast<double>(rest));
  }
  weighing.tell(inside ? 0 : kInsideOps | set_of({Cause::Imbalance}));
  return weighing.breakdown(trace.step().value);
}

// By its kernels. Which of them belong to what is computed again nobody says.
Breakdown of_profile(const Trace& trace) {
  constexpr CauseSet kAnyProducts =
      set_of({Cause::ForwardProducts, Cause::BackwardProducts, Cause::RecomputeProducts});
  constexpr CauseSet kAnyAttention =
      set_of({Cause::ForwardAttention, Cause::BackwardAttention, Cause::RecomputeAttention});
  constexpr CauseSet kAnyMemoryBound = set_of({Cause::ForwardMemoryBound, Cause::BackwardMemoryBound,
                                            Cause::RecomputeMemoryBound, Cause::Update});
  constexpr CauseSet kAnyRest =
      set_of({Cause::ForwardRest, Cause::BackwardRest, Cause::RecomputeRest});
  Weighing weighing;
  for (std::int32_t row = 0; row < trace.num_rows(); ++row) {
    const DeviceTime time = device_time(trace, {row}, trace.begin.value, trace.end.value);
    weighing.add(kAnyProducts, static_cast<double>(time.products));
    weighing.add(kAnyAttention, static_cast<double>(time.attention));
    weighing.add(kAnyMemoryBound, static_cast<double>(time.memory_bound));
    weighing.add(kComputing | kCommunication, static_cast<double>(time.unknown));
    weighing.add(set_of({Cause::PipelineGroup}), static_cast<double>(time.transfers));
    weighing.add(kCommunication & ~set_of({Cause::PipelineGroup, Cause::Copies}),
                 static_cast<double>(time.collectives));
    weighing.add(set_of({Cause::Copies}), static_cast<double>(time.copies));
    weighing.add(kAnyRest | kWaiting | set_of({Cause::Imbalance}), static_cast<double>(time.nothing));
  }
  return weighing.breakdown(trace.step().value / std::max(trace.profiled_steps, 1));
}

}  // namespace

Breakdown breakdown_of(const Trace& trace) {
  return trace.schedule_hash.empty() ? of_profile(trace) : of_ours(trace);
}

Breakdown breakdown_of(const ReportedTimes& times) {
  const std::int64_t step_ns = std::llround(times.step_s * 1e9);
  Weighing weighing;
  const double whole = static_cast<double>(times.ranks) * static_cast<double>(step_ns);
  const CauseSet inside = kInsideOps | set_of({Cause::Imbalance});
  weighing.add(times.inside ? kComputing : kComputing | inside,
               std::max(0.0, whole - static_cast<double>(times.idle_ns)));
  for (std::size_t c = 0; c < kNumIdleCauses; ++c) {
    const CauseSet causes =
        causes_of_idle(static_cast<IdleCause>(c), times.inside ? kCommunication : kBetweenOps);
    weighing.add(causes, static_cast<double>(times.causes[c]));
    if (std::has_single_bit(causes)) weighing.tell(causes);
  }
  return weighing.breakdown(step_ns);
}

}  // namespace rehearse::sim
