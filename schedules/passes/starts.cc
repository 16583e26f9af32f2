// SPDX-License-Identifier: Apache-2.0
// When every op starts, if each takes its duration: behind its producers and its partners. The
// compute stream does what its row's program says. The stream of transfers takes what can begin
// first, of several what has been ready longest: so no transfer stands behind one that is ready
// later, and none waits where both its ends are free. A plan may ask for another order: that in
// which they become ready, whoever is free; or that in which what they carry is taken, which the
// starts of the first order tell. A transfer that another one needs before it can be ready carries
// what is taken earlier, so that the second order cannot hang either. Transfers of one exchange
// start together. Collectives and copies start when they are
// ready: what they hold is held so long, and no longer where a stream has much to do
// (lifetimes.cc).
#include <algorithm>
#include <array>
#include <limits>
#include <queue>
#include <utility>

#include "schedules/ir/stage_index.h"
#include "schedules/passes/draft.h"

namespace rehearse {
namespace {

// An op that cannot be placed yet hangs on one op that it follows, and is looked at again once that
// one is placed. Ops of equal match start together, at the latest of them. Transfers that are ready
// are then served in the order of time.
class Starts {
 public:
  // `turn`: when what every transfer carries is taken, by match; empty: that is no matter.
  Starts(const Draft& draft, const Dependencies& dependencies,
         const std::vector<std::int64_t>& turn = {})
      : draft_(draft),
        dependencies_(dependencies),
        turn_(turn),
        ops_(draft.ops.size()),
        meetings_(draft.carried.size() + static_cast<std::size_t>(draft.num_exchanges)),
        streams_(draft.row_begin.size() - 1) {}

  std::vector<std::int64_t> run() {
    start_.resize(ops_.size());
    for (std::size_t row = 0; row + 1 < draft_.row_begin.size(); ++row) {
      for (const OpId id : draft_.program_of(row)) {
        const Op& op = draft_.ops[id.index()].op;
        ops_[id.index()].stream =
            op.stream == Stream::P2p ? static_cast<std::int32_t>(row) : kNoQueue;
        if (!op.match) continue;
        Meeting& meeting = meeting_of(op);
        ops_[id.index()].other_member = meeting.member;
        meeting.member = id;
        ++meeting.absent;
      }
    }
    if (!turn_.empty()) take_turns();
    for (const OpId id : draft_.program) {
      look(id);
      look_at_woken();
    }
    // What becomes ready behind an op is ready no earlier than it started: time goes forward.
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      event.op ? attempt(event.op, event.time, event.ready) : end_wait(event.stream, event.time);
      look_at_woken();
    }
    if (placed_ != ops_.size()) return {};
    return std::move(start_);
  }

 private:
  static constexpr std::int32_t kNoQueue = -1;  // another stream than that of transfers

  struct State {
    std::int64_t end = -1;  // -1: not placed
    OpId first_waiting;     // list of the ops that hang on this one
    OpId next_waiting;
    OpId other_member;  // list of the ops of its match
    std::int32_t stream = kNoQueue;
  };
  struct Meeting {
    std::int64_t start = 0;
    OpId member;
    std::int32_t absent = 0;  // members that wait for something yet
  };
  // A ready op, by itself or for those that it meets.
  struct Ready {
    std::int64_t ready = 0;
    std::int64_t rule = 0;
    OpId op;
    bool operator<(const Ready& other) const {  // the least is on top
      if (ready != other.ready) return ready > other.ready;
      if (rule != other.rule) return rule > other.rule;
      return op > other.op;
    }
  };
  struct StreamState {
    std::int64_t free = 0;
    bool announced = false;  // its end is among the events
    std::priority_queue<Ready> waiting;
    std::vector<OpId> turns;  // where transfers take turns: all of the row's, in their order,
    std::size_t next = 0;     // and how many have begun
  };
  // An op that may begin now, or the end of what a stream does, where others wait for that: these
  // first, since they have been ready longer.
  struct Event {
    std::int64_t time = 0;
    std::int64_t ready = 0;
    std::int64_t rule = -1;
    OpId op;
    std::int32_t stream = kNoQueue;
    bool operator<(const Event& other) const {
      if (time != other.time) return time > other.time;
      if (rule != other.rule) return rule > other.rule;
      return op != other.op ? op > other.op : stream > other.stream;
    }
  };

  std::int64_t rule(OpId id) const { return rule_of(draft_.ops[id.index()]); }

  Meeting& meeting_of(const Op& op) {
    const std::int32_t exchange =
        draft_.exchange_of.empty() ? -1 : draft_.exchange_of[op.match.index()];
    return meetings_[exchange < 0 ? op.match.index()
                                  : draft_.carried.size() + static_cast<std::size_t>(exchange)];
  }

  void take_turns() {
    for (std::size_t row = 0; row + 1 < draft_.row_begin.size(); ++row) {
      std::vector<OpId>& turns = streams_[row].turns;
      for (const OpId id : draft_.program_of(row)) {
        if (is_transfer(draft_.ops[id.index()].op.kind)) turns.push_back(id);
      }
      std::ranges::sort(turns, {}, [&](OpId id) {
        return std::pair{turn_[draft_.ops[id.index()].op.match.index()], rule(id)};
      });
    }
  }

  // Begins what is next in both its rows, ready, and what that lets begin.
  void serve(std::int32_t first) {
    std::vector<std::int32_t> rows{first};
    while (!rows.empty()) {
      const StreamState& stream = of(rows.back());
      rows.pop_back();
      if (stream.next >= stream.turns.size()) continue;
      const OpId id = stream.turns[stream.next];
      const Meeting& meeting = meeting_of(draft_.ops[id.index()].op);
      bool next = meeting.absent == 0;
      std::int64_t start = meeting.start;
      each_member(meeting.member, [&](OpId member) {
        const StreamState& other = of(ops_[member.index()].stream);
        next = next && other.next < other.turns.size() && other.turns[other.next] == member;
        start = std::max(start, other.free);
      });
      if (!next) continue;
      each_member(meeting.member, [&](OpId member) {
        place(member, start);
        StreamState& other = of(ops_[member.index()].stream);
        other.free = ops_[member.index()].end;
        ++other.next;
        rows.push_back(ops_[member.index()].stream);
      });
    }
  }

  void look_at_woken() {
    while (!woken_.empty()) {
      const OpId next = woken_.back();
      woken_.pop_back();
      look(next);
    }
  }

  void look(OpId id) {
    std::int64_t ready = 0;
    const auto follows = [&](OpId before) {
      State& state = ops_[before.index()];
      if (state.end < 0) {
        ops_[id.index()].next_waiting = state.first_waiting;
        state.first_waiting = id;
        return false;
      }
      ready = std::max(ready, state.end);
      return true;
    };
    // The compute stream comes last, and is what mostly is not there yet.
    const std::span<const OpId> before = dependencies_.of(id);
    for (std::size_t k = before.size(); k-- > 0;) {
      if (!follows(before[k])) return;
    }
    const DraftOp& op = draft_.ops[id.index()];
    if (op.after && !follows(op.after)) return;
    if (!op.op.match) return place(id, ready);
    Meeting& meeting = meeting_of(op.op);
    meeting.start = std::max(meeting.start, ready);
    if (--meeting.absent > 0) return;
    const OpId first = meeting.member;
    if (traits(op.op.kind).op_class != OpClass::Transfer) {
      return each_member(first, [&](OpId member) { place(member, meeting.start); });
    }
    events_.push({.time = meeting.start, .ready = meeting.start, .rule = rule(first), .op = first});
  }

  template <class Visit>
  void each_member(OpId id, Visit visit) {
    visit(id);
    for (OpId m = ops_[id.index()].other_member; m; m = ops_[m.index()].other_member) visit(m);
  }

  // Begins the op and those that it meets, or lets it wait for the stream that is free last.
  void attempt(OpId id, std::int64_t now, std::int64_t ready) {
    std::int32_t last = kNoQueue;
    std::int64_t free = now;
    each_member(id, [&](OpId member) {
      const std::int32_t stream = ops_[member.index()].stream;
      if (stream == kNoQueue || of(stream).free <= free) return;
      free = of(stream).free;
      last = stream;
    });
    const bool in_order = draft_.plan.transfers == TransferForm::ProducerOrder;
    if (!turn_.empty()) return serve(last == kNoQueue ? ops_[id.index()].stream : last);
    if (last != kNoQueue && !in_order) {
      of(last).waiting.push({ready, rule(id), id});
      return announce(last);
    }
    each_member(id, [&](OpId member) {
      place(member, free);
      const std::int32_t stream = ops_[member.index()].stream;
      if (stream == kNoQueue) return;
      of(stream).free = ops_[member.index()].end;
      if (!of(stream).waiting.empty()) announce(stream);
    });
  }

  void announce(std::int32_t stream) {
    if (of(stream).announced) return;
    of(stream).announced = true;
    events_.push({.time = of(stream).free, .stream = stream});
  }

  // The stream has done what it did, and takes what waits for it.
  void end_wait(std::int32_t number, std::int64_t now) {
    StreamState& stream = of(number);
    stream.announced = false;
    while (stream.free <= now && !stream.waiting.empty()) {
      const Ready next = stream.waiting.top();
      stream.waiting.pop();
      attempt(next.op, now, next.ready);
    }
    if (!stream.waiting.empty()) announce(number);
  }

  void place(OpId id, std::int64_t start) {
    start_[id.index()] = start;
    State& state = ops_[id.index()];
    state.end = start + draft_.ops[id.index()].duration;
    ++placed_;
    for (OpId w = state.first_waiting; w; w = ops_[w.index()].next_waiting) {
      woken_.push_back(w);
    }
  }

  StreamState& of(std::int32_t stream) { return streams_[static_cast<std::size_t>(stream)]; }

  const Draft& draft_;
  const Dependencies& dependencies_;
  const std::vector<std::int64_t> turn_;
  std::vector<State> ops_;
  std::vector<Meeting> meetings_;
  std::vector<StreamState> streams_;  // of transfers, by row
  std::vector<std::int64_t> start_;
  std::vector<OpId> woken_;
  std::priority_queue<Event> events_;
  std::size_t placed_ = 0;
};

// This lets communication start before the compute that it can hide behind.
int class_of(const Op& op) {
  if (op.stream == Stream::P2p) return 2;
  if (op.stream == Stream::H2d) return 0;
  if (op.kind == OpKind::Unshard) return 1;
  if (op.stream != Stream::Compute) return 3;
  return traits(op.kind).op_class == OpClass::Collective ? 4 : 5;
}

}  // namespace

std::int64_t rule_of(const DraftOp& op) {
  return (std::int64_t{class_of(op.op)} << 32) + op.tie;
}

namespace {

// By match, when the op starts that takes what a transfer carries.
std::vector<std::int64_t> taken_at(const Draft& draft, const Dependencies& dependencies,
                                   const std::vector<std::int64_t>& start) {
  std::vector<std::int64_t> taken(draft.carried.size(), std::numeric_limits<std::int64_t>::max());
  for (std::size_t i = 0; i < draft.ops.size(); ++i) {
    for (const OpId before : dependencies.of({static_cast<std::int32_t>(i)})) {
      const Op& op = draft.ops[before.index()].op;
      if (op.kind != OpKind::Recv) continue;
      std::int64_t& at = taken[op.match.index()];
      at = std::min(at, start[i]);
    }
  }
  return taken;
}

}  // namespace

std::vector<std::int64_t> starts_of(const Draft& draft, const Dependencies& dependencies) {
  std::vector<std::int64_t> start = Starts(draft, dependencies).run();
  if (draft.plan.transfers != TransferForm::ConsumerOrder || start.empty()) return start;
  return Starts(draft, dependencies, taken_at(draft, dependencies, start)).run();
}

}  // namespace rehearse
