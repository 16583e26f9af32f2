// SPDX-License-Identifier: Apache-2.0
// The keys of cluster, fabric and calibration files, as tables (docs/add_a_cluster.md explains
// each).
#pragma once

#include "schedules/base/json_keys.h"

namespace rehearse::sim {

const KeyTable& cluster_key_table();
const KeyTable& fabric_key_table();
const KeyTable& calibration_key_table();

}  // namespace rehearse::sim
