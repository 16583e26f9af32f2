// SPDX-License-Identifier: Apache-2.0
// rehearse calibrate --from: a cluster file corrected by a step that was measured on the cluster.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rehearse::cli {

struct CalibrateFrom {
  std::string from, scenario, cluster, out;
  std::vector<std::string> set;
  std::int32_t steps = 0;  // of a foreign profile; 0: as many as it marks, else one
};

// Returns the exit code.
int calibrate_from(const CalibrateFrom& options);

}  // namespace rehearse::cli
