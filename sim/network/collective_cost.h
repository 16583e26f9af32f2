// SPDX-License-Identifier: Apache-2.0
// What a collective costs while nothing else uses its links, and what it demands of them.
//
// The chain: the cluster's own measured table -> a fit of measured tables for this GPU type ->
// the multi-node form or NCCL's tuning model with a calibrated overhead -> data sheet. Sharing
// with other ops is the event engine's business; siblings of the same row are already counted.
// Holds for bandwidth-bound and latency-bound sizes of one call; no chunks, no stragglers.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "schedules/base/units.h"
#include "schedules/body/body.h"
#include "schedules/ir/op.h"
#include "sim/cost/cost.h"
#include "sim/network/nccl_tuner.h"
#include "sim/network/topology.h"

namespace rehearse::sim {

struct CollectiveCost {
  Nanoseconds time{};  // alone; 0 for one rank or no bytes
  CostLevel level = CostLevel::Formula;
  Algorithm algorithm = Algorithm::Ring;
  Protocol protocol = Protocol::Simple;
  LinkKind link = LinkKind::Port;  // the slowest one (report key `link`)
  std::vector<Demand> demands;     // per resource once; out and in are two resources
  Nanoseconds crossing{};          // of `time`: over throttled links, where nobody copies
};

// `kind`: AllReduce, AllGather (= Unshard), ReduceScatter, Broadcast, Reduce, Gather, Scatter,
// AllToAll. `bytes`: the whole array, as nccl-tests counts: the buffer of each rank for AllReduce,
// Broadcast, Reduce and AllToAll, n times a rank's part for AllGather, ReduceScatter, Gather and
// Scatter. Any other kind, one rank or no bytes costs nothing. `apart`: a sum lies beside what was
// summed; on a CPU it then writes memory that nobody had read.
CollectiveCost collective_cost(OpKind kind, Bytes bytes, const GroupShape& shape,
                               const Network& network, bool apart = false);

// A group's `tensors` broadcast one after another, each by the rank that owns it, `bytes` in all.
// Rings alone broadcast in NCCL: each owner's first chunk passes all other ranks, a hop each.
// bytes / bus + min(ranks, tensors) (ranks - 1) hop; hop: the tuner's latency of a ring's step
// under the Simple protocol, and a chunk at a channel's rate.
CollectiveCost tensor_broadcasts_cost(Bytes bytes, std::int32_t tensors, const GroupShape& shape,
                                      const Network& network);

// Time of a shift: every rank sends `bytes` to the next of its group (ring attention, p2p chains).
CollectiveCost ring_shift_cost(Bytes bytes, const GroupShape& shape, const Network& network);

// [s] before the first byte of a message inside a node arrives: as measured between GPUs, or on a
// torus the links that it passes, one after another.
double send_recv_latency(std::int32_t hops, const Network& network);

// Bus-bandwidth factor f: bus bandwidth = f * bytes / time. 2(n-1)/n for AllReduce; (n-1)/n for
// AllGather, ReduceScatter, AllToAll, Gather, Scatter; 1 for Broadcast, Reduce, Send, Recv.
// Source: NVIDIA/nccl-tests doc/PERFORMANCE.md.
double bus_bandwidth_factor(OpKind kind, std::int32_t ranks);
BytesPerSecond bus_bandwidth(OpKind kind, Bytes bytes, std::int32_t ranks, Nanoseconds time);

}  // namespace rehearse::sim
