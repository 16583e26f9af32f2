// SPDX-License-Identifier: Apache-2.0
#include "sim/memory/replay/memory_steady.h"

#include <algorithm>

#include "schedules/ir/stage_index.h"

namespace rehearse::sim {

SteadyPhase steady_phase(const Schedule& order, RankClass row) {
  const auto program = order.program(row);
  const auto alike = [&](std::size_t i, std::size_t period, std::int32_t microbatches) {
    const auto now = work_of(order, program[i]), later = work_of(order, program[i + period]);
    if (program[i].kind != program[i + period].kind) return false;
    for (std::size_t w = 0; w < now.size(); ++w) {
      if (now[w].kind != later[w].kind || now[w].stage != later[w].stage ||
          now[w].slice != later[w].slice ||
          now[w].microbatch.value + microbatches != later[w].microbatch.value) {
        return false;
      }
    }
    return true;
  };
  if (order.microbatches < 4 || program.size() % static_cast<std::size_t>(order.microbatches)) {
    return {};
  }
  const std::size_t per_microbatch = program.size() / static_cast<std::size_t>(order.microbatches);
  for (std::int32_t group = 1; 4 * group <= order.microbatches; ++group) {
    const std::size_t period = per_microbatch * static_cast<std::size_t>(group);
    std::size_t begin = (program.size() - period) / 2, end = begin;  // [begin, end): alike
    while (begin > 0 && alike(begin - 1, period, group)) --begin;
    while (end + period < program.size() && alike(end, period, group)) ++end;
    if (end - begin >= 2 * period) {
      return {.begin = begin, .end = end, .period = period, .microbatches = group};
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
