// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/cuda_device.h"

#include <algorithm>
#include <cstring>

namespace rehearse::exec::cuda {
namespace {

std::size_t size(std::int64_t bytes) {
  return static_cast<std::size_t>(bytes);
}

Error no_memory(const std::string& what, std::int32_t rank, std::int64_t bytes, int error) {
  return {"no " + what + " rank " + std::to_string(rank) + ": " + std::to_string(bytes) +
          " bytes (" + cudaGetErrorString(static_cast<cudaError_t>(error)) + ")"};
}

}  // namespace

CudaDevice::CudaDevice(const CudaOptions& options, std::string name, std::int64_t widest_head)
    : options_(options),
      name_(std::move(name)),
      widest_head_(widest_head),
      graphs_(options.graphs),
      streams_(options.label),
      watchdog_(options.timeout_s, options.stuck) {}

CudaDevice::~CudaDevice() {
  if (healthy_) cudaDeviceSynchronize();
}

Result<std::byte*> CudaDevice::allocate(std::int32_t rank, std::int64_t bytes) {
  DeviceMemory memory;
  const int error = memory.reserve(std::max<std::int64_t>(bytes, 1));
  if (error != 0) return no_memory("memory on the GPU for the arena of", rank, bytes, error);
  std::byte* const data = memory.data();
  streams_.check(cudaMemset(data, 0, size(bytes)), "cudaMemset");
  streams_.check(cudaStreamSynchronize(cudaStreamLegacy), "cudaMemset");
  if (arenas_.contains(rank)) {
    more_.push_back(std::move(memory));  // the rank has its arena and lanes
  } else {
    streams_.add_rank(rank);
    arenas_[rank] = std::move(memory);
  }
  if (!streams_.error().empty()) return Error{streams_.error()};
  return data;
}

Result<std::byte*> CudaDevice::allocate_host(std::int32_t rank, std::int64_t bytes) {
  PinnedMemory memory;
  const int error = memory.reserve(std::max<std::int64_t>(bytes, 1));
  if (error != 0) return no_memory("pinned memory on the host for", rank, bytes, error);
  std::memset(memory.data(), 0, size(bytes));
  return hosts_.emplace_back(std::move(memory)).data();
}

void CudaDevice::write(std::byte* to, const void* from, std::int64_t bytes) {
  streams_.check(write_now(to, from, bytes), "cudaMemcpy");
}

void CudaDevice::read(void* to, const std::byte* from, std::int64_t bytes) {
  streams_.check(cudaMemcpy(to, from, size(bytes), cudaMemcpyDefault), "cudaMemcpy");
}

void CudaDevice::begin_step() {
  graphs_.begin_step();
  streams_.begin_step();
  watchdog_.begin([this](double seconds) { return streams_.late(seconds); });
}

bool CudaDevice::launch_graph(Lane lane, OpId op) {
  if (!streams_.error().empty()) return false;  // the step has failed
  const bool launched = graphs_.launch(lane.rank, op, stream(lane));
  if (!launched) say_without_graph(op);
  return launched;
}

bool CudaDevice::capture_failed(Lane lane, OpId op) {
  if (!graphs_.captures(lane.rank, op)) return false;
  const bool launched = graphs_.end_capture(stream(lane), streams_.forget_error());
  if (!launched) say_without_graph(op);
  return !launched;
}

// It is said once, for the first op for which there is a reason.
void CudaDevice::say_without_graph(OpId op) {
  if (said_without_graph_ || graphs_.failure().empty()) return;
  said_without_graph_ = true;
  if (options_.warn) {
    options_.warn("no CUDA graph of " + options_.label(op) + ", which is issued kernel by " +
                  "kernel: " + graphs_.failure());
  }
}

Result<> CudaDevice::end_step() {
  const Result<> finished = streams_.finish([this](bool more) {
    if (more) watchdog_.progressed();
    return watchdog_.failure();
  });
  healthy_ = static_cast<bool>(finished);
  if (!finished) {
    watchdog_.fail(finished.error().message);
    return finished;
  }
  watchdog_.end();
  buffers_.end_step();
  for (const auto& [host, staged] : offloads_)
    std::memcpy(host, staged.first->data(), size(staged.second));
  offloads_.clear();
  return {};
}

void CudaDevice::clear(Lane lane, void* to, std::int64_t bytes) {
  streams_.check(cudaMemsetAsync(to, 0, size(bytes), stream(lane)), "clear");
}

void CudaDevice::fetch(Lane lane, void* to, const void* host, std::int64_t bytes) {
  PinnedMemory& staged = pinned(to, bytes);
  std::memcpy(staged.data(), host, size(bytes));
  streams_.check(
      cudaMemcpyAsync(to, staged.data(), size(bytes), cudaMemcpyHostToDevice, stream(lane)),
      "fetch");
}

void CudaDevice::offload(Lane lane, void* host, const void* from, std::int64_t bytes) {
  PinnedMemory& staged = pinned(host, bytes);
  offloads_.insert_or_assign(host, std::pair{&staged, bytes});
  streams_.check(
      cudaMemcpyAsync(staged.data(), from, size(bytes), cudaMemcpyDeviceToHost, stream(lane)),
      "offload");
}

void CudaDevice::to_host(Lane lane, std::byte* host, const std::byte* from, std::int64_t bytes) {
  streams_.check(cudaMemcpyAsync(host, from, size(bytes), cudaMemcpyDeviceToHost, stream(lane)),
                 "copy to the host");
}

void CudaDevice::from_host(Lane lane, std::byte* to, const std::byte* host, std::int64_t bytes) {
  streams_.check(cudaMemcpyAsync(to, host, size(bytes), cudaMemcpyHostToDevice, stream(lane)),
                 "copy from the host");
}

void CudaDevice::transfer(Lane from_lane, const void* from, Lane to_lane, void* to,
                          std::int64_t bytes) {
  streams_.order(from_lane, to_lane);
  copy(to_lane, to, from, bytes);
  streams_.order(to_lane, from_lane);
}

void CudaDevice::copy(Lane lane, void* to, const void* from, std::int64_t bytes) {
  if (to == from) return;
  streams_.check(cudaMemcpyAsync(to, from, size(bytes), cudaMemcpyDeviceToDevice, stream(lane)),
                 "copy");
}

PinnedMemory& CudaDevice::pinned(const void* key, std::int64_t bytes) {
  std::unique_ptr<PinnedMemory>& memory = pinned_[key];
  if (memory == nullptr) memory = std::make_unique<PinnedMemory>();
  streams_.check(memory->reserve(bytes), "cudaMallocHost");
  return *memory;
}

std::int64_t CudaDevice::held_bytes() const {
  std::int64_t bytes = buffers_.bytes();
  for (const auto& [rank, memory] : arenas_) bytes += memory.bytes();
  for (const DeviceMemory& memory : more_) bytes += memory.bytes();
  return bytes;
}

}  // namespace rehearse::exec::cuda
