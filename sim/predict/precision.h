// SPDX-License-Identifier: Apache-2.0
// Which types of product a cluster's GPUs have, and what becomes of a plan that asks for others.
#pragma once

#include <string>
#include <vector>

#include "schedules/base/result.h"
#include "schedules/scenario/plan.h"
#include "sim/cluster/cluster.h"

namespace rehearse::sim {

// Products with a scale per block need a GPU that has them: else refused in one line.
Result<> check_precision(const Plan& plan, const Cluster& cluster);
// What no product of the cluster's GPUs can do is priced as what is done instead: said.
std::vector<std::string> precision_warnings(const Plan& plan, const Cluster& cluster);

}  // namespace rehearse::sim
