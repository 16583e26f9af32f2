// SPDX-License-Identifier: Apache-2.0
// An order with an R of some of its backwards anywhere between their forward and them: more of them
// alive at a time than any planner would have, in every place that is legal.
#pragma once

#include <random>
#include <vector>

#include "schedules/ir/stage_index.h"

namespace rehearse {

// REQUIRES: a compute order without R. `percent`: of backwards that get one.
inline Schedule with_scattered_recompute(const Schedule& order, std::uint64_t seed,
                                         unsigned percent) {
  std::mt19937_64 random(seed);
  const StageIndex index(order);
  std::vector<std::vector<Op>> before(order.ops.size());  // by op: the Rs in front of it
  for (std::size_t i = 0; i < order.ops.size(); ++i) {
    for (const Op& work : work_of(order, order.ops[i])) {
      if (!is_backward(work.kind) || random() % 100 >= percent) continue;
      const auto forward = static_cast<std::size_t>(index.at(index.key(0, work)).forward_last);
      Op op = compute_op(OpKind::Recompute, work.stage, work.microbatch);
      op.slice = work.slice;
      before[forward + 1 + random() % (i - forward)].push_back(op);
    }
  }
  Schedule made = order;
  made.ops.clear();
  made.row_begin = {0};
  for (RankClass row{0}; row.value < order.num_rows(); ++row.value) {
    for (std::size_t i = order.first_op(row); i < order.first_op({row.value + 1}); ++i) {
      made.ops.insert(made.ops.end(), before[i].begin(), before[i].end());
      made.ops.push_back(order.ops[i]);
    }
    made.end_row();
  }
  return made;
}

}  // namespace rehearse
