// V-Half, V-Min and 1F1B-V: two chunks per position in a V, for a half, a third and two thirds of
// 1F1B's activation memory.
// Source: Qi et al., "Pipeline Parallelism with Controllable Memory", NeurIPS 2024 (arXiv
// 2405.15362): a building block, the ops of one micro-batch, repeats every 6 units (F = I = W = 1);
// the smaller the steps of the block from position to position, the shorter an activation lives.
//
// Here the block gives the priorities of a greedy pass (planner_greedy.h), which also fills and
// drains the pipeline; the strides were found by trying all small ones at p = 2 ... 32. Bubbles and
// peaks are those of the paper's code or smaller (tests/schedules/closed_form_schedule_test.cc).
#include <algorithm>
#include <array>

#include "schedules/order/orders.h"
#include "schedules/planner.h"

namespace rehearse::order {
namespace {

// Units from a stage to the next: forward down and up the V, backward down and up; and from the
// last op of one of these four legs to the first of the next.
struct Block {
  std::array<std::int32_t, 4> stride;
  std::array<std::int32_t, 3> turn;
  std::int64_t ahead;  // how far a forward may overtake the block, in units
};
constexpr std::int64_t kInterval = 6;

constexpr std::array kHalf{
    Block{{1, 2, 1, 2}, {2, 4, 1}, 6}, Block{{1, 2, 1, 1}, {1, 1, 2}, 12},
    Block{{1, 2, 1, 1}, {1, 4, 2}, 6}, Block{{1, 1, 2, 2}, {1, 4, 1}, 6},
    Block{{1, 2, 1, 2}, {1, 1, 1}, 0}, Block{{2, 2, 1, 1}, {2, 3, 1}, 12},
};
constexpr std::array kMin{
    Block{{1, 1, 1, 1}, {1, 1, 1}, 0},
    Block{{1, 1, 1, 1}, {1, 2, 1}, 6},
    Block{{1, 1, 1, 1}, {1, 3, 1}, 6},
};
constexpr std::array kFused{
    Block{{2, 1, 3, 3}, {2, 3, 2}, 12}, Block{{1, 1, 2, 3}, {2, 4, 2}, 6},
    Block{{2, 1, 3, 3}, {2, 4, 3}, 12}, Block{{2, 1, 3, 3}, {2, 4, 1}, 6},
    Block{{1, 2, 4, 4}, {1, 6, 2}, 18},
};

GreedyRule rule_of(const Block& block, std::int32_t p) {
  GreedyRule rule;
  rule.interval = kInterval;
  rule.ahead = block.ahead;
  const auto leg = [&](std::vector<std::int64_t>& places, std::int64_t first, std::int32_t stride) {
    for (std::int32_t i = 0; i < p; ++i) places.push_back(first + i * stride);
    return places.back();
  };
  std::vector<std::int64_t> backward;
  std::int64_t end = leg(rule.forward_place, 0, block.stride[0]);
  end = leg(rule.forward_place, end + block.turn[0], block.stride[1]);
  end = leg(backward, end + block.turn[1], block.stride[2]);
  leg(backward, end + block.turn[2], block.stride[3]);
  rule.backward_place.assign(backward.rbegin(), backward.rend());
  return rule;
}

// Blocks are compared on as many micro-batches as cost little: all of them in small pipelines.
std::int32_t trial_microbatches(std::int32_t p) {
  return std::max(2 * p + 1, 4000 / p);
}

Result<Schedule> repeat(const ScheduleShape& shape, std::span<const Block> blocks,
                        std::int32_t peak, bool split) {
  const std::int32_t p = shape.positions;
  const PlanTask task{.placement = v_placement(p),
                      .microbatches = shape.microbatches,
                      .limit_halves = 2 * peak,
                      .split = split,
                      .held_until_weight = true};
  std::vector<GreedyRule> rules;
  for (const Block& block : blocks) rules.push_back(rule_of(block, p));
  return best_greedy(task, rules, Objective::Makespan, trial_microbatches(p));
}

}  // namespace

// Peaks in stage-chunks; a position holds two of them, so the whole memory of 1F1B is 2p.
Result<Schedule> v_half(const ScheduleShape& shape) {
  return repeat(shape, kHalf, 2 * ((shape.positions + 2) / 2), true);
}
Result<Schedule> v_min(const ScheduleShape& shape) {
  return repeat(shape, kMin, 2 * ((shape.positions + 4) / 3), true);
}
Result<Schedule> one_f_one_b_v(const ScheduleShape& shape) {
  return repeat(shape, kFused, 2 * (2 * shape.positions / 3) + 2, false);
}

}  // namespace rehearse::order
