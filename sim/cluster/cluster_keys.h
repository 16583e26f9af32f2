// SPDX-License-Identifier: Apache-2.0
// The keys of cluster, fabric and calibration files, as tables (docs/add_a_cluster.md explains
// each).
#pragma once

#include <array>
#include <string_view>

#include "schedules/base/json_keys.h"

namespace rehearse::sim {

// Words of a calibration's rows, in the order of CollectiveOp and CopyDirection.
inline constexpr std::array<std::string_view, 7> kCollectiveNames{
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "send_recv"};
inline constexpr std::array<std::string_view, 3> kCopyNames{"h2d", "d2h", "d2d"};

const KeyTable& cluster_key_table();
const KeyTable& fabric_key_table();
const KeyTable& calibration_key_table();

}  // namespace rehearse::sim
