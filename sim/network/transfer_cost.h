// SPDX-License-Identifier: Apache-2.0
// What a point-to-point transfer between pipeline positions and a copy to or from the host cost.
#pragma once

#include <vector>

#include "schedules/base/units.h"
#include "schedules/scenario/layout.h"
#include "sim/network/collective_cost.h"
#include "sim/network/topology.h"

namespace rehearse::sim {

struct TransferCost {
  Nanoseconds time{};  // from both ends ready to the data's arrival, alone
  // The part of `time` in which compute waits though nothing of this transfer travels, where it is
  // blocking (runtime key blocking_transfer_us; Plan::transfers serial).
  Nanoseconds waits{};
  Nanoseconds crossing{};  // the part over throttled links, where nobody copies
  CostLevel level = CostLevel::Formula;
  LinkKind link = LinkKind::Port;
  std::vector<Demand> send, recv;  // what each end demands; together they are the flow
};

// One rank sends `bytes` over `path`; its siblings do the same at the same time.
TransferCost transfer_cost(Bytes bytes, const Path& path, const Network& network);

// How Megatron moves an activation that all ranks of a tensor-parallel group hold: each sends 1/t
// over its own rail and the receivers gather (Narayanan et al., arXiv 2104.04473, section 4.1).
// `bytes`: the whole activation. The time includes the gather; its demands are in `recv`.
TransferCost scatter_gather_transfer_cost(Bytes bytes, const Path& path,
                                          const GroupShape& receiver_tensor_group,
                                          const Network& network);

// What a stage hands to the next over `path`, as the plan's framework moves it; `bytes`: whole, as
// Layout::handover_bytes says.
TransferCost handover_cost(const Plan& plan, Bytes bytes, const Path& path,
                           const GroupShape& receiver_tensor_group, const Network& network);

// A copy between the row's device and its host (`path` = Network::to_host).
TransferCost host_copy_cost(Bytes bytes, bool to_host, const Path& path, const Network& network);

// The same to or from the drives of the row's node, through its host, while `ranks` of its ranks do
// so: the slower of the two. Where the cluster does not say how fast drives are, that to the host.
TransferCost nvme_copy_cost(Bytes bytes, bool to_host, std::int32_t ranks, const Path& path,
                            const Network& network);
// What `ranks` of a node, at once, take to read and then write so much of each [ns].
Nanoseconds nvme_time(Bytes read, Bytes written, std::int32_t ranks, const Network& network);
// An optimizer's update by the host in equal parts [ns], all of them together: the first part comes
// and the last one goes beside nothing. What runs beside an update is what DeepSpeed's
// PipelinedOptimizerSwapper leaves under way: the next part's read, the last one's write, each on a
// handle of its own (deepspeed/runtime/swap_tensor/pipelined_optimizer_swapper.py, edaa7221).
struct SwappedUpdate {
  Nanoseconds read, update, written;  // of all parts
  SwapPipeline pipeline{};
  double parts = 1;
};
Nanoseconds swapped_update_time(const SwappedUpdate& of);
// An optimizer's update by the host's processors, which the ranks of a node share; `bytes`: what it
// reads and writes.
Nanoseconds host_update_time(Bytes bytes, std::int32_t ranks_per_node, const Network& network);

}  // namespace rehearse::sim
