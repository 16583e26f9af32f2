// SPDX-License-Identifier: Apache-2.0
// Memory that frees itself: on the device, and pinned on the host.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace rehearse::exec::cuda {

// Grows by reserve(), which drops what was in it. Moves, does not copy.
template <cudaError_t (*Allocate)(void**, std::size_t), cudaError_t (*Release)(void*)>
class Memory {
 public:
  Memory() = default;
  Memory(Memory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Memory& operator=(Memory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Memory() {
    if (data_ != nullptr) Release(data_);
  }
  // At least so many. Returns a cudaError_t. Freeing waits for the device: nothing still uses it.
  int reserve(std::int64_t bytes) {
    if (bytes <= bytes_) return 0;
    if (data_ != nullptr) Release(data_);
    data_ = nullptr;
    bytes_ = 0;
    void* made = nullptr;
    const cudaError_t error = Allocate(&made, static_cast<std::size_t>(bytes));
    if (error != cudaSuccess) return error;
    data_ = static_cast<std::byte*>(made);
    bytes_ = bytes;
    return 0;
  }
  std::byte* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

inline cudaError_t allocate_device(void** to, std::size_t bytes) {
  return cudaMalloc(to, bytes);
}
inline cudaError_t allocate_pinned(void** to, std::size_t bytes) {
  return cudaMallocHost(to, bytes);
}

// Copies from any memory of the host, and has done so when it returns. cudaMemcpy of memory that is
// not pinned may only have staged it by then, and our streams, which do not block, do not wait.
inline cudaError_t write_now(void* to, const void* from, std::int64_t bytes) {
  // cudaMemcpyDefault: an address says whether it is the device's.
  const cudaError_t copied =
      cudaMemcpy(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault);
  return copied == cudaSuccess ? cudaStreamSynchronize(cudaStreamLegacy) : copied;
}

using DeviceMemory = Memory<allocate_device, cudaFree>;
using PinnedMemory = Memory<allocate_pinned, cudaFreeHost>;

}  // namespace rehearse::exec::cuda
