// SPDX-License-Identifier: Apache-2.0
// What is exchanged among ranks: one collective of one instance of a group, or one transfer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "schedules/ir/op.h"

namespace rehearse::exec {

enum class ElementType : std::uint8_t { Float32, Float64, BFloat16, Float16 };
constexpr std::int64_t bytes_of(ElementType type) {
  return type == ElementType::Float64 ? 8 : type == ElementType::Float32 ? 4 : 2;
}

// What one op does side by side, where a device can: its body; of a pair the second body; and the
// collectives that a body goes on beside. Such an op begins and ends on Main. Transfers with other
// processes are on a track for each direction and side (transfer_tracks.h), from begin to end.
enum class Track : std::uint8_t { Main, Second, Collectives, Fourth };
inline constexpr std::size_t kTracks = 4;

// One stream of one rank; of an op that is under way there, one of its tracks.
struct Lane {
  std::int32_t rank = 0;
  Stream stream{};
  Track track = Track::Main;
  constexpr Lane on(Track other) const { return {rank, stream, other}; }
};

// What one member brings. In place where in == out (ReduceScatter and AllGather: the own part of
// the whole array).
struct Contribution {
  void* in = nullptr;
  void* out = nullptr;
  // AllToAll in unequal parts: elements to and from every member, in their order, parts one behind
  // the other. Null: equal parts.
  const std::int64_t* sends = nullptr;
  const std::int64_t* receives = nullptr;
};

// A collective of one instance of a group (the tp group of replica 3, say), as its members bring
// it. in and out by kind: AllReduce, Broadcast, Reduce: whole arrays. ReduceScatter: in whole, out
// the own part. AllGather: in the own part, out whole. Gather, Scatter, AllToAll likewise. Send: a
// shift round the ring: the array `in` of member m becomes `out` of member m + 1, the last's the
// first's.
struct Exchange {
  OpKind kind{};
  ElementType type = ElementType::Float32;
  bool maximum = false;  // AllReduce: largest instead of sum
  // of the whole array; divisible by the members where it is parted
  std::int64_t elements = 0;
  // AllGather, ReduceScatter: from one member's part of the whole array to the next one's
  // [elements]; 0: they lie one behind the other.
  std::int64_t pitch = 0;
  std::int32_t root = 0;                // member: Broadcast, Reduce, Gather, Scatter
  std::int32_t instance = 0;            // number of the group's instance, the same in every process
  std::int64_t sequence = 0;            // how many exchanges this instance had before, likewise
  std::span<const std::int32_t> ranks;  // of the members, in order
  std::span<const Contribution> contributions;  // by member; empty ones belong to other processes
  std::span<const Lane> lanes;                  // by member, likewise
};

}  // namespace rehearse::exec
