// SPDX-License-Identifier: Apache-2.0
// Why one step takes longer than another: a waterfall of causes from the one to the other, the keys
// in which they differ, their memory, and one sentence.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "schedules/base/json_document.h"
#include "schedules/base/json_reader.h"
#include "schedules/trace/trace.h"
#include "sim/explain/breakdown.h"
#include "sim/predict/predict.h"

namespace rehearse::sim {

// One of the two: a scenario that was predicted, a report, a trace.
struct Explained {
  std::string what;  // "scenario", "report", "trace"
  bool measured = false;
  std::string title;
  std::int64_t ranks = 1;
  Breakdown breakdown;
  std::optional<std::int64_t> tokens;  // of a step
  // What it was made of, by key ("plan.schedule"): compared where both have the key.
  std::vector<std::pair<std::string, Json>> keys;
  std::vector<std::pair<std::string, std::int64_t>> memory;  // [B], of the fullest rank, by part
  Json confidence;                                           // as in its report; null: none
  std::vector<std::string> notes;
};

Explained explained(const Prediction& prediction, const Scenario& scenario, const Cluster& cluster);
// A report of schema rehearse.prediction/1 or rehearse.measurement/1, explained. Error: what it
// lacks, by key.
Result<Explained> explained(const JsonValue& report, const std::string& path);
Explained explained(const Trace& trace);

struct DifferingKey {
  std::string key;
  Json a, b;  // null: the other alone has it
};
struct MemoryDifference {
  std::string part;
  std::int64_t a = 0, b = 0;  // [B]
};
struct Explanation {
  Explained a, b;
  std::vector<CauseDifference> causes;  // add up to the difference of the steps
  std::vector<DifferingKey> keys;
  std::vector<MemoryDifference> memory;
  std::string sentence;
};
Explanation explain(Explained a, Explained b);

std::string explanation_json(const Explanation& explanation);
std::string explanation_text(const Explanation& explanation);

}  // namespace rehearse::sim
