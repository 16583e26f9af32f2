// SPDX-License-Identifier: Apache-2.0
// The plan nearest to one that does not fit in memory: the fewest keys changed, and of such plans
// the fastest.
//
// The space is the scenario's own, with its model, GPUs and all that its plan says but the keys of
// plan_changes.h. With one key changed, then two, then three, a search's estimates
// (search_estimate.h) rank the plans whose memory bound lets them in, and the first that the replay
// lets in is taken; one with more changes only where its step is a tenth shorter. Where none fits,
// the least memory of the whole space is looked for. The row that is fullest by its bound is
// replayed first, and the others of the answer alone. No clock, no chance: the same plan gives the
// same answer.
#pragma once

#include "schedules/base/result.h"
#include "sim/cluster/cluster.h"
#include "sim/memory/memory.h"
#include "sim/search/space/space.h"

namespace rehearse::sim {

// `space`: read from the scenario of `plan`, whose micro-batch and order are chosen. `plan` does
// not fit. Errors: the cluster's tables cannot be read.
// `every_row`: of every plan that the bounds let in every row is replayed: the same answer, slowly.
Result<NearestPlan> nearest_fit(const Space& space, const Cluster& cluster, const Plan& plan,
                                bool every_row = false);

}  // namespace rehearse::sim
