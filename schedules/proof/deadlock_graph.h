// SPDX-License-Identifier: Apache-2.0
// The graph that the deadlock proof walks: which queue each op stands in, whom it meets, what it
// waits for. See deadlock.h.
#pragma once

#include <vector>

#include "schedules/proof/deadlock.h"

namespace rehearse {

inline constexpr std::int32_t kNobody = -1;

// The quotient graph as it is walked: queues of op indices, what each op waits for, and a ring
// through the ops that meet (an op alone is its own ring; kNobody: its partner is missing).
struct RendezvousGraph {
  std::vector<std::int32_t> order, queue_begin{0};  // queue q: order[queue_begin[q] .. [q + 1])
  std::vector<std::uint8_t> joins;                  // parallel to order: in the group before it
  std::vector<std::int32_t> ring;                   // per op
  std::vector<std::int32_t> waits, wait_begin;      // per op; ~id: made on another row (L0)
};

RendezvousGraph rendezvous_graph(const Schedule& schedule, StreamModel model);

}  // namespace rehearse
