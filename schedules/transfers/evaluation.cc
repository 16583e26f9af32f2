// SPDX-License-Identifier: Apache-2.0
#include "schedules/transfers/evaluation.h"

#include <algorithm>
#include <utility>

namespace rehearse {
namespace {

// The passes want ops that take time: a transfer's place must lie behind its producer's.
ComputeTimes at_least_one(ComputeTimes times) {
  for (StageTimes& stage : times.stages) {
    for (Nanoseconds* part :
         {&stage.forward, &stage.input_gradient, &stage.weight_gradient, &stage.backward}) {
      *part = std::max(*part, Nanoseconds{1});
    }
  }
  if (times.pair.value >= 0) times.pair = std::max(times.pair, Nanoseconds{1});
  return times;
}

bool takes_no_time(const ComputeTimes& times) {
  return times.pair.value == 0 || std::ranges::any_of(times.stages, [](const StageTimes& stage) {
           return std::min({stage.forward, stage.input_gradient, stage.weight_gradient,
                            stage.backward}) < Nanoseconds{1};
         });
}

}  // namespace

Result<Evaluation> evaluate(const Schedule& order, const ComputeTimes& times,
                            TransferPolicy policy) {
  const Result<ComputeTiming> estimate =
      takes_no_time(times) ? time_compute(order, at_least_one(times)) : time_compute(order, times);
  if (!estimate) return estimate.error();
  Evaluation result{.full = add_transfers(order, estimate.value().end, policy)};
  const PlacedRecompute placed(result.full);
  std::vector<Nanoseconds> durations;
  durations.reserve(result.full.ops.size());
  for (const Op& op : result.full.ops) {
    durations.push_back(is_compute(op.kind)       ? duration_of(result.full, placed, op, times)
                        : op.kind == OpKind::Send ? times.transfer
                                                  : Nanoseconds{0});
  }
  result.proof = prove_no_deadlock(result.full, StreamModel::One, {.per_op = durations});
  result.deadlock_free = result.proof.complete;
  if (!result.deadlock_free) return result;
  // Transfers stand between the compute ops of a row, which keep their order.
  result.timing.makespan = {0};
  for (std::size_t i = 0; i < result.full.ops.size(); ++i) {
    const Op& op = result.full.ops[i];
    if (!is_compute(op.kind) && !result.full.is_on(op, GroupKind::Other)) continue;
    const Nanoseconds end = result.proof.finish[i];
    result.timing.end.push_back(end);
    result.timing.start.push_back(end - durations[i]);
    result.timing.makespan = std::max(result.timing.makespan, end);
  }
  result.metrics = measure(order, result.timing);
  return result;
}

}  // namespace rehearse
