// SPDX-License-Identifier: Apache-2.0
// What a GPU's tables say as a whole: the shares of its peaks that kernels reach, and a cluster
// file with those peaks. Peaks are the best that was measured, not a data sheet's.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "exec/calibrate/calibrate.h"

namespace rehearse::exec {

// Numbers by name, as sim/compute/kernel_scalars.h has them ("memory.norm"), and "device.*": clocks
// and bytes that are kept for the record. REQUIRES: tables.gpu.
std::vector<std::pair<std::string, double>> gpu_scalars(const MachineTables& tables);
std::string gpu_cluster_text(const MachineTables& tables, const std::string& id,
                             const std::string& calibration);

}  // namespace rehearse::exec
