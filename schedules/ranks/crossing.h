// SPDX-License-Identifier: Apache-2.0
// How much of an exchange crosses from one process of a run to another: a fact that the executor's
// collectives make (exec/messages/composed_collectives.h) and the prediction of a throttled run
// counts.
#pragma once

#include <cstdint>

#include "schedules/ir/op.h"

namespace rehearse {

// Arrays that are not worth being cut into a slice for each process [B].
inline constexpr std::int64_t kUncutBytes = 8192;

struct Crossed {
  std::int32_t rounds = 1;  // of messages, one after the other
  std::int64_t bytes = 0;   // from the one process to the other, in all rounds
};
// What crosses in an exchange of `bytes` (the whole array; Send: what a member sends to the next)
// among `members` ranks in `processes`, from a process that holds `from` of them to one that holds
// `to`, the busier direction where one of them is the root. Up to rounding of slices.
Crossed crossed(OpKind kind, std::int64_t bytes, std::int32_t members, std::int32_t processes,
                std::int32_t from, std::int32_t to);

}  // namespace rehearse
