// SPDX-License-Identifier: Apache-2.0
// A row for every rank: what folding put together, taken apart again.
//
// A prediction needs one row of each class of equal ranks; a measurement has the times of every
// rank. Row r of an unfolded schedule is rank r.
#pragma once

#include <span>
#include <vector>

#include "schedules/ir/schedule.h"
#include "schedules/scenario/plan.h"

namespace rehearse {

// Per rank: the row of the schedule that it performs. REQUIRES: the schedule was lowered for
// `plan`.
std::vector<RankClass> rows_of_ranks(const Plan& plan, const Schedule& schedule);
// Ops of all ranks together.
std::int64_t ops_of_ranks(const Schedule& schedule, const std::vector<RankClass>& row_of_rank);

// Every rank's own row, with its own ops, waits and values, in the order of the row that it stands
// in for; ops meet those of their own column of the mesh or instance of their group. The data
// coordinate of a row is its column: (dp, cp, tp), the last fastest. Names and the arena's
// addresses stay. REQUIRES: as above; ops_of_ranks() is no more than an op id can count.
Schedule unfold(const Schedule& schedule, const Plan& plan);

// Rows of ranges of replicas: every row that stands for all replicas d c becomes one per range
// [begins[i], begins[i + 1]), the last up to d c, in their order. For replicas that differ in speed
// (sim/predict/corrected/variation.h). REQUIRES: as above; no schedule of a parameter server;
// begins starts at 0 and ascends below d c, in multiples of c.
Schedule split_replicas(const Schedule& schedule, const Plan& plan,
                        std::span<const std::int32_t> begins);

}  // namespace rehearse
