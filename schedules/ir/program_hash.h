// SPDX-License-Identifier: Apache-2.0
// A lowered schedule as strings: one number per op that says what it is and does, told by what
// stands before it in its row. Where a row repeats itself its numbers do, so a schedule that is
// written with its repetitions left out has the hash of the whole.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "schedules/ir/schedule.h"

namespace rehearse {

// Per op: kind, stream, place in the model, operands and waits. A micro-batch is counted from the
// one before it of its direction, a value's from the op's, a gather from the one before of its
// bucket, a wait by how many ops of its stream stand between. Two schedules of equal rows, groups
// and buckets have equal numbers if they do the same things in the same order. Matches are left
// out: who meets follows from the rest. Versions, last uses and offsets are left out: they follow
// from the operands, or are of an arena. REQUIRES: Level::Full. O(ops + operands + waits).
std::vector<std::uint64_t> relative_ops(const Schedule& schedule);

// Ops [begin, end) that a row does `more` times more, each time right behind the last.
struct RepeatedOps {
  std::int32_t begin = 0, end = 0;
  std::int64_t more = 0;
};

// 16 hexadecimal digits of all numbers, the rows that they stand in, and the shape of the schedule.
// `repeated`: none, or one part per row. Then microbatches and placement are those of the whole.
// A polynomial of the numbers modulo 2^61 - 1, so that repeating costs the logarithm of `more`.
std::string program_hash(const Schedule& schedule, std::span<const std::uint64_t> relative,
                         std::span<const RepeatedOps> repeated = {});

}  // namespace rehearse
