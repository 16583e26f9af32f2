// SPDX-License-Identifier: Apache-2.0
// When every op starts, if each takes its duration: behind its producers and its partners. The
// compute stream does what its row's program says. The stream of transfers takes what can begin
// first, of several what has been ready longest: so no transfer stands behind one that is ready
// later, and none waits where both its ends are free. Collectives and copies start when they are
// ready: what they hold is held so long, and no longer where a stream has much to do
// (lifetimes.cc).
#include <algorithm>
#include <array>
#include <queue>

#include "schedules/passes/draft.h"

namespace rehearse {
namespace {

// An op that cannot be placed yet hangs on one op that it follows, and is looked at again once that
// one is placed. Ops of equal match start together, at the latest of them. Transfers that are ready
// are then served in the order of time.
class Starts {
 public:
  Starts(const Draft& draft, const Dependencies& dependencies)
      : draft_(draft),
        dependencies_(dependencies),
        ops_(draft.ops.size()),
        meetings_(draft.carried.size()),
        streams_(draft.row_begin.size() - 1) {}

  std::vector<std::int64_t> run() {
    start_.resize(ops_.size());
    for (std::size_t row = 0; row + 1 < draft_.row_begin.size(); ++row) {
      for (const OpId id : draft_.program_of(row)) {
        const Op& op = draft_.ops[id.index()].op;
        ops_[id.index()].stream =
            op.stream == Stream::P2p ? static_cast<std::int32_t>(row) : kNoQueue;
        if (!op.match) continue;
        Meeting& meeting = meetings_[op.match.index()];
        ops_[id.index()].other_member = meeting.member;
        meeting.member = id;
        ++meeting.absent;
      }
    }
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
    Meeting& meeting = meetings_[op.op.match.index()];
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
    if (last != kNoQueue) {
      of(last).waiting.push({ready, rule(id), id});
      return announce(last);
    }
    each_member(id, [&](OpId member) {
      place(member, now);
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

std::vector<std::int64_t> starts_of(const Draft& draft, const Dependencies& dependencies) {
  return Starts(draft, dependencies).run();
}

}  // namespace rehearse
