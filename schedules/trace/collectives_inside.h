// SPDX-License-Identifier: Apache-2.0
// The collectives of a trace: those inside its compute ops, in the order in which they begin, and
// what all of a row's send in a step.
//
// Bytes and order are the bodies'. Times inside an op are those that were predicted of its nodes,
// drawn out to what the op took: nobody measures them.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "schedules/trace/trace.h"

namespace rehearse {

struct InsideCollective {
  std::string_view name;  // "all_reduce tp"
  OpKind kind{};          // RingExchange: Send
  GroupKind group{};
  std::int64_t bytes = 0;  // payload, the whole array
  std::int64_t begin_ns = 0, end_ns = 0;
};
// Empty: the op has none, or the trace does not know.
std::vector<InsideCollective> collectives_inside(const Trace& trace, OpId op);

// Collectives of one kind over one group, of a rank of the row: those inside ops, and ops of their
// own.
struct CollectiveSum {
  std::string_view group;  // "tp"
  OpKind kind{};
  std::int64_t count = 0, bytes = 0;
  std::int64_t inside_count = 0, inside_bytes = 0;  // of them
};
// By group and kind. Transfers between stages are none.
std::vector<CollectiveSum> collectives_of(const Trace& trace, RankClass row);

}  // namespace rehearse
