// SPDX-License-Identifier: Apache-2.0
// Calibration tables from JSON, inside a cluster file or in one of their own.
#pragma once

#include <string>

#include "schedules/base/json_reader.h"
#include "sim/cluster/calibration.h"

namespace rehearse::sim {

// `object` has been checked against calibration_key_table(). `key` is its key path in the file.
Calibration calibration_of(const JsonValue& object, const std::string& key, JsonReport& report);

}  // namespace rehearse::sim
