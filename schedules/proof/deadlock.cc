// SPDX-License-Identifier: Apache-2.0
#include "schedules/proof/deadlock.h"

#include <algorithm>
#include <utility>

#include "schedules/ir/stage_index.h"
#include "schedules/ir/where.h"
#include "schedules/proof/deadlock_graph.h"

namespace rehearse {
namespace {

// Topological order of the quotient graph with longest path. A queue is tried when the one thing
// that its head waits for happens, so every edge is looked at a bounded number of times.
// Time: int64, or int8 where only the verdict is asked for: no durations, an eighth of the memory.
template <class Time>
class Walk {
  static constexpr bool kTimed = sizeof(Time) > 1;

 public:
  Walk(const Schedule& schedule, RendezvousGraph graph, const OpDurations& durations)
      : schedule_(schedule),
        graph_(std::move(graph)),
        durations_(durations),
        when_(schedule.ops.size(), Time{kNotBegun}),
        waiting_queue_(schedule.ops.size(), kNobody),
        queues_(graph_.queue_begin.size() - 1),
        place_(graph_.queue_begin.begin(), graph_.queue_begin.end() - 1),
        clock_(queues_, 0),
        blocked_on_(queues_, kNobody),
        next_waiting_(queues_, kNobody) {}

  DeadlockProof run() {
    ready_.resize(queues_);
    for (std::size_t q = 0; q < queues_; ++q) {
      ready_[q] = static_cast<std::int32_t>(queues_ - 1 - q);
    }
    while (!ready_.empty()) {
      const auto queue = static_cast<std::size_t>(ready_.back());
      ready_.pop_back();
      blocked_on_[queue] = kNobody;
      while (place_[queue] < end_of(queue) && advance(queue)) {
      }
    }
    DeadlockProof proof;
    proof.complete = true;
    for (std::size_t q = 0; q < queues_; ++q) proof.complete &= place_[q] == end_of(q);
    if (!proof.complete) find_cycle(proof);
    if constexpr (kTimed) {
      proof.finish.resize(when_.size());
      for (std::size_t i = 0; i < when_.size(); ++i) {
        proof.finish[i] = {std::max<std::int64_t>(when_[i], kNotBegun)};
      }
      for (const Time clock : clock_) {
        proof.makespan.value = std::max<std::int64_t>(proof.makespan.value, clock);
      }
    }
    return proof;
  }

 private:
  // State of an op in when_: finished at t: t; begun at t: kBegun - t.
  static constexpr Time kNotBegun = -1, kBegun = -2;

  std::size_t at(std::int32_t id) const { return static_cast<std::size_t>(id); }
  std::int32_t end_of(std::size_t queue) const { return graph_.queue_begin[queue + 1]; }
  std::int32_t member(std::int32_t place) const { return graph_.order[at(place)]; }
  std::int32_t group_end(std::size_t queue, std::int32_t place) const {
    do ++place;
    while (place < end_of(queue) && graph_.joins[at(place)] != 0);
    return place;
  }

  // Takes the head of the queue as far as it goes; false where it has to wait.
  bool advance(std::size_t queue) {
    const std::int32_t begin = place_[queue], end = group_end(queue, begin);
    if (when_[at(member(begin))] == kNotBegun) {
      Time start = clock_[queue];
      for (std::int32_t k = begin; k < end; ++k) {
        const std::int32_t late = latest_input(member(k), start);
        if (late != kNobody) return block(queue, late);
      }
      for (std::int32_t k = begin; k < end; ++k)
        when_[at(member(k))] = static_cast<Time>(kBegun - start);
      for (std::int32_t k = begin; k < end; ++k) meet(member(k));
    }
    Time finish = clock_[queue];
    for (std::int32_t k = begin; k < end; ++k) {
      if (when_[at(member(k))] < 0) return block(queue, member(k));
      finish = std::max(finish, when_[at(member(k))]);
    }
    clock_[queue] = finish;
    place_[queue] = end;
    return true;
  }

  // Raises `start` to when all inputs are there; an unfinished one, or kNobody.
  std::int32_t latest_input(std::int32_t id, Time& start) const {
    for (std::int32_t w = graph_.wait_begin[at(id)]; w < graph_.wait_begin[at(id) + 1]; ++w) {
      const std::int32_t wait = graph_.waits[at(w)];
      const std::int32_t other = wait < 0 ? ~wait : wait;
      if (when_[at(other)] < 0) return other;
      if constexpr (kTimed) {
        start = std::max(start, when_[at(other)] + (wait < 0 ? durations_.transfer.value : 0));
      }
    }
    return kNobody;
  }

  // Completes an op that has begun, with those it meets, once they all have begun.
  void meet(std::int32_t id) {
    if (graph_.ring[at(id)] == kNobody || when_[at(id)] >= 0) return;
    Time start = 0;
    std::int32_t lead = id;  // whose duration counts: the SEND, or the first member
    std::int32_t other = id;
    do {
      if (when_[at(other)] == kNotBegun) return;
      if constexpr (kTimed) {
        start = std::max(start, kBegun - when_[at(other)]);
        if (schedule_.ops[at(other)].kind == OpKind::Send) lead = other;
      }
      other = graph_.ring[at(other)];
    } while (other != id);
    Time finish = 0;
    if constexpr (kTimed) finish = start + duration(lead);
    do {
      when_[at(other)] = finish;
      wake(other);
      other = graph_.ring[at(other)];
    } while (other != id);
  }

  bool block(std::size_t queue, std::int32_t id) {
    blocked_on_[queue] = id;
    next_waiting_[queue] = waiting_queue_[at(id)];
    waiting_queue_[at(id)] = static_cast<std::int32_t>(queue);
    return false;
  }
  void wake(std::int32_t id) {
    for (std::int32_t queue = waiting_queue_[at(id)]; queue != kNobody;) {
      ready_.push_back(queue);
      queue = next_waiting_[at(queue)];
    }
    waiting_queue_[at(id)] = kNobody;
  }

  std::int64_t duration(std::int32_t id) const {
    if (!durations_.per_op.empty()) return durations_.per_op[at(id)].value;
    return duration(schedule_.ops[at(id)]);
  }
  std::int64_t duration(const Op& op) const {
    switch (op.kind) {
      case OpKind::Forward:
      case OpKind::Recompute:
        return durations_.forward.value;
      case OpKind::Backward:
        return durations_.input_gradient.value + durations_.weight_gradient.value;
      case OpKind::InputGradient:
        return durations_.input_gradient.value;
      case OpKind::WeightGradient:
        return durations_.weight_gradient.value;
      case OpKind::Overlap: {
        if (durations_.pair.value >= 0) return durations_.pair.value;
        std::int64_t sum = 0;
        for (const Op& child : work_of(schedule_, op)) {
          if (child.kind != OpKind::Overlap) sum += duration(child);
        }
        return sum;
      }
      case OpKind::Send:
      case OpKind::Recv:
        return durations_.transfer.value;
      default:
        return durations_.other.value;
    }
  }

  // From any op that never finishes, follow what it waits for: the way must come back to itself,
  // or end at a transfer without partner.
  void find_cycle(DeadlockProof& proof) const {
    std::vector<std::int32_t> queue_of(when_.size(), 0);
    for (std::size_t q = 0; q < queues_; ++q) {
      for (std::int32_t k = graph_.queue_begin[q]; k < end_of(q); ++k) {
        queue_of[at(member(k))] = static_cast<std::int32_t>(q);
      }
    }
    std::vector<std::uint8_t> visited(when_.size(), 0);
    for (std::size_t q = 0; q < queues_ && proof.cycle.empty(); ++q) {
      if (place_[q] == end_of(q)) continue;
      std::vector<CycleStep> way;
      std::int32_t id = member(place_[q]);
      while (visited[at(id)] == 0) {
        visited[at(id)] = 1;
        const CycleStep step = next_step(id, at(queue_of[at(id)]));
        if (!step.other) {
          proof.lonely.push_back({id});
          way.clear();
          break;
        }
        way.push_back(step);
        id = step.other.value;
      }
      const auto start = std::ranges::find(way, OpId{id}, &CycleStep::op);
      proof.cycle.assign(start, way.end());
      begin_with_a_head(proof.cycle);
    }
  }

  // Told from the first op that stands at the head of its queue.
  static void begin_with_a_head(std::vector<CycleStep>& cycle) {
    auto first = cycle.end();
    for (auto step = cycle.begin(); step != cycle.end(); ++step) {
      if (step->reason == WaitReason::Order) continue;
      if (first == cycle.end() || step->op < first->op) first = step;
    }
    if (first != cycle.end()) std::rotate(cycle.begin(), first, cycle.end());
  }

  CycleStep next_step(std::int32_t id, std::size_t queue) const {
    const std::int32_t begin = place_[queue], end = group_end(queue, begin);
    const auto head = graph_.order.begin();
    const bool leads = std::find(head + begin, head + end, id) != head + end;
    const std::int32_t blocked = blocked_on_[queue];
    if (!leads) {  // an unfinished member of the group in front of it
      const bool own = std::find(head + begin, head + end, blocked) != head + end;
      return {{id}, {own ? blocked : member(begin)}, WaitReason::Order};
    }
    if (when_[at(id)] == kNotBegun) {
      Time start = 0;
      if (latest_input(id, start) == blocked) return {{id}, {blocked}, WaitReason::Data};
      for (std::int32_t k = begin; k < end; ++k) {
        if (latest_input(member(k), start) == blocked) {
          return {{id}, {member(k)}, WaitReason::Group};
        }
      }
    }
    std::int32_t other = graph_.ring[at(id)];
    while (other != kNobody && other != id && when_[at(other)] != kNotBegun) {
      other = graph_.ring[at(other)];
    }
    return {{id}, {other == id ? kNobody : other}, WaitReason::Partner};
  }

  const Schedule& schedule_;
  const RendezvousGraph graph_;
  const OpDurations durations_;
  std::vector<Time> when_;
  std::vector<std::int32_t>
      waiting_queue_;  // per op: a queue that waits for it; more: next_waiting_
  std::size_t queues_;
  std::vector<std::int32_t> place_;
  std::vector<Time> clock_;
  std::vector<std::int32_t> blocked_on_, next_waiting_, ready_;
};

}  // namespace

std::optional<StreamModel> find_stream_model(std::string_view name) {
  for (const StreamModelInfo& row : kStreamModels) {
    if (row.name == name) return row.model;
  }
  return std::nullopt;
}

DeadlockProof prove_no_deadlock(const Schedule& schedule, StreamModel model,
                                const OpDurations& durations) {
  return Walk<std::int64_t>(schedule, rendezvous_graph(schedule, model), durations).run();
}

DeadlockProof prove_no_deadlock_untimed(const Schedule& schedule, StreamModel model) {
  return Walk<std::int8_t>(schedule, rendezvous_graph(schedule, model), {}).run();
}

std::vector<std::string> explain(const Schedule& schedule, const DeadlockProof& proof) {
  std::vector<std::string> lines;
  const auto text = [&](OpId id) { return to_text(schedule, id); };
  for (const CycleStep& step : proof.cycle) {
    const RankClass row = schedule.row_of(step.op), other = schedule.row_of(step.other);
    std::string line = row_name(schedule, row) + ": " + text(step.op);
    const std::string there = row == other ? "" : " on " + row_name(schedule, other);
    switch (step.reason) {
      case WaitReason::Order:
        line += " stands behind " + text(step.other);
        break;
      case WaitReason::Data:
        line += " needs " + text(step.other) + there;
        break;
      case WaitReason::Partner:
        line += " meets " + text(step.other) + there + ", which is not reached";
        break;
      case WaitReason::Group:
        line += " is grouped with " + text(step.other);
        break;
    }
    lines.push_back(std::move(line));
  }
  for (const OpId lonely : proof.lonely) {
    lines.push_back(where(schedule, lonely) + " waits for ever: it has no partner");
  }
  return lines;
}

std::string cycle_in_one_line(const Schedule& schedule, const DeadlockProof& proof) {
  std::string line;
  for (const CycleStep& step : proof.cycle) {
    line += where(schedule, step.op) + " -> ";
  }
  if (!proof.cycle.empty()) line += where(schedule, proof.cycle.front().op);
  return line;
}

}  // namespace rehearse
