// SPDX-License-Identifier: Apache-2.0
// How far the difference of two competing plans may be wrong: errors that both share cancel.
//
// Read off the pairs of measured plans that competed (one model, cluster and batch): by how much
// the errors of the two differ, nine times in ten. A pair counts by how alike its difference is to
// that of the two plans: kinds in which the two differ, their gaps in network share and in fill of
// memory. A source counts as in the band of one step (band.h). Nearer than that to one another, two
// plans cannot be told apart.
#pragma once

#include <string>

#include "sim/band/error_table.h"
#include "sim/band/step_features.h"

namespace rehearse::sim {

// ln: nine in ten differences of predicted times ln(a / b) are wrong by no more. 0: the table has
// no pairs. `without_source`: a source is not its own witness.
double difference_band(const StepFeatures& a, const StepFeatures& b, const ErrorTable& table,
                       const std::string& without_source = {});

}  // namespace rehearse::sim
