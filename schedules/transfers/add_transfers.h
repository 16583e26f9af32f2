// SPDX-License-Identifier: Apache-2.0
// L0 -> L1: the sends and receives between stages on different positions.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "schedules/ir/schedule.h"

namespace rehearse {

// In which order the rows issue their transfers. All but Naive put them in one global order that
// every dependency goes forward in, and restrict it to the row: no deadlock, by construction.
enum class TransferPolicy : std::uint8_t {
  TimeSorted,     // by the estimated finish of the producer: nobody queues behind what is not ready
  ProducerOrder,  // torch's lowering: rows take turns, op by op; a SEND follows its producer at
                  // once and its RECV enters the other row's list at that moment
  ConsumerOrder,  // by the estimated start of the consumer: buffers arrive as late as they may
  Grouped,        // time-sorted; what two rows exchange back to back is one group (ncclGroupStart)
  Naive,          // RECV before its consumer, SEND after its producer. Hangs for most schedules on
                  // one stream: what everybody writes first, kept to show it
};
struct TransferPolicyInfo {
  std::string_view name;  // `--transfers`
  TransferPolicy policy;
};
inline constexpr std::array<TransferPolicyInfo, 5> kTransferPolicies{{
    {"time_sorted", TransferPolicy::TimeSorted},
    {"producer_order", TransferPolicy::ProducerOrder},
    {"consumer_order", TransferPolicy::ConsumerOrder},
    {"grouped", TransferPolicy::Grouped},
    {"naive", TransferPolicy::Naive},
}};
std::optional<TransferPolicy> find_transfer_policy(std::string_view name);

// Adds SEND and RECV on stream p2p wherever adjacent stages lie on different positions (the same
// position hands over in place), with peers, matches and waits (link_transfers). Works on any
// placement, on slices, on parts, on OVERLAP pairs (both children take and give) and split
// backwards (I hands on, W does not). Exchanges of own groups stay where they stand.
//
// Why it cannot hang. Let an op's place be the largest finish of what it follows on its row and of
// what it takes in (an exchange's that of all its members), and a transfer's place the finish of
// its producer (or, ConsumerOrder, the place of its consumer); equal places: transfers first, then
// activation before gradient, stage, micro-batch, slice. Each edge (row order, data, stream) goes
// forward in this one order, so the quotient graph of every stream model is acyclic.
//
// finish[i]  [ns]  estimated end of op i: unit times will do (time_compute), a simulator's are
//                  better. An argument, so that schedules needs nothing of sim.
// REQUIRES: `l0` is valid (Level::Compute); finish.size() == l0.ops.size(); finish increases
//           strictly along every row and every dependency (no op of zero length but exchanges,
//           which no transfer follows).
Schedule add_transfers(const Schedule& l0, std::span<const Nanoseconds> finish,
                       TransferPolicy policy = TransferPolicy::TimeSorted);

// A `finish` for orders that nobody has timed: F, I, W and every UNSHARD, RESHARD or REDUCE_GRAD
// takes 1, B takes 2, and a row does one op after the other, so that finish increases along it
// (by streams a gather and the forward beside it would end together, and ties list SENDs first).
// REQUIRES: Level::Compute; it cannot hang (prove_no_deadlock).
std::vector<Nanoseconds> unit_finish(const Schedule& l0);

}  // namespace rehearse
