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

std::size_t at(std::int32_t i) {
  return static_cast<std::size_t>(i);
}

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
    const auto num_ops = static_cast<std::int32_t>(ops_.size());
    start_.resize(ops_.size());
    for (std::int32_t i = 0; i < num_ops; ++i) {
      const MatchId match = draft_.ops[at(i)].op.match;
      if (!match) continue;
      Meeting& meeting = meetings_[match.index()];
      ops_[at(i)].other_member = meeting.member;
      meeting.member = i;
      ++meeting.absent;
    }
    for (std::int32_t i = 0; i < num_ops; ++i) {
      look(i);
      while (!woken_.empty()) {
        const std::int32_t next = woken_.back();
        woken_.pop_back();
        look(next);
      }
    }
    if (placed_ != num_ops) return {};
    return std::move(start_);
  }

 private:
  struct State {
    std::int64_t end = -1;            // -1: not placed
    std::int32_t first_waiting = -1;  // list of the ops that hang on this one
    std::int32_t next_waiting = -1;
    std::int32_t other_member = -1;  // list of the ops of its match
  };
  struct Meeting {
    std::int64_t start = 0;
    std::int32_t member = -1;
    std::int32_t absent = 0;  // members that wait for something yet
  };

  void look(std::int32_t i) {
    std::int64_t ready = 0;
    const auto follows = [&](std::int32_t before) {
      State& state = ops_[at(before)];
      if (state.end < 0) {
        ops_[at(i)].next_waiting = state.first_waiting;
        state.first_waiting = i;
        return false;
      }
      ready = std::max(ready, state.end);
      return true;
    };
    // The compute stream comes last, and is what mostly is not there yet.
    const std::int32_t begin = dependencies_.begin[at(i)];
    for (std::int32_t k = dependencies_.begin[at(i) + 1]; k-- > begin;) {
      if (!follows(dependencies_.from[at(k)])) return;
    }
    const DraftOp& op = draft_.ops[at(i)];
    if (op.after && !follows(op.after.value)) return;
    if (!op.op.match) return place(i, ready);
    Meeting& meeting = meetings_[op.op.match.index()];
    meeting.start = std::max(meeting.start, ready);
    if (--meeting.absent > 0) return;
    for (std::int32_t m = meeting.member; m >= 0; m = ops_[at(m)].other_member) {
      place(m, meeting.start);
    }
  }

  void place(std::int32_t i, std::int64_t start) {
    start_[at(i)] = start;
    State& state = ops_[at(i)];
    state.end = start + draft_.ops[at(i)].duration;
    ++placed_;
    for (std::int32_t w = state.first_waiting; w >= 0; w = ops_[at(w)].next_waiting) {
      woken_.push_back(w);
    }
  }

  const Draft& draft_;
  const Dependencies& dependencies_;
  std::vector<State> ops_;
  std::vector<Meeting> meetings_;
  std::vector<std::int64_t> start_;
  std::vector<std::int32_t> woken_;
  std::int32_t placed_ = 0;
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
  std::int64_t rule;  // class, then tie
  std::int32_t op;    // as woven

  bool operator<(const Place& other) const {
    if (start != other.start) return start < other.start;
    if (rule != other.rule) return rule < other.rule;
    return op < other.op;
  }
};

// The ops of a row by the sequences in which they mostly start as they are woven: what computes
// always, transfers of a kind and payload nearly always.
constexpr std::size_t kSequences = 6;
constexpr std::size_t kCompute = 0, kOther = 5;
std::size_t sequence_of(const Op& op) {
  if (op.stream == Stream::Compute) return kCompute;
  if (op.stream != Stream::P2p) return kOther;
  return 1 + (op.kind == OpKind::Recv ? 2u : 0u) + (op.payload == Payload::Gradient ? 1u : 0u);
}

// The ops of all rows, row after row.
std::vector<std::int32_t> by_key(const Draft& draft, const std::vector<std::int64_t>& start) {
  std::vector<std::int32_t> sorted(draft.ops.size());
  auto to = sorted.begin();
  std::array<std::vector<Place>, kSequences> sequences;
  for (std::size_t row = 0; row + 1 < draft.row_begin.size(); ++row) {
    for (auto& sequence : sequences) sequence.clear();
    for (std::int32_t i = draft.row_begin[row]; i < draft.row_begin[row + 1]; ++i) {
      const DraftOp& op = draft.ops[at(i)];
      sequences[sequence_of(op.op)].push_back(
          {start[at(i)], (std::int64_t{class_of(op.op)} << 32) + op.tie, i});
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
                  .woven = by_key(draft, start)};
  Schedule& s = ordered.schedule;
  const std::size_t num_ops = draft.ops.size();
  std::vector<MatchId> match_of(draft.carried.size());
  std::int32_t matches = 0;
  s.row_begin = draft.row_begin;
  s.ops.resize(num_ops);
  s.operands.reserve(draft.operands.size());
  s.operand_begin.resize(num_ops + 1);
  ordered.duration.resize(num_ops);
  for (std::size_t to = 0; to < num_ops; ++to) {
    const std::size_t from = at(ordered.woven[to]);
    const DraftOp& woven = draft.ops[from];
    Op& op = s.ops[to];
    op = woven.op;
    op.key = start[from];
    if (op.match) {
      MatchId& id = match_of[op.match.index()];
      if (!id) {
        id = {matches++};
        s.carried.push_back(draft.carried[op.match.index()]);
      }
      op.match = id;
    }
    ordered.duration[to] = woven.duration;
    s.operands.insert(s.operands.end(), draft.operands.begin() + draft.operand_begin(from),
                      draft.operands.begin() + woven.operand_end);
    s.operand_begin[to + 1] = static_cast<std::int32_t>(s.operands.size());
  }
  return ordered;
}

}  // namespace rehearse
