// SPDX-License-Identifier: Apache-2.0
// What released frameworks can launch, from scenarios/frameworks/released.json.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schedules/base/result.h"
#include "schedules/scenario/plan.h"
#include "sim/cluster/cluster.h"

namespace rehearse::sim {

struct Framework {
  std::string name, title;
  std::vector<std::string> runtimes;   // profiles that price it, the one of today first
  std::vector<std::string> vendors;    // whose GPUs it runs on
  std::vector<std::string> schedules;  // canonical names
  std::vector<std::int32_t> zero_stages, pipeline_zero_stages;  // the latter with stages > 1
  bool tensor_parallel = false;
  std::vector<ContextParallelAlgorithm> context_parallel;  // its ways; none: it has none
  PairOverlap pairs = PairOverlap::None;                   // the most that its pairs hide

  bool runs(const std::string& schedule) const;
  // Whether it runs an order of pairs that hide so much.
  bool pairs_so(const std::string& schedule, PairOverlap overlap) const;
  bool launches(const Plan& plan) const;
};

// Errors: "FILE:LINE: KEY: what is wrong".
Result<std::vector<Framework>> shipped_frameworks();

// Where the framework that prices the plan cannot launch it: who can, "torchtitan, nanotron" or
// "no released framework". Empty: it can, or its runtime is no framework's.
std::string launched_elsewhere(const std::vector<Framework>& frameworks, const Plan& plan);

// Why nobody launches a framework, by its name or that of a profile of its own, on such GPUs:
// "Megatron-LM runs on no GPU of aws". Empty: it runs there, it is not released, or nobody says
// whose GPUs they are.
std::string runs_not_on(const std::vector<Framework>& frameworks, const std::string& name,
                        const Gpu& gpu);

}  // namespace rehearse::sim
