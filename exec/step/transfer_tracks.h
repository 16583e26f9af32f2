// SPDX-License-Identifier: Apache-2.0
// Transfers with other processes on tracks of their lane: sends and receives, with the positions
// before and behind, each have one. So a receive that waits for its partner holds up no other
// transfer.
//
// A schedule's lane of transfers is in order, and its waits rely on that. What the order gave is
// here as waits: for what a transfer's predecessors waited for, for those that touched its memory,
// and, for whoever waits for a transfer, for its predecessors on the other tracks. All go forward
// in the schedule's one order, as its own waits do, so its proof holds.
#pragma once

#include <span>
#include <vector>

#include "exec/backend/exchange.h"
#include "schedules/ir/schedule.h"

namespace rehearse::exec {

class TransferTracks {
 public:
  TransferTracks(const Schedule& schedule, RankClass row);

  Track of(OpId op) const { return at(op).track; }  // Main of all but transfers
  // What a rank of the row waits for before the op, those of the schedule among them.
  std::span<const OpId> waits(OpId op) const { return at(op).waits; }
  // A receive takes a part of the device while it waits: it is posted when this op, the compute op
  // before it in the schedule's order, begins. None: at once.
  OpId behind(OpId op) const { return at(op).behind; }

 private:
  struct Entry {
    Track track = Track::Main;
    std::vector<OpId> waits;
    OpId behind;
  };
  const Entry& at(OpId op) const { return entries_[static_cast<std::size_t>(op.value - first_)]; }

  std::int32_t first_ = 0;
  std::vector<Entry> entries_;  // of the row's ops
};

}  // namespace rehearse::exec
