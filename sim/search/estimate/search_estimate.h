// SPDX-License-Identifier: Apache-2.0
// One mesh of a search, estimated: for every plan on it whether it can fit, and about how long its
// step takes, in microseconds per plan.
//
// Bodies are priced once per micro-batch, recomputation and kind of family, orders once per shape
// (search_pipeline.h), data-parallel traffic once per family. The memory decision never refuses a
// plan that fits (peak_lower_bound.h); the time only ranks. What is printed is
// confirmed by predict().
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "schedules/base/result.h"
#include "sim/cluster/cluster.h"
#include "sim/predict/predict.h"
#include "sim/search/estimate/search_pipeline.h"
#include "sim/search/space/space.h"

namespace rehearse::sim {

// Plans of more ops (simulated_ops) are left out of a search: each is looked at whole, and 2^20 ops
// take most of a second.
inline constexpr double kMostOpsOfPlan = 1 << 20;
// Ops of a step as it is simulated: where replicas differ, of every range of them.
double simulated_ops(const Scenario& scenario, const Plan& plan);

// What all meshes share.
struct SearchSetup {
  const Space* space = nullptr;
  const Cluster* cluster = nullptr;
  HardwareTables tables;                    // of the cluster
  const std::atomic<bool>* stop = nullptr;  // set: end early; may be null
  // [B] of the fullest rank, beyond the capacity: plans that need no more are kept, a few, though
  // they do not fit.
  std::int64_t most_wanted = 0;
  // Whether a family with a micro-batch and a recomputation is looked at. Empty: all are.
  std::function<bool(const Plan& family, std::int32_t micro_batch, const Recompute&)> wanted;
};
Result<SearchSetup> search_setup(const Space& space, const Cluster& cluster);

struct Candidate {
  double seconds = 0;       // estimated step; -1: not estimated, the plan cannot fit
  std::int64_t bound = 0;   // [B] that the fullest rank needs at least, with context
  std::int32_t family = 0;  // index into MeshCandidates::families
  std::int32_t micro_batch = 1;
  Recompute recompute;
};

struct MeshCandidates {
  MeshSize mesh;
  std::vector<PlanFamily> families;
  std::vector<Candidate> fitting;  // whose bound is within the capacity
  std::vector<Candidate> refused;  // the fastest of those whose bound is not, a few
  std::int64_t plans = 0;          // considered in all
  std::int64_t too_long = 0;       // beside them: left out, with more than kMostOpsOfPlan
  std::optional<Error> error;      // of the reader, where no family is legal
};

// `keep_refused`: how many refused plans are estimated all the same (what more memory would give).
MeshCandidates estimate_mesh(const SearchSetup& setup, const MeshSize& mesh, PipelineTimes& times,
                             std::size_t keep_refused);

}  // namespace rehearse::sim
