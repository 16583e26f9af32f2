// SPDX-License-Identifier: Apache-2.0
// A prediction for scripts (JSON, schema rehearse.prediction/1) and for people.
#pragma once

#include <string>

#include "sim/predict/predict.h"

namespace rehearse::sim {

// One JSON document, indented; every key of the contract (docs/report.md), unknown values null.
std::string report_json(const Prediction& prediction, const Scenario& scenario,
                        const Cluster& cluster);
// What a person wants to know first, at most 100 columns.
std::string report_text(const Prediction& prediction, const Scenario& scenario,
                        const Cluster& cluster);
// Bytes that a parameter's gradient is held in: the plan's, but our executor sums in fp32 alone.
std::int32_t gradient_bytes(const Plan& plan);
// The plan and its batch on one line: "tp 2 pp 2 dp 4, ...; 8 micro-batches of 1 x 2048 tokens".
std::string step_line(const Plan& plan);

}  // namespace rehearse::sim
