// SPDX-License-Identifier: Apache-2.0
// How a command that predicts opens what it is named: a scenario with its cluster.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schedules/scenario/scenario.h"
#include "sim/cluster/cluster.h"
#include "sim/predict/predict.h"

namespace rehearse::cli {

// A scenario as `simulate` and `run` are told of it.
struct ScenarioFlags {
  std::string scenario, cluster;
  std::vector<std::string> set;
  std::int32_t gpus = 0;  // 0: the scenario's

  ScenarioOptions options() const;
};

struct Opened {
  Scenario scenario;
  sim::Cluster cluster;
};

// The scenario's name and what the command changes: "..., with plan.schedule=1f1b".
std::string titled(const std::string& name, const ScenarioOptions& options);

Result<Opened> open(const std::string& path, const ScenarioOptions& options);
// Errors begin with the `path` that the scenario was named by.
Result<sim::Prediction> predict(const std::string& path, const Scenario& scenario,
                                const sim::Cluster& cluster, const sim::PredictOptions& how = {});

}  // namespace rehearse::cli
