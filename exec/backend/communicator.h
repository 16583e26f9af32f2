// SPDX-License-Identifier: Apache-2.0
// What carries data between processes: collectives and transfers whose members are not all here.
//
// Calls return at once; `done` is called exactly once, from any thread, when the data may be used
// again, or with what went wrong: then the communicator is dead, and every later call fails too.
// A communicator that enqueues on the lanes' own streams (NCCL) calls `done` before it returns.
// Calls of one instance come in the same order in every process; so do the two ends of a transfer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "exec/backend/exchange.h"
#include "schedules/base/result.h"

namespace rehearse::exec {

class Communicator {
 public:
  using Done = std::function<void(Result<>)>;
  virtual ~Communicator() = default;
  virtual std::string_view name() const = 0;  // "gloo", "nccl"
  virtual std::int32_t process() const = 0;   // this one: 0, 1, ...
  // Ranks are dealt in order: rank r lives in process r / (ranks / processes).
  virtual std::int32_t processes() const = 0;
  // After a step that failed: whether another process did not come in time. Then who watches says
  // which.
  virtual bool timed_out() const { return false; }
  // What the spans of `exchange` point to lives until `done`. Sums are taken in the order of the
  // members, so that every number of processes gives the same bits.
  virtual void collective(const Exchange& exchange, Done done) = 0;
  // The two ends of one transfer name the same tag; tags under way are distinct.
  virtual void send(Lane from, std::int32_t to_rank, std::uint64_t tag,
                    std::span<const std::byte> data, Done done) = 0;
  virtual void receive(Lane to, std::int32_t from_rank, std::uint64_t tag,
                       std::span<std::byte> data, Done done) = 0;
};

}  // namespace rehearse::exec
