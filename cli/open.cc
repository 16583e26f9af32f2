// SPDX-License-Identifier: Apache-2.0
#include "cli/open.h"

namespace rehearse::cli {

ScenarioOptions ScenarioFlags::options() const {
  ScenarioOptions options{.overrides = set};
  if (!cluster.empty()) options.cluster = cluster;
  if (gpus > 0) options.gpus = gpus;
  return options;
}

Result<Opened> open(const std::string& path, const ScenarioOptions& options) {
  Result<Scenario> scenario = read_scenario(path, options);
  if (!scenario) return scenario.error();
  Result<sim::Cluster> cluster = sim::read_cluster(scenario.value().cluster);
  if (!cluster) return cluster.error();
  return Opened{std::move(scenario).value(), std::move(cluster).value()};
}

Result<sim::Prediction> predict(const std::string& path, const Scenario& scenario,
                                const sim::Cluster& cluster, const sim::PredictOptions& how) {
  Result<sim::Prediction> made = sim::predict(scenario, cluster, how);
  if (made) return made;
  Error error = made.error();
  error.message = path + ": " + error.message;
  return error;
}

}  // namespace rehearse::cli
