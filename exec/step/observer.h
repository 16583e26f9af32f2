// SPDX-License-Identifier: Apache-2.0
// What the interpreter tells about its ops as they happen: to the status board, whose ring is the
// flight recorder. Two clock readings and some relaxed stores an op: always on.
//
// Thread safety: one stream of one rank is told about by one thread at a time; streams and ranks
// are independent.
#pragma once

#include "exec/status/status.h"
#include "schedules/base/units.h"

namespace rehearse::exec {

class Observer {
 public:
  explicit Observer(const StatusBoard& board) : ranks_(board.ranks()) {}

  // Rank `rank` (global number) takes up step `step`. Before its first op.
  void step_began(std::int32_t rank, std::int64_t step) {
    RankStatus& at = of(rank);
    for (StreamStatus& stream : at.streams) set(stream.ended, -1);
    set(at.step, static_cast<std::int32_t>(step));
    set(at.phase, RankPhase::Running);
    set(at.changed_ns, monotonic_ns());
  }
  void op_began(std::int32_t rank, std::int64_t step, OpId op, Stream stream) {
    const std::int64_t now = monotonic_ns();
    RankStatus& at = of(rank);
    StreamStatus& on = at.streams[static_cast<std::size_t>(stream)];
    const std::uint32_t event = at.events.fetch_add(1, std::memory_order_relaxed);
    OpEvent& entry = at.ring[event % kFlightEvents];
    set(entry.began_ns, now);
    set(entry.ended_ns, 0);
    set(entry.step, static_cast<std::int32_t>(step));
    set(entry.op, op.value);
    set(entry.waits_for, kWaitsForNobody);
    set(entry.stream, static_cast<std::uint8_t>(stream));
    set(on.event, event);
    set(on.op, op.value);
    set(at.changed_ns, now);
  }
  // The op under way cannot go on before `peer` comes: a rank, or kWaitsForGroup;
  // kWaitsForNobody: it goes on.
  void op_waits(std::int32_t rank, Stream stream, std::int32_t peer) {
    RankStatus& at = of(rank);
    StreamStatus& on = at.streams[static_cast<std::size_t>(stream)];
    set(on.waits_for, peer);
    OpEvent* entry = entry_of(at, on);
    if (entry != nullptr && peer != kWaitsForNobody) set(entry->waits_for, peer);
  }
  void op_ended(std::int32_t rank, Stream stream) {
    const std::int64_t now = monotonic_ns();
    RankStatus& at = of(rank);
    StreamStatus& on = at.streams[static_cast<std::size_t>(stream)];
    const std::int32_t op = on.op.load(std::memory_order_relaxed);
    if (OpEvent* entry = entry_of(at, on)) set(entry->ended_ns, now);
    set(on.ended, op);
    set(at.last_ended, op);
    set(on.op, -1);
    set(on.waits_for, kWaitsForNobody);
    set(at.changed_ns, now);
  }
  // The rank has performed its last step.
  void done(std::int32_t rank) { set(of(rank).phase, RankPhase::Done); }

 private:
  template <class T, class U>
  static void set(std::atomic<T>& to, U value) {
    to.store(value, std::memory_order_relaxed);
  }
  // The entry of the op under way; null where other streams' events have come round to it.
  static OpEvent* entry_of(RankStatus& at, const StreamStatus& on) {
    const std::uint32_t event = on.event.load(std::memory_order_relaxed);
    const std::uint32_t since = at.events.load(std::memory_order_relaxed) - event;
    return since <= kFlightEvents ? &at.ring[event % kFlightEvents] : nullptr;
  }
  RankStatus& of(std::int32_t rank) { return ranks_[static_cast<std::size_t>(rank)]; }

  std::span<RankStatus> ranks_;
};

}  // namespace rehearse::exec
