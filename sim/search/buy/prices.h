// SPDX-License-Identifier: Apache-2.0
// A file of prices of the day, as spot markets have them: by cluster, and how often machines are
// taken away again.
//
//   {"schema": "prices/1", "prices": [{"cluster": "dgx-h100", "usd_per_gpu_hour": 2.1,
//     "interruptions_per_million_gpu_hours": 400, "source": "a market, 2026-11-26"}]}
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "schedules/base/result.h"

namespace rehearse::sim {

struct Price {
  std::string cluster;  // id
  double usd_per_gpu_hour = 0;
  double interruptions_per_million_gpu_hours = 0;  // on top of the cluster's failures
  std::string source;                              // who says so, or "assumed"
};

// Errors: "FILE:LINE: KEY: what is wrong".
Result<std::vector<Price>> read_prices(const std::string& path);
// nullptr: the file has none for that id.
const Price* price_of(const std::vector<Price>& prices, std::string_view cluster);

}  // namespace rehearse::sim
