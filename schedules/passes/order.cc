// SPDX-License-Identifier: Apache-2.0
// One global order. Every op has a key: the time at which it could start if nothing but its
// producers, its rank's compute stream and its partners delayed it. Each row is that one order
// restricted to the row, so every edge goes forward in it: no deadlock by construction.
#include <algorithm>
#include <array>
#include <utility>

#include "schedules/passes/draft.h"

namespace rehearse {
namespace {

// Starts of all ops. An op that cannot be placed yet hangs on one op that it follows and is looked
// at again once that one is placed. Ops of equal match start together, at the latest of them.
class Starts {
 public:
  Starts(const Draft& draft, const Dependencies& dependencies)
      : draft_(draft),
        dependencies_(dependencies),
        ops_(draft.ops.size()),
        meetings_(draft.carried.size()) {}

  // Per op; empty: a cycle, the compute order itself cannot run.
  std::vector<std::int64_t> run() {
    start_.resize(ops_.size());
    for (const OpId id : draft_.program) {
      const MatchId match = draft_.ops[id.index()].op.match;
      if (!match) continue;
      Meeting& meeting = meetings_[match.index()];
      ops_[id.index()].other_member = meeting.member;
      meeting.member = id;
      ++meeting.absent;
    }
    for (const OpId id : draft_.program) {
      look(id);
      while (!woken_.empty()) {
        const OpId next = woken_.back();
        woken_.pop_back();
        look(next);
      }
    }
    if (placed_ != ops_.size()) return {};
    return std::move(start_);
  }

 private:
  struct State {
    std::int64_t end = -1;  // -1: not placed
    OpId first_waiting;     // list of the ops that hang on this one
    OpId next_waiting;
    OpId other_member;  // list of the ops of its match
  };
  struct Meeting {
    std::int64_t start = 0;
    OpId member;
    std::int32_t absent = 0;  // members that wait for something yet
  };

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
    for (OpId m = meeting.member; m; m = ops_[m.index()].other_member) place(m, meeting.start);
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

  const Draft& draft_;
  const Dependencies& dependencies_;
  std::vector<State> ops_;
  std::vector<Meeting> meetings_;
  std::vector<std::int64_t> start_;
  std::vector<OpId> woken_;
  std::size_t placed_ = 0;
};

// Among ops of one key. Producers end before consumers start, so any rule is a linear extension;
// this one lets communication start before the compute that it can hide behind.
int class_of(const Op& op) {
  if (op.stream == Stream::P2p) return 2;
  if (op.stream == Stream::H2d) return 0;
  if (op.kind == OpKind::Unshard) return 1;
  if (op.stream != Stream::Compute) return 3;
  return traits(op.kind).op_class == OpClass::Collective ? 4 : 5;
}

// An op's place among those of its row.
struct Place {
  std::int64_t start;
  std::int64_t rule;   // class, then tie
  std::int32_t place;  // in the row's program
  OpId op;

  bool operator<(const Place& other) const {
    if (start != other.start) return start < other.start;
    if (rule != other.rule) return rule < other.rule;
    return place < other.place;
  }
};

// The ops of a row by the sequences in which they mostly start as the program lists them: what
// computes always, transfers of a kind and payload nearly always.
constexpr std::size_t kSequences = 6;
constexpr std::size_t kCompute = 0, kOther = 5;
std::size_t sequence_of(const Op& op) {
  if (op.stream == Stream::Compute) return kCompute;
  if (op.stream != Stream::P2p) return kOther;
  return 1 + (op.kind == OpKind::Recv ? 2u : 0u) + (op.payload == Payload::Gradient ? 1u : 0u);
}

// The ops of all rows, row after row.
std::vector<OpId> by_key(const Draft& draft, const std::vector<std::int64_t>& start) {
  std::vector<OpId> sorted(draft.ops.size());
  auto to = sorted.begin();
  std::array<std::vector<Place>, kSequences> sequences;
  for (std::size_t row = 0; row + 1 < draft.row_begin.size(); ++row) {
    for (auto& sequence : sequences) sequence.clear();
    std::int32_t place = 0;
    for (const OpId id : draft.program_of(row)) {
      const DraftOp& op = draft.ops[id.index()];
      sequences[sequence_of(op.op)].push_back(
          {start[id.index()], (std::int64_t{class_of(op.op)} << 32) + op.tie, place++, id});
    }
    // What is left of them, the one with the first op first.
    std::array<std::pair<const Place*, const Place*>, kSequences> rest;
    std::size_t open = 0;
    const auto sink = [&](std::size_t k) {
      for (; k + 1 < open && *rest[k + 1].first < *rest[k].first; ++k) {
        std::swap(rest[k], rest[k + 1]);
      }
    };
    for (std::size_t k = kSequences; k-- > 0;) {
      auto& sequence = sequences[k];
      if (sequence.empty()) continue;
      if (!std::is_sorted(sequence.begin(), sequence.end())) {
        std::sort(sequence.begin(), sequence.end());
      }
      std::move_backward(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(open),
                         rest.begin() + static_cast<std::ptrdiff_t>(open) + 1);
      rest[0] = {sequence.data(), sequence.data() + sequence.size()};
      ++open;
      sink(0);
    }
    while (open > 0) {
      auto& [first, end] = rest.front();
      *to++ = first->op;
      if (++first == end) {
        std::move(rest.begin() + 1, rest.begin() + static_cast<std::ptrdiff_t>(open), rest.begin());
        --open;
      }
      sink(0);
    }
  }
  return sorted;
}

}  // namespace

Ordered order(Draft&& draft) {
  Dependencies dependencies = dependencies_of(draft);
  const std::vector<std::int64_t> start = Starts(draft, dependencies).run();
  if (start.empty() && !draft.ops.empty()) return {};
  Ordered ordered{.schedule = std::move(draft.schedule),
                  .dependencies = std::move(dependencies),
                  .made = by_key(draft, start)};
  Schedule& s = ordered.schedule;
  const std::size_t num_ops = draft.ops.size();
  std::vector<MatchId> match_of(draft.carried.size());
  std::int32_t matches = 0;
  s.row_begin = draft.row_begin;
  s.ops.reserve(num_ops);
  s.operands.reserve(draft.operands.size());
  s.operand_begin.resize(num_ops + 1);
  ordered.duration.resize(num_ops);
  for (std::size_t to = 0; to < num_ops; ++to) {
    const OpId from = ordered.made[to];
    const DraftOp& made = draft.ops[from.index()];
    Op& op = s.ops.emplace_back(made.op);
    op.key = start[from.index()];
    if (op.match) {
      MatchId& id = match_of[op.match.index()];
      if (!id) {
        id = {matches++};
        s.carried.push_back(draft.carried[op.match.index()]);
      }
      op.match = id;
    }
    ordered.duration[to] = made.duration;
    for (const Operand& operand : draft.operands_of(made)) s.operands.push_back(operand);
    s.operand_begin[to + 1] = static_cast<std::int32_t>(s.operands.size());
  }
  return ordered;
}

}  // namespace rehearse
