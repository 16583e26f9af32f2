// SPDX-License-Identifier: Apache-2.0
// Memory of the processes of a run, as the system counts it: what a plan says, item by item, and
// what was measured. One format for the prediction's report and the run's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace rehearse {

// Over all processes of the run; memory that several of them share counts once.
struct ResidentPlan {
  struct Item {
    std::string_view key;   // of `outside_arenas` in reports
    std::string_view text;  // for people
    std::int64_t bytes = 0;
  };
  std::int64_t arenas = 0;  // of all ranks, in host memory too [B]
  std::vector<Item> outside;
  std::int64_t total() const;  // what is expected to be resident at the peak [B]
};

// Lines of a table: each item, the sum, and beside it what was measured (below 0: not yet).
std::string resident_text(const ResidentPlan& plan, std::int64_t measured_bytes = -1);

}  // namespace rehearse
