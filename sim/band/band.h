// SPDX-License-Identifier: Apache-2.0
// Between which times the truth lies, nine times in ten: read off the errors of the validated steps
// that are most like the predicted one.
//
// Every validated step counts by how alike it is: `difference` for each feature without a scale
// that differs, falling off exponentially with the distance in network share and in fill of memory.
// A source (one published table) counts by its most alike step, however many it has, since its
// steps share the machine and the software. The band is the 5th to 95th percentile of the errors,
// each side on its own, so that it is one-sided where errors have a sign; the predicted time lies
// in it.
//
// Beyond that it widens, in quadrature: by `unseen` for a kind of step that no source has (its GPU
// and precision, its runtime, its network, its size), for the share of the step that rests on rates
// without a source, and by what a key moves that was left out. docs/accuracy.md has the coverage of
// sources that were left out, and what each feature earns.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/band/error_table.h"
#include "sim/band/step_features.h"

namespace rehearse::sim {

// A source behind a band.
struct NearCases {
  std::string source;
  std::int32_t cases = 0;            // its steps
  double share = 0;                  // of all weights
  std::vector<std::string> differs;  // features in which its most alike step differs
};

struct Band {
  double low = 1, high = 1;            // times the predicted step
  std::vector<NearCases> nearest;      // by share, those with at least 5 %
  std::vector<std::string> unseen;     // what no validated step has, in words
  std::vector<std::string> defaulted;  // plan keys that were left out, for which it is wider

  double half_width() const { return (high - low) / 2; }
};

struct BandQuery {
  StepFeatures features;
  std::vector<std::string> given;  // plan keys that the scenario says
  double assumed_share = 0;        // of the step: rests on rates that nobody measured
  std::string without_source;      // is not among the errors: a source is not its own witness
};

Band band_of(const BandQuery& query, const ErrorTable& table);

// A band of `error` to either side: what rests on a machine's own measurements.
Band even_band(double error);

}  // namespace rehearse::sim
