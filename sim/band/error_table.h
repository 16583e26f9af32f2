// SPDX-License-Identifier: Apache-2.0
// How wrong predictions have been: one row for every validated step, written by bench/errors.py
// into scenarios/accuracy/errors.csv, and beside it in errors.json what is made of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schedules/base/result.h"
#include "sim/band/step_features.h"

namespace rehearse::sim {

struct MeasuredError {
  std::int32_t source = 0;  // into ErrorTable::sources
  StepFeatures features;
  double log_error = 0;  // ln(measured / predicted): above 0 the step was slower than predicted
  // Of its source's plans that competed, and which of them it is; 0: of none.
  std::int32_t group = 0, plan = 0;
};

// Plan keys that a scenario may leave open. Where none of them is given, the prediction of the same
// steps moves by so much.
struct LeftOut {
  std::vector<std::string> keys;
  double move = 0;  // ln
};

// How alike two steps are, and what is read off the errors of those alike (sim/band/band.h).
struct BandRule {
  double difference = 1;        // weight of a row for each of differences()
  double network_scale = 1;     // difference in network_share that divides the weight by e
  double memory_scale = 1;      // the same of memory_fill
  double lower = 0, upper = 1;  // quantiles
  double few = 0;               // so many equal rows give a source half of its weight
};

struct ErrorTable {
  std::vector<std::string> sources;
  std::vector<MeasuredError> rows;
  BandRule rule;
  double unseen = 0;  // ln: what a kind of step costs that nobody had measured
  std::vector<LeftOut> left_out;
  // ln: of two plans of one model on one cluster that are predicted so far apart, two in three, and
  // nine in ten such pairs, are measured in the predicted order. Nearer than the first, an order is
  // little better than a guess: such plans are equal.
  double pair_equal = 0, pair_ordered = 0;
};

// Reads a JSON file, and the CSV file of the same name. Rows of one source stand together. Errors:
// "FILE:LINE: KEY: what is wrong".
Result<ErrorTable> read_error_table(const std::string& path);
// That of shipped_directory().
Result<ErrorTable> shipped_error_table();

}  // namespace rehearse::sim
