// SPDX-License-Identifier: Apache-2.0
// A calibration as files: the tables (schema calibration/1), and a cluster file that describes this
// machine as a node and names them, so that `--cluster` takes it as it stands.
#pragma once

#include <string>

#include "exec/calibrate/calibrate.h"

namespace rehearse::exec {

// `version`: of the program that measured. Keys: docs/add_a_cluster.md.
std::string calibration_text(const MachineTables& tables, const std::string& id,
                             const std::string& version);
// A GPU as it was measured; on a CPU cores stand as GPUs, each with its part of the memory, and the
// links are copies. `calibration`: the
// other file's path, as seen from this one. What a rate stands for that no table has: the best that
// was measured.
std::string cluster_text(const MachineTables& tables, const std::string& id,
                         const std::string& calibration);

}  // namespace rehearse::exec
