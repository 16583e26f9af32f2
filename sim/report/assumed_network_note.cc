// SPDX-License-Identifier: Apache-2.0
#include "sim/report/assumed_network_note.h"

#include <fmt/format.h>

namespace rehearse::sim {
namespace {

Result<double> step_at(double share, const Scenario& scenario, Cluster cluster,
                       const Prediction& prediction) {
  Scenario same = scenario;
  same.plan = prediction.plan;
  same.plan.micro_batch_auto = false;
  cluster.nics.bandwidth_each.value *= share;
  const Result<Prediction> slower = predict(
      same, cluster, {.memory = prediction.remap_s > 0, .lifetimes = false, .leave_out = true});
  if (!slower) return slower.error();
  return slower.value().step_s;
}

}  // namespace

std::string assumed_network_note(const Scenario& scenario, const Cluster& cluster,
                                 const Prediction& prediction) {
  if (!cluster.nics.assumed || prediction.gpus <= cluster.gpus_per_node) return {};
  const Result<double> half = step_at(0.5, scenario, cluster, prediction);
  const Result<double> quarter = step_at(0.25, scenario, cluster, prediction);
  if (!half || !quarter) return {};
  return fmt::format(
      "nobody printed this cluster's network (nics.assumed): at half of its rate the step takes "
      "{:.6f} s, at a quarter {:.6f} s",
      half.value(), quarter.value());
}

}  // namespace rehearse::sim
