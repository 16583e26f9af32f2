// SPDX-License-Identifier: Apache-2.0
#include "schedules/planner/planner_rules.h"

#include <algorithm>
#include <array>

namespace rehearse {
namespace {

// How many forwards of a position's first chunk may be under way: `step` fewer per position.
enum class Under : std::uint8_t { Any, Span, Round, Limit };  // -, 2p-1, 2p, the memory limit
struct Choice {
  bool forward_first;
  double patience, filler;
  bool alternate;
  Under under = Under::Any;
  std::int32_t step = 0;
};
constexpr std::array<Choice, 20> kOneChunk{{
    {true, 0.50, 0.75, true},
    {false, 0.00, 0.00, false, Under::Limit, 1},
    {true, 0.25, 0.50, false, Under::Span, 2},
    {true, 0.50, 0.00, true},
    {true, 0.00, 1.00, false, Under::Span, 2},
    {false, 1.00, 0.00, false},
    {true, 1.00, 0.50, true, Under::Round, 2},
    {true, 0.00, 0.00, false, Under::Span, 2},
    {false, 0.00, 0.50, true, Under::Limit, 1},
    {true, 0.25, 0.75, false, Under::Round, 2},
    {false, 1.00, 0.00, true},
    {true, 1.00, 0.75, true},
    {true, 1.00, 0.75, false, Under::Span, 2},
    {true, 0.50, 0.75, true, Under::Span, 2},
    {true, 1.00, 0.25, true, Under::Limit, 1},
    {true, 0.50, 0.00, true, Under::Span, 2},
    {false, 0.25, 0.25, false, Under::Span, 2},
    {false, 1.00, 0.75, true},
    {true, 0.50, 0.50, true},
    {false, 0.00, 0.25, false},
}};

// Two chunks per position: places of F of the first and second chunk, and of B or I of them.
struct Places {
  std::array<std::int64_t, 2> forward, backward;
};
constexpr std::array<Places, 6> kTwoChunks{{
    {{1, 0}, {3, 2}},
    {{1, 0}, {2, 3}},
    {{2, 0}, {1, 3}},
    {{2, 0}, {3, 1}},
    {{2, 1}, {0, 3}},
    {{3, 2}, {1, 0}},
}};

std::vector<std::int32_t> in_flight(const PlanTask& task, const Choice& row) {
  std::vector<std::int32_t> most;
  const std::int32_t p = task.placement.positions;
  const std::int32_t first =
      row.under == Under::Span ? 2 * p - 1
      : row.under == Under::Round
          ? 2 * p
          : static_cast<std::int32_t>(std::min<std::int64_t>(task.limit_halves / 2, 1 << 20));
  most.reserve(static_cast<std::size_t>(p));
  for (std::int32_t r = 0; r < p; ++r) most.push_back(std::max(1, first - row.step * r));
  return most;
}

}  // namespace

std::vector<GreedyRule> rules_for(const PlanTask& task) {
  std::vector<GreedyRule> rules;
  const bool one_chunk = task.placement.stages() == task.placement.positions;
  if (one_chunk) {
    for (const Choice& row : kOneChunk) {
      GreedyRule rule =
          priorities(task.placement, {row.forward_first ? 0 : 1}, {row.forward_first ? 1 : 0});
      rule.patience = row.patience;
      rule.filler = row.filler;
      rule.alternate = row.alternate;
      if (row.under != Under::Any) rule.in_flight = in_flight(task, row);
      rules.push_back(std::move(rule));
    }
    return rules;
  }
  for (const Places& places : kTwoChunks) {
    for (const bool alternate : {false, true}) {
      for (const double patience : {0.0, 1.0}) {
        GreedyRule rule = priorities(task.placement, {places.forward.begin(), places.forward.end()},
                                     {places.backward.begin(), places.backward.end()});
        rule.alternate = alternate;
        rule.patience = patience;
        rule.filler = patience / 2;
        rules.push_back(std::move(rule));
      }
    }
  }
  return rules;
}

}  // namespace rehearse
