// SPDX-License-Identifier: Apache-2.0
// Whether times fit into what integers of nanoseconds can count: a cluster whose rates are typing
// mistakes makes steps of years.
#pragma once

#include "schedules/base/result.h"
#include "sim/predict/predict.h"

namespace rehearse::sim {

// All times of a priced schedule, and their sums over ops and ranks.
Result<> countable(const Prediction& p);
// The same of idle and busy times, which are added up over ranks.
Result<> countable(const Timeline& timeline, std::int32_t gpus);

}  // namespace rehearse::sim
