// SPDX-License-Identifier: Apache-2.0
#include "sim/memory/replay/memory_steady.h"

#include <algorithm>
#include <span>
#include <utility>

#include "schedules/ir/stage_index.h"

namespace rehearse::sim {

namespace {

// Lengths of a period that are tried, each by the ops that it finds alike.
constexpr int kMostTried = 256;

// Whether ops a period apart are alike, each stage's some micro-batches later: its first two say
// how many. Where directions meet in a row each has its own numbers, and its own stage.
class Period {
 public:
  Period(const Schedule& order, RankClass row, std::size_t ops)
      : order_(order),
        program_(order.program(row)),
        ops_(ops),
        shift_(static_cast<std::size_t>(order.placement.stages())) {}

  bool alike(std::size_t i) {
    const auto now = work_of(order_, program_[i]), later = work_of(order_, program_[i + ops_]);
    if (program_[i].kind != program_[i + ops_].kind || now.size() != later.size()) return false;
    for (std::size_t w = 0; w < now.size(); ++w) {
      if (now[w].kind != later[w].kind || now[w].stage != later[w].stage ||
          now[w].slice != later[w].slice || now[w].stage.value < 0) {
        return false;
      }
      const std::int32_t shift = later[w].microbatch.value - now[w].microbatch.value;
      std::int32_t& known = shift_[now[w].stage.index()];
      if (shift <= 0 || (known != 0 && known != shift)) return false;
      known = shift;
    }
    return true;
  }
  // As many micro-batches end in a period as begin.
  bool balanced(std::size_t begin) const {
    std::int32_t open = 0;
    for (const Op& op : program_.subspan(begin, ops_)) {
      for (const Op& work : work_of(order_, op)) {
        open += work.kind == OpKind::Forward;
        open -= work.kind == OpKind::Backward || work.kind == OpKind::WeightGradient;
      }
    }
    return open == 0;
  }
  std::vector<std::int32_t> shift() && { return std::move(shift_); }

 private:
  const Schedule& order_;
  std::span<const Op> program_;
  std::size_t ops_;
  std::vector<std::int32_t> shift_;  // 0: not met yet
};

}  // namespace

SteadyPhase steady_phase(const Schedule& order, RankClass row) {
  const auto program = order.program(row);
  const std::size_t ops = program.size(), middle = ops / 2;
  SteadyPhase longest;
  int tried = 0;
  for (std::size_t period = 1; 2 * period < ops && tried < kMostTried; ++period) {
    const std::size_t early = middle - period / 2;  // so that both lie as far from either end
    Period repeated(order, row, period);
    if (early + period >= ops || !repeated.alike(early)) continue;
    ++tried;
    if (!repeated.balanced(early)) continue;
    std::size_t begin = early, end = early + 1;  // [begin, end): alike
    while (begin > 0 && repeated.alike(begin - 1)) --begin;
    while (end + period < ops && repeated.alike(end)) ++end;
    if (end - begin < 2 * period || end - begin <= longest.end - longest.begin) continue;
    longest = {.begin = begin, .end = end, .period = period, .shift = std::move(repeated).shift()};
    if (2 * (end - begin) >= ops) break;  // a longer one is several of it
  }
  return longest;
}

std::vector<std::int32_t> in_flight_counts(const Schedule& order, RankClass row) {
  std::vector<std::int32_t> counts{0};
  for (const Op& op : order.program(row)) {
    if (op.kind != OpKind::Forward && op.kind != OpKind::Backward) return {};
    counts.push_back(counts.back() + (op.kind == OpKind::Forward ? 1 : -1));
  }
  return counts;
}

std::vector<Op> in_flight(const Schedule& order, RankClass row, std::size_t position) {
  std::vector<Op> open;
  for (const Op& op : order.program(row).first(position)) {
    if (op.kind == OpKind::Forward) {
      open.push_back(op);
      continue;
    }
    open.erase(std::find_if(open.begin(), open.end(), [&](const Op& forward) {
      return forward.stage == op.stage && forward.microbatch == op.microbatch &&
             forward.slice == op.slice;
    }));
  }
  return open;
}

}  // namespace rehearse::sim
