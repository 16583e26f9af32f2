// SPDX-License-Identifier: Apache-2.0
// What a device is to the interpreter beside its arithmetic: memory, the order of its lanes,
// copies, exchanges among ranks of this process, and the end of a step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

#include "exec/backend/exchange.h"
#include "schedules/base/result.h"
#include "schedules/base/units.h"
#include "schedules/scenario/plan.h"

namespace rehearse::exec {

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string_view name() const = 0;  // "avx512", "NVIDIA H200": for reports
  // True: calls enqueue and return, an op "ends" when it has been issued, and begin() makes its
  // lane wait for the ops that it names. Such a device is called from one thread.
  virtual bool asynchronous() const { return false; }
  virtual bool computes_in(ComputeType) const { return true; }
  // Columns of the widest head, of keys or values, that attention takes.
  virtual std::int64_t widest_head() const { return std::numeric_limits<std::int64_t>::max(); }

  // --- memory, outside a step ------------------------------------------------
  // Zeroed, aligned to 256 bytes, alive as long as the device. Error: what there is too little of.
  virtual Result<std::byte*> allocate(std::int32_t rank, std::int64_t bytes) = 0;
  // Zeroed memory of the host, alive as long: what to_host and from_host copy to and from.
  virtual Result<std::byte*> allocate_host(std::int32_t rank, std::int64_t bytes) = 0;
  // These copy between the caller's memory and either of the two.
  virtual void write(std::byte* to, const void* from, std::int64_t bytes) = 0;
  virtual void read(void* to, const std::byte* from, std::int64_t bytes) = 0;

  // --- order -----------------------------------------------------------------
  virtual void begin_step() {}
  virtual void begin(Lane, OpId, std::span<const OpId> /*waits, of this rank*/) {}
  // Comes before begin: the lane waits until that op of its rank, which was issued, has begun.
  virtual void begin_behind(Lane, OpId /*begun*/) {}
  virtual void end(Lane, OpId) {}
  // Between begin and end of an op: what was issued on `lane` so far happens before what is issued
  // on `after` from now on. Two tracks of a lane have no other order.
  virtual void order(Lane /*lane*/, Lane /*after*/) {}
  // Comes between begin and end of a compute op whose body meets no other rank and does the same in
  // every step. True: the op's CUDA graph was launched, and the caller leaves the body out. False:
  // the caller issues the body, which may be captured.
  virtual bool launch_graph(Lane, OpId) { return false; }
  // Comes before a step in which such ops do something else: their graphs hold no longer.
  virtual void forget_graphs() {}
  // Comes between the body of such an op and end: launches what was captured. True: CUDA graph
  // capture failed: nothing ran; issue the op again.
  virtual bool capture_failed(Lane, OpId) { return false; }
  // Waits until everything of the step has ended. Error: what the device says.
  virtual Result<> end_step() { return {}; }
  // When an op of the last step ran [ns since begin_step]; false: the interpreter's own clock is
  // right.
  virtual bool times(std::int32_t /*rank*/, OpId, Nanoseconds* /*start*/, Nanoseconds* /*end*/) {
    return false;
  }

  // --- data ------------------------------------------------------------------
  virtual void clear(Lane, void* to, std::int64_t bytes) = 0;
  // The caller's memory is read during the call (tokens) or written by the step's end (norms).
  virtual void fetch(Lane, void* to, const void* host, std::int64_t bytes) = 0;
  virtual void offload(Lane, void* host, const void* from, std::int64_t bytes) = 0;
  // `host` is memory of allocate_host.
  virtual void to_host(Lane, std::byte* host, const std::byte* from, std::int64_t bytes) = 0;
  virtual void from_host(Lane, std::byte* to, const std::byte* host, std::int64_t bytes) = 0;
  // Copies from one rank of this process to another; both lanes go on when it is done.
  virtual void transfer(Lane from_lane, const void* from, Lane to_lane, void* to,
                        std::int64_t bytes) = 0;
  virtual void exchange(const Exchange&) = 0;  // REQUIRES: all members are here
};

}  // namespace rehearse::exec
