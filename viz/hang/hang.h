// SPDX-License-Identifier: Apache-2.0
// Why a job stands still: who waits for whom, in which call, and where that ends.
//
// A rank stands in the first call that it has not finished. In a collective it waits for the
// members of the group that have not called the same number of that group; in a transfer for the
// other end, if that has not called its part. Followed from rank to rank this ends at one that
// waits for nobody (it died, or does something else), in a circle, or at a call that all have
// reached: then their arguments differ, or what carries the bytes is at fault.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "viz/hang/dump.h"

namespace rehearse::viz {

enum class HangKind : std::uint8_t {
  Nothing,   // every call of every rank is finished
  Missing,   // a rank does something else, and others wait for it
  Dead,      // a rank of the group left no dump
  Circle,    // ranks wait for one another
  Mismatch,  // ranks called the same number of a group with other ops or shapes
  AllIn,     // all are in the call, with the same arguments: network, device, or too short a wait
};
inline constexpr std::string_view kHangNames[]{"nothing", "missing",  "dead",
                                               "circle",  "mismatch", "all_in"};

struct StandingRank {
  std::int32_t rank = -1;
  bool dumped = true;
  bool stands = false;                  // in `call`; else it waits for nobody
  Call call;                            // where it stands, or the last one that it has finished
  std::vector<std::int32_t> waits_for;  // ascending
};

struct Hang {
  HangKind kind = HangKind::Nothing;
  std::vector<std::int32_t>
      culprits;                     // who is missing or dead, the circle in its order, who differs
  std::vector<StandingRank> ranks;  // ascending
  std::string sentence;
};

// REQUIRES: at least one dump. Error: two of one rank.
Result<Hang> find_hang(std::vector<Dump> dumps);

std::string hang_text(const Hang& hang);
std::string hang_json(const Hang& hang);

// What NCCL's RAS text says of ranks that are behind, missing or dead: the same answer where nobody
// has dumps. Ranks are those of the communicator. Error: it is no such text.
bool is_ras(std::string_view text);
Result<Hang> find_hang_in_ras(std::string_view text, const std::string& path);

}  // namespace rehearse::viz
