// SPDX-License-Identifier: Apache-2.0
#include "schedules/proof/deadlock_graph.h"

#include <algorithm>

#include "schedules/ir/stage_index.h"

namespace rehearse {
namespace {

// Number of the queue inside its row: streams first, then what the model distinguishes.
std::size_t queue_in_row(const Op& op, StreamModel model) {
  const auto stream = static_cast<std::size_t>(op.stream);
  if (!is_transfer(op.kind)) return stream;
  if (op.instance >= 0 && model != StreamModel::Host) return stream;  // a listed group
  const std::size_t peer = op.peer ? op.peer.index() : 0;
  const std::size_t gradient = op.payload == Payload::Gradient ? 1 : 0;
  switch (model) {
    case StreamModel::One:
    case StreamModel::Fuse:
      return stream;
    case StreamModel::Host:
      return static_cast<std::size_t>(Stream::Compute);
    case StreamModel::Payload:
      return kNumStreams + gradient;
    case StreamModel::Peer:
      return kNumStreams + peer;
    case StreamModel::PeerDirection:
      return kNumStreams + 4 * peer + 2 * gradient + (op.kind == OpKind::Send ? 1 : 0);
  }
  return stream;
}

std::size_t queues_per_row(const Schedule& schedule, StreamModel model) {
  const auto peers = static_cast<std::size_t>(std::max(schedule.placement.positions, 1));
  if (model == StreamModel::Peer) return kNumStreams + peers;
  if (model == StreamModel::PeerDirection) return kNumStreams + 4 * peers;
  return kNumStreams + 2;
}

// Links ops of equal match in a ring, in program order; a transfer alone has none.
class Rings {
 public:
  explicit Rings(std::vector<std::int32_t>& ring) : ring_(ring) {}
  void add(std::int32_t id, const Op& op) {
    const auto at = static_cast<std::size_t>(id);
    ring_[at] = is_transfer(op.kind) ? kNobody : id;
    if (!op.match) return;
    if (op.match.index() >= last_.size()) {
      first_.resize(std::max(op.match.index() + 1, 2 * last_.size()), kNobody);
      last_.resize(first_.size(), kNobody);
    }
    std::int32_t& end = last_[op.match.index()];
    if (end == kNobody) {
      first_[op.match.index()] = id;
    } else {
      ring_[at] = first_[op.match.index()];
      ring_[static_cast<std::size_t>(end)] = id;
    }
    end = id;
  }

 private:
  std::vector<std::int32_t>& ring_;
  std::vector<std::int32_t> first_, last_;  // by match
};

void fill_queues_and_rings(const Schedule& schedule, StreamModel model, RendezvousGraph& graph) {
  std::vector<std::int32_t> queue_of(schedule.ops.size());
  std::vector<std::int32_t> slot(queues_per_row(schedule, model), kNobody);  // queues of one row
  std::vector<std::size_t> used;
  std::vector<std::int32_t> count{0};
  graph.ring.resize(schedule.ops.size());
  Rings rings(graph.ring);
  bool may_join = model == StreamModel::Fuse;
  for (RankClass row{0}; row.value < schedule.num_rows(); ++row.value) {
    for (std::size_t i = schedule.first_op(row); i < schedule.first_op({row.value + 1}); ++i) {
      const std::size_t in_row = queue_in_row(schedule.ops[i], model);
      if (slot[in_row] == kNobody) {
        slot[in_row] = static_cast<std::int32_t>(count.size()) - 1;
        used.push_back(in_row);
        count.push_back(0);
      }
      queue_of[i] = slot[in_row];
      rings.add(static_cast<std::int32_t>(i), schedule.ops[i]);
      ++count[static_cast<std::size_t>(queue_of[i]) + 1];
      may_join |= schedule.ops[i].instance >= 0;
    }
    for (const std::size_t in_row : used) slot[in_row] = kNobody;
    used.clear();
  }
  for (std::size_t q = 1; q < count.size(); ++q) count[q] += count[q - 1];
  graph.queue_begin = count;
  graph.order.resize(schedule.ops.size());
  graph.joins.assign(schedule.ops.size(), 0);
  for (std::size_t i = 0; i < queue_of.size(); ++i) {
    const auto place = static_cast<std::size_t>(count[static_cast<std::size_t>(queue_of[i])]++);
    graph.order[place] = static_cast<std::int32_t>(i);
    if (!may_join || i == 0 || queue_of[i] != queue_of[i - 1]) continue;
    const Op& op = schedule.ops[i];
    const Op& before = schedule.ops[i - 1];
    if (!is_transfer(op.kind) || !is_transfer(before.kind)) continue;
    const bool listed = op.instance >= 0 && op.instance == before.instance;
    graph.joins[place] = listed || model == StreamModel::Fuse ? 1 : 0;
  }
}

void copy_waits(const Schedule& schedule, RendezvousGraph& graph) {
  graph.wait_begin = schedule.wait_begin;
  if (graph.wait_begin.size() != schedule.ops.size() + 1) {  // none given
    graph.wait_begin.assign(schedule.ops.size() + 1, 0);
    return;
  }
  graph.waits.reserve(schedule.waits.size());
  for (const OpId wait : schedule.waits) graph.waits.push_back(wait.value);
}

// The same with the waits that the order of the one stream p2p implies and other queues do not:
// every op for the transfer that feeds it, every SEND for what it carries.
void complete_waits(const Schedule& schedule, RendezvousGraph& graph) {
  const StageIndex index(schedule);
  graph.wait_begin.assign(1, 0);
  graph.wait_begin.reserve(schedule.ops.size() + 1);
  graph.waits.reserve(schedule.ops.size());
  for (RankClass row{0}; row.value < schedule.num_rows(); ++row.value) {
    const std::int32_t data_class = index.class_of(row);
    const auto begin = static_cast<std::int32_t>(schedule.first_op(row));
    const auto end = static_cast<std::int32_t>(schedule.first_op({row.value + 1}));
    for (std::int32_t id = begin; id < end; ++id) {
      const auto need = [&](std::int32_t other) {
        if (other >= begin && other < end && other != id) graph.waits.push_back(other);
      };
      const Op& op = schedule.ops[static_cast<std::size_t>(id)];
      for (const OpId wait : schedule.waits_of({id})) graph.waits.push_back(wait.value);
      if (op.kind == OpKind::Send) need(index.source(data_class, op));
      if (is_compute(op.kind)) {
        for (const Op& work : work_of(schedule, op)) need(index.arrival(data_class, work));
      }
      graph.wait_begin.push_back(static_cast<std::int32_t>(graph.waits.size()));
    }
  }
}

// Level::Compute: an op needs what the neighbouring stage made, and its own forward or backward
// where the row does not list that before it anyway.
void derive_waits(const Schedule& schedule, RendezvousGraph& graph) {
  const StageIndex index(schedule);
  graph.wait_begin.assign(1, 0);
  graph.wait_begin.reserve(schedule.ops.size() + 1);
  graph.waits.reserve(schedule.ops.size());
  for (RankClass row{0}; row.value < schedule.num_rows(); ++row.value) {
    const std::int32_t data_class = index.class_of(row);
    const auto begin = static_cast<std::int32_t>(schedule.first_op(row));
    const auto end = static_cast<std::int32_t>(schedule.first_op({row.value + 1}));
    for (std::int32_t id = begin; id < end; ++id) {
      const auto need = [&](std::int32_t other) {
        if (other < 0 || other == id || (other >= begin && other < id)) return;
        graph.waits.push_back(other >= begin && other < end ? other : ~other);
      };
      for (const Op& work : work_of(schedule, schedule.ops[static_cast<std::size_t>(id)])) {
        if (!is_compute(work.kind) || !index.holds(work)) continue;
        need(index.producer(data_class, work));
        const StageOps& own = index.at(index.key(data_class, work));
        if (work.kind == OpKind::WeightGradient) need(own.backward_first);
        if (work.kind != OpKind::Forward) need(own.forward_first);
      }
      graph.wait_begin.push_back(static_cast<std::int32_t>(graph.waits.size()));
    }
  }
}

}  // namespace

RendezvousGraph rendezvous_graph(const Schedule& schedule, StreamModel model) {
  RendezvousGraph graph;
  fill_queues_and_rings(schedule, model, graph);
  const bool in_order = model == StreamModel::One || model == StreamModel::Host;
  const bool groups = std::ranges::find(graph.joins, 1) != graph.joins.end();
  if (schedule.level == Level::Compute) {
    derive_waits(schedule, graph);
  } else if (in_order && !groups) {
    copy_waits(schedule, graph);
  } else {
    complete_waits(schedule, graph);
  }
  return graph;
}

}  // namespace rehearse
