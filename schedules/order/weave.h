// SPDX-License-Identifier: Apache-2.0
// How nearly all orders are made: a list of forwards and a list of backwards, woven together.
#pragma once

#include <span>
#include <vector>

#include "schedules/ir/schedule.h"

namespace rehearse::order {

// One row: `warmup` forwards, then forward and backward in turn, then the backwards that are left.
// REQUIRES: equally many forwards and backwards. `warmup` is cut to their number.
void weave(Schedule& schedule, std::span<const Op> forwards, std::span<const Op> backwards,
           std::int32_t warmup);

// The same with the steady forwards and backwards as overlapped pairs. REQUIRES: none of these
// forwards is needed by the backward beside it (Megatron-LM: one forward more in the warm-up).
void weave_pairs(Schedule& schedule, std::span<const Op> forwards, std::span<const Op> backwards,
                 std::int32_t warmup);

// The same with every backward B split: the j-th is emitted as I followed by the W of backward
// j - delay; the W's that are still missing come last, in order.
void weave_split(Schedule& schedule, std::span<const Op> forwards, std::span<const Op> backwards,
                 std::int32_t warmup, std::int32_t delay);

// `count` ops of one kind on one stage, micro-batches 0, 1, ...
std::vector<Op> run_of(OpKind kind, Stage stage, std::int32_t count);

// Virtual micro-batches of an interleaved order: groups of `group_size` micro-batches (the last may
// be shorter), in each group chunk after chunk, in each chunk the group's micro-batches.
struct Interleaved {
  std::vector<Op> forwards, backwards;  // backwards visit the chunks from the last to the first
};
Interleaved interleaved_lists(std::int32_t positions, std::int32_t position,
                              std::int32_t microbatches, std::int32_t chunks,
                              std::int32_t group_size);

}  // namespace rehearse::order
