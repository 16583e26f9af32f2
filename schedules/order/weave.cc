// SPDX-License-Identifier: Apache-2.0
#include "schedules/order/weave.h"

#include <algorithm>

namespace rehearse::order {

void weave(Schedule& schedule, std::span<const Op> forwards, std::span<const Op> backwards,
           std::int32_t warmup) {
  const std::size_t count = forwards.size();
  const std::size_t ahead = std::min(static_cast<std::size_t>(warmup), count);
  std::vector<Op>& ops = schedule.ops;
  ops.insert(ops.end(), forwards.begin(), forwards.begin() + static_cast<std::ptrdiff_t>(ahead));
  for (std::size_t i = 0; i < count; ++i) {
    if (ahead + i < count) ops.push_back(forwards[ahead + i]);
    ops.push_back(backwards[i]);
  }
}

void weave_pairs(Schedule& schedule, std::span<const Op> forwards, std::span<const Op> backwards,
                 std::int32_t warmup) {
  const std::size_t count = forwards.size();
  const std::size_t ahead = std::min(static_cast<std::size_t>(warmup), count);
  std::vector<Op>& ops = schedule.ops;
  ops.insert(ops.end(), forwards.begin(), forwards.begin() + static_cast<std::ptrdiff_t>(ahead));
  for (std::size_t i = 0; i < count - ahead; ++i) {
    const Op& forward = forwards[ahead + i];
    Op pair = compute_op(OpKind::Overlap, forward.stage, forward.microbatch);
    pair.child = static_cast<std::int32_t>(schedule.children.size());
    schedule.children.push_back(forward);
    schedule.children.push_back(backwards[i]);
    ops.push_back(pair);
  }
  ops.insert(ops.end(), backwards.begin() + static_cast<std::ptrdiff_t>(count - ahead),
             backwards.end());
}

void weave_split(Schedule& schedule, std::span<const Op> forwards, std::span<const Op> backwards,
                 std::int32_t warmup, std::int32_t delay) {
  const std::size_t count = forwards.size();
  const std::size_t ahead = std::min(static_cast<std::size_t>(warmup), count);
  const std::size_t behind = std::min(static_cast<std::size_t>(delay), count);
  std::vector<Op>& ops = schedule.ops;
  const auto half = [&](OpKind kind, std::size_t i) {
    Op op = backwards[i];
    op.kind = kind;
    ops.push_back(op);
  };
  ops.insert(ops.end(), forwards.begin(), forwards.begin() + static_cast<std::ptrdiff_t>(ahead));
  for (std::size_t i = 0; i < count; ++i) {
    if (ahead + i < count) ops.push_back(forwards[ahead + i]);
    half(OpKind::InputGradient, i);
    if (i >= behind) half(OpKind::WeightGradient, i - behind);
  }
  for (std::size_t i = count - behind; i < count; ++i) half(OpKind::WeightGradient, i);
}

std::vector<Op> run_of(OpKind kind, Stage stage, std::int32_t count) {
  std::vector<Op> ops;
  ops.reserve(static_cast<std::size_t>(count));
  for (Microbatch b{0}; b.value < count; ++b.value) ops.push_back(compute_op(kind, stage, b));
  return ops;
}

Interleaved interleaved_lists(std::int32_t positions, std::int32_t position,
                              std::int32_t microbatches, std::int32_t chunks,
                              std::int32_t group_size) {
  Interleaved lists;
  const auto total = static_cast<std::size_t>(microbatches) * static_cast<std::size_t>(chunks);
  lists.forwards.reserve(total);
  lists.backwards.reserve(total);
  for (std::int32_t first = 0; first < microbatches; first += group_size) {
    const std::int32_t last = std::min(first + group_size, microbatches);
    for (std::int32_t c = 0; c < chunks; ++c) {
      const Stage down{c * positions + position}, up{(chunks - 1 - c) * positions + position};
      for (Microbatch b{first}; b.value < last; ++b.value) {
        lists.forwards.push_back(compute_op(OpKind::Forward, down, b));
        lists.backwards.push_back(compute_op(OpKind::Backward, up, b));
      }
    }
  }
  return lists;
}

}  // namespace rehearse::order
