// SPDX-License-Identifier: Apache-2.0
// What really happens on in-order queues with rendezvous, played move by move: the oracle for the
// library's proof, and deliberately not built like it (no graph, no matches, no waits, no times:
// every queue's head is tried again and again until nothing moves).
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "schedules/ir/schedule.h"
#include "schedules/ir/text.h"
#include "schedules/proof/deadlock.h"

namespace rehearse::fixture {

class Rendezvous {
 public:
  Rendezvous(const Schedule& schedule, StreamModel model)
      : schedule_(schedule),
        done_(kThings * static_cast<std::size_t>(schedule.placement.stages() *
                                                 schedule.microbatches * schedule.slices)),
        home_(done_.size()) {
    for (RankClass row{0}; row.value < schedule.num_rows(); ++row.value) {
      ranks_.emplace_back();
      bool after_transfer = false;
      for (std::size_t i = schedule.first_op(row); i < schedule.first_op({row.value + 1}); ++i) {
        const Op& op = schedule.ops[i];
        const bool transfer = is_transfer(op);
        const int number = queue_named(ranks_.back(), queue_name(op, model));
        Queue& queue = ranks_.back()[static_cast<std::size_t>(number)];
        const bool listed = transfer && after_transfer && op.instance >= 0 &&
                            schedule.ops[i - 1].instance == op.instance;
        if (transfer && after_transfer && !queue.groups.empty() &&
            (model == StreamModel::Fuse || listed)) {
          queue.groups.back().push_back(i);
        } else {
          queue.groups.push_back({i});
        }
        if (transfer) {
          home_[thing(op.kind, op.payload, op.stage.value, op)] = {row.value, number,
                                                                   queue.groups.size() - 1};
        }
        after_transfer = transfer;
      }
    }
  }

  // True when everything ran.
  bool run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (auto& rank : ranks_) {
        for (Queue& queue : rank) {
          while (queue.at < queue.groups.size() && step(queue)) moved = true;
        }
      }
    }
    return std::ranges::all_of(ranks_, [](const auto& rank) {
      return std::ranges::all_of(rank, [](const Queue& q) { return q.at == q.groups.size(); });
    });
  }

  // "r0:0B0,0SEND_F3 | r1:...": the heads at which each rank stands, as the fixtures write it.
  std::string heads() const {
    std::string text;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      std::string mine;
      for (const Queue& queue : ranks_[rank]) {
        if (queue.at == queue.groups.size()) continue;
        for (const std::size_t i : queue.groups[queue.at]) {
          const Op& op = schedule_.ops[i];
          if (is_transfer(op) && done(op.kind, op.payload, op.stage.value, op)) continue;
          mine += (mine.empty() ? "" : ",") + to_text(schedule_, OpId{static_cast<int>(i)});
        }
      }
      if (mine.empty()) continue;
      text += (text.empty() ? "r" : " | r") + std::to_string(rank) + ":" + mine;
    }
    return text;
  }

 private:
  struct Queue {
    std::string name;
    std::vector<std::vector<std::size_t>> groups;
    std::size_t at = 0;
  };
  struct Home {
    int rank = -1, queue = -1;
    std::size_t group = 0;
  };
  static constexpr std::size_t kThings = 7;

  static bool is_transfer(const Op& op) {
    return op.kind == OpKind::Send || op.kind == OpKind::Recv;
  }
  // F, B or I (the same to everybody else), W, and the four ends of transfers.
  std::size_t thing(OpKind kind, Payload payload, int stage, const Op& like) const {
    std::size_t which = 0;
    if (kind == OpKind::Backward || kind == OpKind::InputGradient) which = 1;
    if (kind == OpKind::WeightGradient) which = 2;
    if (kind == OpKind::Send || kind == OpKind::Recv) {
      which = 3 + (kind == OpKind::Send ? 0U : 1U) + (payload == Payload::Gradient ? 2U : 0U);
    }
    const int key = (stage * schedule_.microbatches + like.microbatch.value) * schedule_.slices +
                    std::max<int>(like.slice, 0);
    return static_cast<std::size_t>(key) * kThings + which;
  }
  static std::string queue_name(const Op& op, StreamModel model) {
    if (!is_transfer(op)) return "C";
    if (op.instance >= 0 && model != StreamModel::Host) return "N";  // a group that the file lists
    const std::string peer = std::to_string(op.peer.value);
    switch (model) {
      case StreamModel::One:
      case StreamModel::Fuse:
        return "N";
      case StreamModel::Host:
        return "C";
      case StreamModel::Peer:
        return "N" + peer;
      case StreamModel::Payload:
        return op.payload == Payload::Gradient ? "Nb" : "Nf";
      case StreamModel::PeerDirection:
        return "N" + peer + (op.kind == OpKind::Send ? "S" : "R") +
               (op.payload == Payload::Gradient ? "b" : "f");
    }
    return "";
  }
  static int queue_named(std::vector<Queue>& rank, const std::string& wanted) {
    const auto known = std::ranges::find(rank, wanted, &Queue::name);
    const int number = static_cast<int>(known - rank.begin());
    if (known == rank.end()) rank.push_back({wanted, {}, 0});
    return number;
  }

  bool done(OpKind kind, Payload payload, int stage, const Op& like) const {
    return done_[thing(kind, payload, stage, like)] != 0;
  }
  void do_it(OpKind kind, Payload payload, int stage, const Op& like) {
    done_[thing(kind, payload, stage, like)] = 1;
  }
  bool remote(int stage, int other, const Op& like) const {
    return schedule_.placement.position({stage}, like.microbatch) !=
           schedule_.placement.position({other}, like.microbatch);
  }
  bool inputs_there(const Op& op) const {
    const int s = op.stage.value, last = schedule_.placement.stages() - 1;
    switch (op.kind) {
      case OpKind::Forward:
        if (s == 0) return true;
        return remote(s, s - 1, op) ? done(OpKind::Recv, Payload::Activation, s, op)
                                    : done(OpKind::Forward, Payload::None, s - 1, op);
      case OpKind::Backward:
      case OpKind::InputGradient:
        if (!done(OpKind::Forward, Payload::None, s, op)) return false;
        if (s == last) return true;
        return remote(s, s + 1, op) ? done(OpKind::Recv, Payload::Gradient, s, op)
                                    : done(OpKind::Backward, Payload::None, s + 1, op);
      case OpKind::WeightGradient:
        return done(OpKind::Backward, Payload::None, s, op);
      default:
        return true;
    }
  }
  // All of a group's members become ready together, once what its sends carry is there.
  bool ready(const std::vector<std::size_t>& group) const {
    return std::ranges::all_of(group, [&](std::size_t i) {
      const Op& op = schedule_.ops[i];
      const OpKind maker = op.payload == Payload::Gradient ? OpKind::Backward : OpKind::Forward;
      return op.kind != OpKind::Send || done(maker, Payload::None, op.stage.value, op);
    });
  }
  static OpKind other_end(const Op& op) {
    return op.kind == OpKind::Send ? OpKind::Recv : OpKind::Send;
  }
  static int other_stage(const Op& op) {
    const bool up = (op.payload == Payload::Gradient) == (op.kind == OpKind::Recv);
    return op.stage.value + (up ? 1 : -1);
  }
  bool partner_is_open(const Op& op) const {
    if (other_stage(op) < 0 || other_stage(op) >= schedule_.placement.stages()) return false;
    const Home& home = home_[thing(other_end(op), op.payload, other_stage(op), op)];
    if (home.rank < 0) return false;
    const Queue& queue =
        ranks_[static_cast<std::size_t>(home.rank)][static_cast<std::size_t>(home.queue)];
    return queue.at == home.group && ready(queue.groups[queue.at]);
  }

  // Tries the head; true where anything happened.
  bool step(Queue& queue) {
    const auto& group = queue.groups[queue.at];
    const Op& head = schedule_.ops[group.front()];
    if (!is_transfer(head)) {
      const bool pair = head.kind == OpKind::Overlap;
      const auto child = static_cast<std::size_t>(pair ? head.child : 0);
      const Op& first = pair ? schedule_.children[child] : head;
      const Op& second = pair ? schedule_.children[child + 1] : head;
      if (!inputs_there(first) || !inputs_there(second)) return false;
      do_it(first.kind, first.payload, first.stage.value, first);
      do_it(second.kind, second.payload, second.stage.value, second);
      ++queue.at;
      return true;
    }
    bool moved = false, all = true;
    const bool is_ready = ready(group);
    for (const std::size_t i : group) {
      const Op& op = schedule_.ops[i];
      if (done(op.kind, op.payload, op.stage.value, op)) continue;
      if (is_ready && partner_is_open(op)) {
        do_it(op.kind, op.payload, op.stage.value, op);
        do_it(other_end(op), op.payload, other_stage(op), op);
        moved = true;
      } else {
        all = false;
      }
    }
    if (all) ++queue.at;
    return moved || all;
  }

  const Schedule& schedule_;
  std::vector<std::vector<Queue>> ranks_;
  std::vector<char> done_;
  std::vector<Home> home_;
};

}  // namespace rehearse::fixture
