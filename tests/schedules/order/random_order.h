// SPDX-License-Identifier: Apache-2.0
// Random legal compute orders on random placements, from a seed.
#pragma once

#include <random>
#include <vector>

#include "schedules/ir/schedule.h"

namespace rehearse::fixture {

class RandomOrder {
 public:
  explicit RandomOrder(std::uint64_t seed) : random_(seed) {}

  // p 2..5, v 1..3, m 1..6: loop, V, arbitrary or bidirectional; B fused or split; some sliced;
  // some with overlapped pairs. Legal: ops are drawn one by one among those that are ready.
  Schedule next() {
    Schedule schedule;
    const std::int32_t positions = between(2, 5);
    schedule.microbatches = between(1, 6);
    schedule.slices = between(0, 5) == 0 ? 2 : 1;
    schedule.placement = placement(positions, schedule.microbatches);
    schedule.name = "random";
    split_ = between(0, 1) == 0;
    pairs_ = schedule.slices == 1 && between(0, 2) == 0;
    fill(schedule);
    return schedule;
  }
  std::int32_t between(std::int32_t least, std::int32_t most) {
    return std::uniform_int_distribution<std::int32_t>(least, most)(random_);
  }

 private:
  struct State {
    bool forward = false, backward = false, weight = false;
  };

  Placement placement(std::int32_t positions, std::int32_t microbatches) {
    switch (between(0, 3)) {
      case 0:
        return loop_placement(positions, between(1, 3));
      case 1:
        return v_placement(positions);
      case 2:
        return bidirectional_placement(positions, between(0, microbatches));
      default:
        break;
    }
    Placement arbitrary{.positions = positions};
    const std::int32_t stages = positions * between(1, 3);
    for (std::int32_t s = 0; s < stages; ++s) {
      arbitrary.down.push_back({s < positions ? s : between(0, positions - 1)});
    }
    return arbitrary;
  }

  void fill(Schedule& schedule) {
    const auto positions = static_cast<std::size_t>(schedule.placement.positions);
    const std::int32_t stages = schedule.placement.stages();
    const std::int32_t work = stages * schedule.microbatches * schedule.slices;
    std::vector<State> state(static_cast<std::size_t>(work));
    const auto at = [&](std::int32_t s, std::int32_t b, std::int32_t slice) -> State& {
      return state[static_cast<std::size_t>((s * schedule.microbatches + b) * schedule.slices +
                                            slice)];
    };
    std::vector<std::vector<Op>> rows(positions);
    for (std::int32_t left = work * (split_ ? 3 : 2); left > 0;) {
      std::vector<Op> ready;
      for (std::int32_t s = 0; s < stages; ++s) {
        for (std::int32_t b = 0; b < schedule.microbatches; ++b) {
          for (std::int32_t k = 0; k < schedule.slices; ++k) {
            const State& own = at(s, b, k);
            Op op = compute_op(OpKind::Forward, {s}, {b});
            if (schedule.slices > 1) op.slice = static_cast<std::int8_t>(k);
            const bool forward_ready = !own.forward && (s == 0 || at(s - 1, b, k).forward) &&
                                       (k == 0 || at(s, b, k - 1).forward);
            const bool backward_ready = own.forward && !own.backward &&
                                        (s + 1 == stages || at(s + 1, b, k).backward) &&
                                        at(s, b, schedule.slices - 1).forward &&
                                        (k + 1 == schedule.slices || at(s, b, k + 1).backward);
            if (forward_ready) ready.push_back(op);
            op.kind = split_ ? OpKind::InputGradient : OpKind::Backward;
            if (backward_ready) ready.push_back(op);
            op.kind = OpKind::WeightGradient;
            if (split_ && own.backward && !own.weight) ready.push_back(op);
          }
        }
      }
      const Op& first = draw(ready);
      const auto row_of = [&](const Op& op) {
        return static_cast<std::size_t>(schedule.placement.position(op.stage, op.microbatch).value);
      };
      const auto run = [&](const Op& op) {
        State& own = at(op.stage.value, op.microbatch.value, op.slice < 0 ? 0 : op.slice);
        if (op.kind == OpKind::Forward)
          own.forward = true;
        else if (op.kind == OpKind::WeightGradient)
          own.weight = true;
        else
          own.backward = true;
        --left;
      };
      std::vector<Op> partners;
      for (const Op& op : ready) {
        if (pairs_ && first.kind == OpKind::Forward && is_backward(op.kind) &&
            row_of(op) == row_of(first) && op.microbatch != first.microbatch) {
          partners.push_back(op);
        }
      }
      if (!partners.empty()) {
        const Op& second = draw(partners);
        rows[row_of(first)].push_back(
            {.kind = OpKind::Overlap,
             .child = static_cast<std::int32_t>(schedule.children.size())});
        schedule.children.insert(schedule.children.end(), {first, second});
        run(second);
      } else {
        rows[row_of(first)].push_back(first);
      }
      run(first);
    }
    for (const std::vector<Op>& row : rows) {
      schedule.ops.insert(schedule.ops.end(), row.begin(), row.end());
      schedule.end_row();
    }
  }

  const Op& draw(const std::vector<Op>& ops) {
    return ops[static_cast<std::size_t>(between(0, static_cast<std::int32_t>(ops.size()) - 1))];
  }

  std::mt19937_64 random_;
  bool split_ = false, pairs_ = false;
};

}  // namespace rehearse::fixture
