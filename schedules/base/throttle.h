// SPDX-License-Identifier: Apache-2.0
// A link that is slowed on purpose (`run --throttle`): every two processes of a run then have one
// of their own in each direction, which the executor keeps to and the prediction counts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "schedules/base/result.h"

namespace rehearse {

struct Throttle {
  double bytes_per_ns = 0;      // 0: nothing is slowed
  std::int64_t latency_ns = 0;  // from the last byte's leaving to its arrival

  bool on() const { return bytes_per_ns > 0; }
  // For how long bytes keep the link [ns].
  std::int64_t occupied_ns(std::int64_t bytes) const {
    return on() ? static_cast<std::int64_t>(static_cast<double>(bytes) / bytes_per_ns + 0.5) : 0;
  }
};

// "GBPS,LATENCY_US": 10^9 bytes per second, microseconds. Error: what it should be.
Result<Throttle> read_throttle(std::string_view text);
// "0.5 GB/s each way between two processes, 200 us later".
std::string throttle_text(const Throttle& throttle);

}  // namespace rehearse
