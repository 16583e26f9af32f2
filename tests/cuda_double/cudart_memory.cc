// SPDX-License-Identifier: Apache-2.0
// The part of the CUDA runtime that exec/cuda calls: memory, and copies.
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "tests/cuda_double/cudart_double.h"
#include "tests/cuda_double/device.h"
#include "tests/cuda_double/order_check.h"

using rehearse::cuda_double::Touched;

namespace {

constexpr size_t kContext = size_t{300} << 20;  // that the double says it needs for itself
std::atomic<size_t> allocated{0}, pooled{0};    // of what is allocated: freed, and kept by the pool
std::atomic<bool> full{false};
std::mutex sizes_mutex;
std::map<const void*, size_t> sizes, pinned;  // of the device and of the host, by where they begin
std::atomic<void*> planted_memory{nullptr};   // the next allocation's

bool inside(const std::map<const void*, size_t>& blocks, const void* at, size_t bytes) {
  auto block = blocks.upper_bound(at);
  if (block == blocks.begin()) return false;
  --block;
  const auto offset =
      static_cast<size_t>(static_cast<const char*>(at) - static_cast<const char*>(block->first));
  return offset + bytes <= block->second;
}

// What the runtime would refuse, and what it would do while the host waits: an asynchronous copy
// goes where its kind says, and what of it lies on the host is pinned.
bool as_said(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  const std::scoped_lock lock(sizes_mutex);
  const bool from_host = kind == cudaMemcpyHostToDevice, to_host = kind == cudaMemcpyDeviceToHost;
  return kind != cudaMemcpyDefault && inside(to_host ? pinned : sizes, to, bytes) &&
         inside(from_host ? pinned : sizes, from, bytes);
}

// From memory that is not pinned to the device?
bool is_staged(const void* to, const void* from, size_t bytes) {
  const std::scoped_lock lock(sizes_mutex);
  return inside(sizes, to, bytes) && !inside(sizes, from, bytes) && !inside(pinned, from, bytes);
}

// Memory that nothing of the double has touched; null: there is none.
void* fresh(size_t bytes) {
  void* memory = planted_memory.exchange(nullptr);
  if (memory == nullptr) memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (memory != nullptr) rehearse::cuda_double::forget(memory, bytes);
  return memory;
}

}  // namespace

namespace rehearse::cuda_double {

void count_allocated(std::size_t bytes) {
  allocated += bytes;
}
void count_freed(std::size_t bytes) {
  allocated -= bytes;
}
void trim_pool() {
  allocated -= pooled.exchange(0);
}

void set_full(bool now) {
  full = now;
}

void hand_out(void* memory) {
  planted_memory = memory;
}

bool can_reach(const void* memory, std::size_t bytes) {
  const std::scoped_lock lock(sizes_mutex);
  return bytes == 0 || inside(sizes, memory, bytes) || inside(pinned, memory, bytes);
}

}  // namespace rehearse::cuda_double

using rehearse::cuda_double::enqueue;
using rehearse::cuda_double::is_capturing;
using rehearse::cuda_double::legacy;
using rehearse::cuda_double::no_device;
using rehearse::cuda_double::put;

extern "C" {

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *total = size_t{1} << 40;
  *free = *total - allocated.load() - kContext;
  return no_device();
}
cudaError_t cudaMalloc(void** to, size_t bytes) {
  if (is_capturing()) return cudaErrorStreamCaptureUnsupported;
  if (full.load()) return cudaErrorMemoryAllocation;
  *to = fresh(bytes);
  if (*to == nullptr) return cudaErrorMemoryAllocation;
  // Nobody may rely on zeros; and what a host reads before its kernel has written shows: counts are
  // differences of numbers, here of a million and more.
  for (size_t i = 0; i < (bytes + 3) / 4; ++i) {
    static_cast<std::uint32_t*>(*to)[i] = static_cast<std::uint32_t>(i + 1) * 1'000'003U;
  }
  allocated += bytes;
  const std::scoped_lock lock(sizes_mutex);
  sizes[*to] = bytes;
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  cudaStreamSynchronize(cudaStreamLegacy);
  {
    const std::scoped_lock lock(sizes_mutex);
    allocated -= sizes[memory];
    rehearse::cuda_double::forget(memory, sizes[memory]);
    sizes.erase(memory);
  }
  std::free(memory);
  return cudaSuccess;
}
// The pool keeps what was freed until the host waits for a stream or the device, or trims it:
// events that are only asked do not give it back.
cudaError_t cudaMallocAsync(void** to, size_t bytes, cudaStream_t) {
  return cudaMalloc(to, bytes);
}
cudaError_t cudaFreeAsync(void* memory, cudaStream_t stream) {
  enqueue(stream, [=] {
    const size_t before = allocated.load();
    cudaFree(memory);
    const size_t bytes = before - allocated.load();
    allocated += bytes;
    pooled += bytes;
  });
  return cudaSuccess;
}
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int) {
  *pool = nullptr;
  return cudaSuccess;
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) {
  allocated -= pooled.exchange(0);
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** to, size_t bytes) {
  *to = fresh(bytes);
  if (*to == nullptr) return cudaErrorMemoryAllocation;
  const std::scoped_lock lock(sizes_mutex);
  pinned[*to] = bytes;
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) {
  {
    const std::scoped_lock lock(sizes_mutex);
    rehearse::cuda_double::forget(memory, pinned[memory]);
    pinned.erase(memory);
  }
  std::free(memory);
  return cudaSuccess;
}
// Returns before it is done, as a copy of what is not pinned does.
cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  put(legacy(), Touched("cudaMemset").writes(to, static_cast<std::int64_t>(bytes)),
      [=] { std::memset(to, value, bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  if (is_capturing()) return cudaErrorStreamCaptureUnsupported;
  if (is_staged(to, from, bytes)) {
    const auto* begin = static_cast<const char*>(from);
    put(legacy(), Touched("cudaMemcpy").writes(to, static_cast<std::int64_t>(bytes)),
        [to, staged = std::vector<char>(begin, begin + bytes)] {
          std::memcpy(to, staged.data(), staged.size());
        });
    return cudaSuccess;
  }
  cudaStreamSynchronize(cudaStreamLegacy);
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  enqueue(stream, Touched("memset").writes(to, static_cast<std::int64_t>(bytes)),
          [=] { std::memset(to, value, bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  if (!as_said(to, from, bytes, kind)) return cudaErrorInvalidValue;
  const auto size = static_cast<std::int64_t>(bytes);
  enqueue(stream, Touched("copy").reads(from, size).writes(to, size),
          [=] { std::memmove(to, from, bytes); });
  return cudaSuccess;
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind, cudaStream_t stream) {
  if (width > to_pitch || width > from_pitch) return cudaErrorInvalidValue;
  Touched rows("copy of columns");
  for (size_t row = 0; row < height; ++row) {
    rows.reads(static_cast<const char*>(from) + row * from_pitch, static_cast<std::int64_t>(width));
    rows.writes(static_cast<char*>(to) + row * to_pitch, static_cast<std::int64_t>(width));
  }
  enqueue(stream, std::move(rows), [=] {
    for (size_t row = 0; row < height; ++row) {
      std::memcpy(static_cast<char*>(to) + row * to_pitch,
                  static_cast<const char*>(from) + row * from_pitch, width);
    }
  });
  return cudaSuccess;
}

}  // extern "C"
