// SPDX-License-Identifier: Apache-2.0
// A step's time, roughly: of what segments take, what every position runs of them, and the traffic
// between replicas and with the host. Microseconds per plan; it only ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "schedules/base/units.h"
#include "schedules/scenario/plan.h"
#include "sim/search/estimate/search_estimate.h"
#include "sim/search/estimate/search_pipeline.h"

namespace rehearse::sim {

// Device time of one segment in each direction [ns].
struct SegmentTimes {
  double forward = 0, backward = 0, input = 0, weight = 0;
  double communicating = 0;  // of forward + input + weight: waiting for its own collectives
};

// Bodies of one kind of family with one micro-batch, recomputation and number of slices; of slices
// the times of all of a sequence.
struct FamilyCosts {
  std::vector<SegmentTimes> of;  // by segment_class
  double transfer = 0;           // [ns] of one activation (of slices: of one) to the next position
  double slowdown = 0;           // compute beside a data-parallel collective
  double through_root = 0;       // [ns] of outputs that one GPU gathers: exchanges and the loss
  bool valid = false;
};

// What a position runs, in segments per micro-batch; positions with equal loads are one.
struct PositionLoad {
  std::vector<double> segments;              // by segment_class
  std::int64_t parameters = 0, experts = 0;  // experts: of them, with the experts' own replicas
  std::int32_t positions = 1;
  double reduce = 0, gather = 0, update = 0;  // [ns] once per step, alone
  double unit_reduce = 0, unit_gather = 0;    // [ns] of one layer (ZeRO-3 without a pipeline)
  double across = 0, unit_across = 0;  // [ns] what groups of shards sum between them, likewise
  double unit_again = 0;               // [ns] of its gather where it has been gathered before
  std::int32_t buckets = 1;
  std::int64_t kept = 0;  // [B] that a layer's forward keeps of a micro-batch
  double again = 1;       // share of its layers that are computed again, where any are
  double unit_fetch = 0;  // [ns] that a layer's parameters take from the host
};

class StepEstimate {
 public:
  StepEstimate(const SearchSetup& setup, PipelineTimes& times);

  // The step [ns]. `kept`: costs of layers that are not computed again where others are; null:
  // there are none.
  double step(const Plan& plan, const FamilyCosts& costs, const FamilyCosts* kept,
              const std::vector<PositionLoad>& loads);

  double layers_of(const PositionLoad& load) const;
  // [B/s] to or from where a plan's offloaded state rests, in one direction, for each GPU of a
  // node.
  double away_link(const Plan& plan, BytesPerSecond drives) const;

 private:
  double host_link() const;
  std::int32_t ranks_of_node(const Plan& plan) const;
  double offload_time(const Plan& plan, const std::vector<PositionLoad>& loads) const;

  const SearchSetup& setup_;
  const std::size_t classes_;
  PipelineTimes& times_;
};

// Parameters that a rank of the position updates.
double updated(const Plan& plan, const PositionLoad& load);

}  // namespace rehearse::sim
