// SPDX-License-Identifier: Apache-2.0
#include "sim/search/estimate/step_estimate.h"

#include <algorithm>
#include <cmath>

#include "schedules/body/body.h"
#include "schedules/body/framework/body_framework.h"
#include "schedules/order/registry.h"
#include "schedules/scenario/memory/optimizer_state.h"
#include "schedules/scenario/zero/shard_groups.h"
#include "sim/cost/overlap.h"
#include "sim/cost/to_nanoseconds.h"
#include "sim/memory/memory_states.h"
#include "sim/network/transfer_cost.h"

namespace rehearse::sim {
namespace {

// What layers take of which a share is computed again.
SegmentTimes mixed_times(const SegmentTimes& again, const SegmentTimes& kept, double share) {
  const auto mean = [share](double a, double b) { return share * a + (1 - share) * b; };
  return {.forward = again.forward,
          .backward = mean(again.backward, kept.backward),
          .input = mean(again.input, kept.input),
          .weight = mean(again.weight, kept.weight),
          .communicating = mean(again.communicating, kept.communicating)};
}

}  // namespace

StepEstimate::StepEstimate(const SearchSetup& setup, PipelineTimes& times)
    : setup_(setup), classes_(segment_classes(setup.space->base.model)), times_(times) {}

double updated(const Plan& plan, const PositionLoad& load) {
  return static_cast<double>(updated_elements(plan, load.parameters, load.experts));
}

double StepEstimate::step(const Plan& plan, const FamilyCosts& costs, const FamilyCosts* kept,
                          const std::vector<PositionLoad>& loads) {
  const auto times_of = [&](const PositionLoad& load, std::size_t k) {
    return kept == nullptr ? costs.of[k] : mixed_times(costs.of[k], kept->of[k], load.again);
  };
  const ScheduleInfo* info = find_schedule(plan.schedule);
  const bool split = info != nullptr && info->splits_backward && plan.pipeline_parallel > 1;
  const double m = plan.microbatches();
  double mean_forward = 0, mean_input = 0, mean_weight = 0, mean_communicating = 0;
  for (const PositionLoad& load : loads) {
    for (std::size_t k = 0; k < classes_; ++k) {
      const double share = load.segments[k] * load.positions / plan.pipeline_parallel;
      const SegmentTimes times = times_of(load, k);
      mean_forward += share * times.forward;
      mean_input += share * (split ? times.input : times.backward);
      mean_weight += share * (split ? times.weight : 0);
      mean_communicating += share * times.communicating;
    }
  }
  const double mean = mean_forward + mean_input + mean_weight;
  PipelineWork work{.forward = mean_forward, .input = mean_input, .weight = mean_weight};
  if (!split) {
    work.input = mean_input / 2;
    work.weight = mean_input / 2;
  }
  const bool hides = plan.overlap_pair == PairOverlap::Full ||
                     (plan.overlap_pair == PairOverlap::Experts && plan.expert_parallel > 1);
  if (hides) work.pair_saving = std::min(mean_communicating, mean - mean_communicating) / mean;
  const PipelineTime pipeline = times_.of(plan, work);

  double longest = 0;
  for (const PositionLoad& load : loads) {
    double forward = 0, backward = 0;
    for (std::size_t k = 0; k < classes_; ++k) {
      const SegmentTimes times = times_of(load, k);
      forward += load.segments[k] * times.forward;
      backward += load.segments[k] * (split ? times.input + times.weight : times.backward);
    }
    if (plan.offload.activations) {  // a micro-batch's leave while others come back
      const double layers = layers_of(load);
      const double copy = 1e9 * layers * static_cast<double>(load.kept) / host_link();
      const bool alone = plan.pipeline_parallel == 1;  // a backward waits for its own copies
      backward =
          alone ? std::max(backward, copy) : backward + std::max(0.0, copy - forward - backward);
      if (alone) forward = std::max(forward, copy);
    }
    if (!plan.overlap_pipeline && plan.pipeline_parallel > 1) {  // sent on the compute stream
      forward += costs.transfer * plan.virtual_stages;
      backward += costs.transfer * plan.virtual_stages;
    }
    double tail = load.update;
    const bool once = sums_shards_once(plan) && plan.reduces_each_microbatch();
    const double across = once ? 1 / m : 1;
    if (load.unit_gather > 0) {  // FSDP: each unit's traffic beside its neighbour's compute
      const double units = layers_of(load) + 1;
      const double again = plan.gathers_twice() ? load.unit_again : 0;
      // Where the second copy outlives its micro-batch, later forwards gather from it too.
      const double first = keeps_secondary_shards(plan) ? 1 / m : 1;
      const double gather = load.unit_again + first * (load.unit_gather - load.unit_again);
      forward = pace(gather * units, forward, costs.slowdown);
      const double reduce = load.unit_reduce + across * load.unit_across;
      backward = pace((again + reduce) * units, backward, costs.slowdown);
      tail += load.unit_gather + reduce;
    } else if (plan.has_parameter_server()) {
      tail += m * (costs.through_root + load.gather + load.reduce);
    } else if (plan.replicas() > 1) {
      const double times_reduced = plan.reduces_each_microbatch() ? m : 1;
      const double reduce = load.reduce + across * load.across;
      const double least = reduce / load.buckets;
      const Hidden hidden = hide(reduce, backward, costs.slowdown);
      const double exposed = plan.overlap_gradient_reduce
                                 ? std::max(hidden.exposed, least) + hidden.contention
                                 : reduce;
      tail += times_reduced * exposed;
      tail += plan.overlap_parameter_gather ? hide(load.gather, forward, 0).exposed : load.gather;
    }
    forward = std::max(forward, load.unit_fetch * (layers_of(load) + 1));
    backward = std::max(backward, load.unit_fetch * (layers_of(load) + 1));
    longest = std::max(longest, pipeline.turns * (forward + backward) + tail);
  }
  const double host =
      plan.offload.optimizer || plan.offload.parameters ? offload_time(plan, loads) : 0;
  return longest + pipeline.fill * mean + pipeline.hops * costs.transfer + host;
}

double StepEstimate::layers_of(const PositionLoad& load) const {
  double layers = load.segments[static_cast<std::size_t>(SegmentShape::DenseLayer)] +
                  load.segments[static_cast<std::size_t>(SegmentShape::ExpertLayer)];
  for (std::size_t of = kNumSegmentShapes; of < classes_; ++of) layers += load.segments[of];
  return layers;
}

// [B/s] to or from the host, of one of the GPUs that share a switch's link.
double StepEstimate::host_link() const {
  const Cluster& cluster = *setup_.cluster;
  return std::max(cluster.gpu.pcie.bandwidth.value, 1e9) *
         setup_.tables.collectives.constants.host_copy_fraction /
         std::clamp(cluster.pcie.gpus_per_switch, 1, std::max(1, cluster.gpus_per_node));
}

double StepEstimate::away_link(const Plan& plan, BytesPerSecond drives) const {
  const double host = host_link();
  if (plan.offload_to != OffloadTarget::Nvme || drives.value <= 0) return host;
  return std::min(host, drives.value / ranks_of_node(plan));
}

std::int32_t StepEstimate::ranks_of_node(const Plan& plan) const {
  return std::min(plan.gpus(), setup_.cluster->gpus_per_node);
}

// What the end of the step adds [ns]. Where the device updates: what it lacks comes and goes at
// once in both directions. Where the host does: gradients go there, and its update; parameters
// that do not stay there follow meanwhile.
double StepEstimate::offload_time(const Plan& plan, const std::vector<PositionLoad>& loads) const {
  double owned = 0;
  for (const PositionLoad& load : loads) owned = std::max(owned, updated(plan, load));
  const Cluster& cluster = *setup_.cluster;
  const double states = plan.offload.optimizer ? static_cast<double>(state_bytes(plan, 1)) : 0;
  const double parameters = plan.offload.parameters ? plan.precision.parameters : 0;
  const double written = away_link(plan, cluster.nvme.write);
  if (!plan.updates_on_host()) {
    const double slower = std::min(written, away_link(plan, cluster.nvme.read));
    return 1e9 * owned * (states + parameters) / slower;
  }
  const double host = setup_.tables.collectives.constants.host_update_rate *
                      std::max(1, cluster.host.sockets) / ranks_of_node(plan);
  const double down = 1e9 * owned * plan.precision.gradients / written;
  const double update =
      1e9 * owned * static_cast<double>(optimizer_bytes_per_parameter(plan)) / host;
  if (plan.offload_to != OffloadTarget::Nvme || !cluster.nvme.known()) return down + update;
  // Gradients and states come and states go.
  const auto ns = [&](double bytes, const BytesPerSecond& rate) {
    return to_nanoseconds(1e9 * owned * ranks_of_node(plan) * bytes / rate.value);
  };
  const Nanoseconds swapped = swapped_update_time(
      {.read = ns(plan.precision.gradients + states, cluster.nvme.read),
       .update = to_nanoseconds(update) + ns(parameters, cluster.nvme.write),
       .written = ns(states, cluster.nvme.write),
       .pipeline = plan.runtime.swap_pipeline,
       .parts = std::ceil(owned / static_cast<double>(plan.runtime.swap_elements))});
  return down + static_cast<double>(swapped.value);
}

}  // namespace rehearse::sim
