// SPDX-License-Identifier: Apache-2.0
// What is alive on a row while it runs its order: every tensor of the memory profile's scripts,
// rounded as the allocator rounds, but laid nowhere. A walk over the ops, in nanoseconds each.
//
// Never more than what the replay's allocator counts as allocated (blocks that it does not split
// are larger than what was asked for). Not in it: gathers and reductions of ZeRO, the optimizer
// step. States are the caller's.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "schedules/ir/schedule.h"
#include "schedules/scenario/layout.h"
#include "sim/memory/memory_profile.h"

namespace rehearse::sim {

// A row of an order: its compute ops in a few bytes each, OVERLAP pairs one after the other.
struct LiveOp {
  std::int16_t stage = 0;
  OpKind kind{};
};
struct LiveRow {
  std::vector<std::int32_t> stages;  // that it holds, ascending
  std::vector<LiveOp> program;
};
std::vector<LiveRow> live_rows(const Schedule& order);

class LiveBytes {
 public:
  LiveBytes(const MemoryProfile& profile, const Layout& layout, std::int32_t compute_capability);

  // [B] alive at once at most beside the states, over a row's program.
  std::int64_t most(std::span<const LiveOp> program) const;

 private:
  // Relative to what was alive before: the most meanwhile, and what is left after.
  struct Pass {
    std::int64_t most = 0, left = 0;
  };
  struct Passes {
    Pass forward, backward, input, weight;
  };
  std::vector<Passes> of_stage_;
  std::int64_t held_ = 0;  // workspaces and transfer buffers, all the time
};

}  // namespace rehearse::sim
