// SPDX-License-Identifier: Apache-2.0
// What better hardware would give: the fastest step under each change of the cluster.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "sim/search/estimate/search_estimate.h"
#include "sim/search/estimate/search_live.h"
#include "sim/search/search.h"

namespace rehearse::sim {

// [B] of a GPU's capacity that a plan may take.
std::int64_t allowed_bytes(const Cluster& cluster, const SearchOptions& options);
// Whether a plan's memory is: at even load; on its bad day too where plans must survive it.
bool is_within(const MemoryReport& memory, std::int64_t allowed, const SearchOptions& options);

// Every change re-simulates `plans`, the fastest first; more memory instead those of `refused` (too
// large for the cluster as it is, by their estimates) that it lets in. Best first.
std::vector<Sensitivity> sensitivities_of(const SearchSetup& setup, const SearchOptions& options,
                                          LiveBounds& live, std::span<const FoundPlan> plans,
                                          std::span<const std::pair<double, Plan>> refused);

}  // namespace rehearse::sim
