// SPDX-License-Identifier: Apache-2.0
#include "cli/open.h"

#include <algorithm>

#include "schedules/base/counted.h"

namespace rehearse::cli {

ScenarioOptions ScenarioFlags::options() const {
  ScenarioOptions options{.overrides = set};
  if (!cluster.empty()) options.cluster = cluster;
  if (gpus > 0) options.gpus = gpus;
  return options;
}

std::string titled(const std::string& name, const ScenarioOptions& options) {
  constexpr std::size_t kMost = 3;
  std::vector<std::string> changes;
  if (options.cluster) changes.push_back("cluster=" + *options.cluster);
  if (options.gpus) changes.push_back("gpus=" + std::to_string(*options.gpus));
  for (const std::string& change : options.overrides) {
    if (change.starts_with("name=")) return name;
    changes.push_back(change);
  }
  if (name.empty() || changes.empty()) return name;
  std::string text = name + ", with ";
  for (std::size_t i = 0; i < std::min(changes.size(), kMost); ++i) {
    text += (i == 0 ? "" : ", ") + changes[i];
  }
  if (changes.size() > kMost) {
    text += " and " + counted(static_cast<std::int64_t>(changes.size() - kMost), "other key");
  }
  return text;
}

Result<Opened> open(const std::string& path, const ScenarioOptions& options) {
  Result<Scenario> read = read_scenario(path, options);
  if (!read) return read.error();
  Scenario scenario = std::move(read).value();
  scenario.name = titled(scenario.name, options);
  Result<sim::Cluster> cluster = sim::read_cluster(scenario.cluster);
  if (!cluster) return cluster.error();
  return Opened{std::move(scenario), std::move(cluster).value()};
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
