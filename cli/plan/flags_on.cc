// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/flags_on.h"

#include "sim/search/space/framework.h"

namespace rehearse::cli {

Result<std::string> flags_on(const sim::Cluster& cluster, const Scenario& scenario,
                             const std::string& framework, const std::string& model_json) {
  const Result<std::vector<sim::Framework>> released = sim::shipped_frameworks();
  if (!released) return released.error();
  const std::string not_there = sim::runs_not_on(released.value(), framework, cluster.gpu);
  if (!not_there.empty()) {
    return "none: " + not_there + "; its launches and overlap stand in for those of what does";
  }
  return launch_flags(scenario, framework, model_json, cluster.gpus_per_node);
}

}  // namespace rehearse::cli
