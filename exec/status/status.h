// SPDX-License-Identifier: Apache-2.0
// What every rank is doing right now, in memory that outlives it: step, op under way and op last
// finished per stream, and the last 256 op events (the flight recorder's ring).
//
// A launcher creates the board and its children map it, so that the op of a rank that was killed or
// stopped is known exactly. Everything is a relaxed atomic: a reader sees each field whole, and the
// fields of a rank within a few nanoseconds of one another. Who writes: exec/step/observer.h.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>

#include "schedules/base/result.h"
#include "schedules/ir/op.h"

namespace rehearse::exec {

inline constexpr std::size_t kFlightEvents = 256;  // per rank
inline constexpr std::int32_t kWaitsForNobody = -2;
inline constexpr std::int32_t kWaitsForGroup = -1;  // the other members of its op's group
// The same inside a compute op, in a collective of a layer, and which layer; -1: of none.
constexpr std::int32_t waits_in_layer(std::int32_t layer) {
  return layer < 0 ? kWaitsForGroup : kWaitsForNobody - 1 - layer;
}
constexpr std::int32_t layer_of_wait(std::int32_t waits_for) {
  return waits_for < kWaitsForNobody ? kWaitsForNobody - 1 - waits_for : -1;
}

struct OpEvent {
  std::atomic<std::int64_t> began_ns{0}, ended_ns{0};    // CLOCK_MONOTONIC; ended 0: under way
  std::atomic<std::int32_t> step{-1}, op{-1};            // op -1: an unused entry
  std::atomic<std::int32_t> waits_for{kWaitsForNobody};  // the last that it waited for
  std::atomic<std::uint8_t> stream{0};
};

struct StreamStatus {
  std::atomic<std::int32_t> op{-1};                      // under way
  std::atomic<std::int32_t> ended{-1};                   // last finished of this step
  std::atomic<std::int32_t> waits_for{kWaitsForNobody};  // a rank, kWaitsFor..., waits_in_layer
  std::atomic<std::uint32_t> event{0};                   // of the op under way, in the ring
};

enum class RankPhase : std::uint8_t { Starting, Running, Done };

struct alignas(64) RankStatus {
  std::atomic<std::int64_t> changed_ns{0};  // when anything here changed last
  std::atomic<std::int32_t> step{-1};
  std::atomic<std::int32_t> last_ended{-1};  // of any stream
  std::atomic<RankPhase> phase{RankPhase::Starting};
  std::atomic<std::uint32_t> events{0};  // ever begun; entry i is ring[i % kFlightEvents]
  std::array<StreamStatus, kNumStreams> streams;
  std::array<OpEvent, kFlightEvents> ring;
};
static_assert(std::atomic<std::int64_t>::is_always_lock_free, "atomics in shared memory");

// One block of RankStatus, shared between processes by a file descriptor. Moves, does not copy.
class StatusBoard {
 public:
  // A new one, every rank Starting. Its descriptor is inherited by children (no close-on-exec).
  static Result<StatusBoard> create(std::int32_t ranks);
  // One that another process created. Error: not a board for so many ranks.
  static Result<StatusBoard> attach(int descriptor, std::int32_t ranks);
  StatusBoard(StatusBoard&& other) noexcept;
  StatusBoard& operator=(StatusBoard&& other) noexcept;
  ~StatusBoard();

  int descriptor() const { return descriptor_; }
  std::span<RankStatus> ranks() const { return ranks_; }
  RankStatus& rank(std::int32_t r) const { return ranks_[static_cast<std::size_t>(r)]; }

 private:
  StatusBoard(int descriptor, std::span<RankStatus> ranks)
      : descriptor_(descriptor), ranks_(ranks) {}
  void release();
  int descriptor_ = -1;
  std::span<RankStatus> ranks_;
};

std::int64_t monotonic_ns();  // CLOCK_MONOTONIC: one clock for all processes of a machine

}  // namespace rehearse::exec
