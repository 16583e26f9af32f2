// SPDX-License-Identifier: Apache-2.0
// Collectives among processes, made of messages between two of them, whatever carries these.
//
// Sums are taken in the order of the members whatever the processes, so every member's raw
// contribution travels to who sums it, and the bits are those of exec/cpu/collectives.h. Up to 8
// KiB, or between two members, an all-reduce sends everything to everybody, a reduce to the root, a
// broadcast from it. Above, arrays are cut into one slice per process: each sums its slice and
// sends it to the others (all-reduce) or to the root (reduce), or gets it from the root and sends
// it to the others (broadcast), so that no process sends or receives more than about 2 arrays per
// member of its own.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "exec/backend/exchange.h"
#include "schedules/base/result.h"

namespace rehearse::exec {

inline constexpr std::uint64_t kCollective = std::uint64_t{1} << 63;  // set in slots of collectives

struct Message {
  std::int32_t process = 0;  // the other one
  std::uint64_t slot = 0;  // the same at both ends; distinct while under way between two processes
  std::byte* data = nullptr;
  std::int64_t bytes = 0;
  bool send = false;
  // Since when this end asks for it; once it has moved, from when on it keeps a throttled link.
  std::chrono::steady_clock::time_point since{};
};

// Sends and receives all of the messages before it returns. It may change their order.
using Move = std::function<Result<>(std::span<Message>)>;

// This process's part of an exchange. Rank r lives in process r / ranks_per_process.
Result<> compose(const Exchange& exchange, std::int32_t process, std::int32_t ranks_per_process,
                 const Move& move);

// What compose() takes beside the arrays at most [B]: arrays of `bytes` (the whole) of `members`
// ranks, of which `here` are in this process, of `processes` that have any.
std::int64_t scratch_bytes(OpKind kind, std::int64_t bytes, std::int32_t members, std::int32_t here,
                           std::int32_t processes);

}  // namespace rehearse::exec
