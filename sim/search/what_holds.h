// SPDX-License-Identifier: Apache-2.0
// What would hold on the bad day of a tight plan: changes of one key, each with the memory that it
// needs then.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "sim/predict/predict.h"

namespace rehearse::sim {

// The scenario with keys overridden, as --set does: {"plan.micro_batch=1"}.
using ScenarioWith = std::function<Result<Scenario>(const std::vector<std::string>& overrides)>;

// Changes with which the verdict is yes: of a capacity of experts, `expert_parallel`, a part
// computed again, a smaller micro-batch and more context parallelism the mildest value each; at
// most three. REQUIRES: `tight` is predicted from `with({})`.
std::vector<Remedy> what_holds(const Prediction& tight, const Cluster& cluster,
                               const ScenarioWith& with);

}  // namespace rehearse::sim
