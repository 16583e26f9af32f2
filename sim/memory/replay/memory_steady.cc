// SPDX-License-Identifier: Apache-2.0
#include "sim/memory/replay/memory_steady.h"

#include <algorithm>
#include <span>
#include <utility>

#include "schedules/ir/stage_index.h"

namespace rehearse::sim {

namespace {

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
  std::vector<std::int32_t> shift() && { return std::move(shift_); }

 private:
  const Schedule& order_;
  std::span<const Op> program_;
  std::size_t ops_;
  std::vector<std::int32_t> shift_;  // 0: not met yet
};

}  // namespace

SteadyPhase steady_phase(const Schedule& order, RankClass row) {
  const std::size_t ops = order.program(row).size();
  if (order.microbatches < 4 || ops % static_cast<std::size_t>(order.microbatches)) return {};
  const std::size_t per_microbatch = ops / static_cast<std::size_t>(order.microbatches);
  for (std::int32_t group = 1; 4 * group <= order.microbatches; ++group) {
    const std::size_t period = per_microbatch * static_cast<std::size_t>(group);
    Period repeated(order, row, period);
    std::size_t begin = (ops - period) / 2, end = begin;  // [begin, end): alike
    while (begin > 0 && repeated.alike(begin - 1)) --begin;
    while (end + period < ops && repeated.alike(end)) ++end;
    if (end - begin >= 2 * period) {
      return {.begin = begin, .end = end, .period = period, .shift = std::move(repeated).shift()};
    }
  }
  return {};
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
