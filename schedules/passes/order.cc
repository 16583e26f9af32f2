// SPDX-License-Identifier: Apache-2.0
// One global order. Every op has a key, the time at which it starts (starts.cc). Each row is that
// one order restricted to the row, so every edge goes forward in it: no deadlock by construction.
#include <algorithm>
#include <array>
#include <utility>

#include "schedules/passes/draft.h"

namespace rehearse {
namespace {

// An op's place among those of its row.
struct Place {
  std::int64_t start;
  std::int64_t rule;
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
      sequences[sequence_of(op.op)].push_back({start[id.index()], rule_of(op), place++, id});
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
  const std::vector<std::int64_t> start = starts_of(draft, dependencies);
  if (start.empty() && !draft.ops.empty()) return {};
  Ordered ordered{.dependencies = std::move(dependencies), .made = by_key(draft, start)};
  const std::size_t num_ops = draft.ops.size();
  std::vector<OpId> place(num_ops);  // per op of the draft
  for (std::size_t i = 0; i < num_ops; ++i) {
    place[draft.program[i].index()] = {static_cast<std::int32_t>(i)};
  }
  std::vector<MatchId> match_of(draft.carried.size());
  std::int32_t matches = 0;
  fill_columns(draft, ordered.made);
  Schedule& s = draft.schedule;
  ordered.duration.resize(num_ops);
  ordered.drafted.resize(num_ops);
  for (std::size_t to = 0; to < num_ops; ++to) {
    const OpId from = ordered.made[to];
    Op& op = s.ops[to];
    op.key = start[from.index()];
    if (op.match) {
      if (!draft.exchange_of.empty()) op.instance = draft.exchange_of[op.match.index()];
      MatchId& id = match_of[op.match.index()];
      if (!id) {
        id = {matches++};
        s.carried.push_back(draft.carried[op.match.index()]);
      }
      op.match = id;
    }
    ordered.duration[to] = draft.ops[from.index()].duration;
    ordered.drafted[to] = place[from.index()];
  }
  ordered.schedule = std::move(s);
  return ordered;
}

}  // namespace rehearse
