// SPDX-License-Identifier: Apache-2.0
// A DOUBLE of a CUDA device, for tests of host logic without a GPU: streams are threads, memory is
// the host's, kernels are the CPU's. It proves order (streams, events, who waits for whom), never
// speed and nothing about kernels. Stands in for libcudart, libnccl and the kernels at link time.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "tests/cuda_double/touched.h"

namespace rehearse::cuda_double {

// Runs `work` when everything that was put on the stream before has ended. Returns a cudaError_t:
// only a planted fault is one.
int enqueue(cudaStream_t stream, std::function<void()> work);
// The same of work whose memory is known, for unordered().
int enqueue(cudaStream_t stream, Touched touched, std::function<void()> work);

// The first two pieces of work since the last call that touched the same memory, one of them
// writing, on streams that no event and no wait of the host had ordered; empty: all were ordered.
// It follows from what was issued alone, however the streams happened to run.
std::string unordered();

// Does a kernel reach all of it: is it memory of the device, or pinned?
bool can_reach(const void* memory, std::size_t bytes);

// From now on every piece of work is delayed by up to so many microseconds, drawn from a seed: what
// is not ordered by events comes out of order.
void shake(std::uint64_t seed, int microseconds);

// Graphs that were captured, and launches of them, since the program began.
struct GraphCounts {
  std::int64_t captured = 0, launched = 0;
};
GraphCounts graphs();

// Of NCCL's double: what the communicators of this thread have connected since it began.
int connections();
// Collectives, sends and receives of communicators that are not blocking, for each of which NCCL
// begins a thread (2.23 to 2.30: group.cc), since the program began.
int calls_in_threads();

// Work that a stream holds before the host blocks in what it enqueues next; 1,024 as a GPU's does.
void set_queue_depth(std::size_t depth);

// Called by a piece of work: by its stream's clock, which events read, it took so much longer.
void spend(double seconds);

// ---- faults ----
// From now on kernels and copies take their turns and do nothing: where a fault is planted in their
// order, what they would read is anything.
void idle(bool now);
// From now on every `nth` capture (from the first on) fails so; 0: none.
enum class CaptureFault : std::uint8_t { Begin, Inside, End, Instantiate, Launch };
void break_captures(int nth, CaptureFault fault = CaptureFault::End);
// From now on streams cannot be made, or asked.
enum class StreamFault : std::uint8_t { None, Create, Query };
void break_streams(StreamFault fault);
// No memory is left on the device: allocations fail.
void set_full(bool now);
// How many devices there are; 0: as on a machine without a driver (error 35).
void set_devices(int count);
// For which CUDA the driver is, as 12040 for 12.4; 0: there is none.
void set_driver(int version);
// What a block may have of shared memory [B].
void set_shared_bytes(std::size_t bytes);
// The next allocation, of the device or of pinned memory, gets this, as an allocator hands out
// again what others have given back. REQUIRES: aligned_alloc(256) of as much; the double frees it.
void hand_out(void* memory);

}  // namespace rehearse::cuda_double
