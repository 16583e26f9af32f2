// SPDX-License-Identifier: Apache-2.0
// A schedule made ready to be timed: what waits for what, as flat arrays, without any time in it.
//
// A *node* is what happens as one: an op, or ops of equal match (a SEND and its RECV, a
// collective's members on several rows), which start together once every one is at the head of its
// stream with its waits satisfied, and end together. A *queue* is one stream of one row. Nodes are
// numbered in a topological order (in the order of their depth, so that a node's predecessors are
// near), found once and used by both engines with any costs. Nodes that can never start (a
// deadlock, a SEND without its RECV) come last; `deadlock` says who stands where.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "schedules/ir/schedule.h"

namespace rehearse::sim {

using NodeId = Id<struct NodeTag>;

// Why a node waits for another. In this order in Program::preds of a node.
enum class Edge : std::uint8_t {
  Data,   // an event of another stream
  Queue,  // the op before on the same stream
  Reuse,  // an event that only lets memory be used again
};

struct Program {
  std::int32_t num_ops = 0, num_rows = 0, num_nodes = 0;
  std::int32_t most_running = 0;  // nodes that can run at the same time: width of all queues
  std::int32_t num_runnable = 0;  // nodes [num_runnable, num_nodes) never start
  std::vector<std::int32_t> multiplicity;  // per row: ranks that it stands for

  std::vector<NodeId> node_of;             // per op
  std::vector<std::int32_t> member_begin;  // ops of node n: members[member_begin[n] .. [n+1])
  std::vector<OpId> members;
  std::vector<std::int32_t> pred_begin;  // what must have ended before node n may start
  std::vector<NodeId> preds;             // runnable nodes: every pred < n
  std::vector<Edge> pred_edge;           // parallel to preds

  std::vector<std::int32_t> queues;    // parallel to members: row * kNumStreams + stream
  std::vector<RankClass> computes_on;  // per node: where, for a node that computes(); else none

  // Per op, what engines and attribution need of the schedule.
  std::vector<RankClass> row_of;
  std::vector<std::int32_t> row_begin;  // ops of row r, in issue order: [row_begin[r], [r+1])
  std::vector<OpKind> kind;
  std::vector<Stream> stream;
  std::vector<GroupId> group;

  std::string deadlock;  // empty, or one line: which op every stuck stream stands at, and why

  std::span<const OpId> members_of(NodeId n) const { return cut(members, member_begin, n); }
  std::span<const NodeId> preds_of(NodeId n) const { return cut(preds, pred_begin, n); }
  // A node that works on its row's device: what `busy` counts, what jitter and slowdown act on.
  bool computes(OpId op) const {
    const OpClass op_class = traits(kind[op.index()]).op_class;
    return stream[op.index()] == Stream::Compute &&
           (op_class == OpClass::Compute || op_class == OpClass::Local);
  }

 private:
  template <class T>
  static std::span<const T> cut(const std::vector<T>& all, const std::vector<std::int32_t>& begin,
                                NodeId n) {
    const auto from = static_cast<std::size_t>(begin[n.index()]);
    return std::span{all}.subspan(from, static_cast<std::size_t>(begin[n.index() + 1]) - from);
  }
};

// REQUIRES: waits name ops of the schedule. Level::Full: the waits, matches and stream orders are
// taken as all the dependencies there are. O(ops + waits).
Program compile(const Schedule& schedule);

}  // namespace rehearse::sim
