// SPDX-License-Identifier: Apache-2.0
// An NVIDIA GPU: every call enqueues on its lane's stream and returns.
#pragma once

#include <cuda_runtime_api.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "exec/cuda/buffers.h"
#include "exec/cuda/calls/kernels.h"
#include "exec/cuda/device_memory.h"
#include "exec/cuda/graphs.h"
#include "exec/cuda/make.h"
#include "exec/cuda/streams.h"

namespace rehearse::exec::cuda {

class CudaDevice final : public Device, public StreamSource {
 public:
  // widest_head: of attention (kernels.h).
  CudaDevice(const CudaOptions& options, std::string name, std::int64_t widest_head);
  ~CudaDevice() override;

  std::string_view name() const override { return name_; }
  bool asynchronous() const override { return true; }
  std::int64_t widest_head() const override { return widest_head_; }
  Result<std::byte*> allocate(std::int32_t rank, std::int64_t bytes) override;
  Result<std::byte*> allocate_host(std::int32_t rank, std::int64_t bytes) override;
  void write(std::byte* to, const void* from, std::int64_t bytes) override;
  void read(void* to, const std::byte* from, std::int64_t bytes) override;

  void begin_step() override;
  void begin(Lane lane, OpId op, std::span<const OpId> waits) override {
    streams_.begin(lane, op, waits);
    progressed();
  }
  void begin_behind(Lane lane, OpId begun) override { streams_.begin_behind(lane, begun); }
  void end(Lane lane, OpId op) override { streams_.end(lane, op); }
  void order(Lane lane, Lane after) override { streams_.order(lane, after); }
  bool launch_graph(Lane lane, OpId op) override;
  bool capture_failed(Lane lane, OpId op) override;
  void forget_graphs() override { graphs_.forget(); }
  Result<> end_step() override;
  bool times(std::int32_t rank, OpId op, Nanoseconds* start, Nanoseconds* end) override {
    streams_.times(rank, op, start, end);
    return true;
  }

  void clear(Lane lane, void* to, std::int64_t bytes) override;
  void fetch(Lane lane, void* to, const void* host, std::int64_t bytes) override;
  void offload(Lane lane, void* host, const void* from, std::int64_t bytes) override;
  void to_host(Lane lane, std::byte* host, const std::byte* from, std::int64_t bytes) override;
  void from_host(Lane lane, std::byte* to, const std::byte* host, std::int64_t bytes) override;
  void transfer(Lane from_lane, const void* from, Lane to_lane, void* to,
                std::int64_t bytes) override;
  void exchange(const Exchange& exchange) override;  // exchange.cc

  // --- StreamSource: what the NCCL communicator enqueues on ------------------
  cudaStream_t stream(Lane lane) override { return streams_.of(lane); }
  void check(int error, std::string_view what) override { streams_.check(error, what); }
  std::int64_t held_bytes() const override;
  void taken_by_communicators(std::int64_t bytes) override { communicators_bytes_ = bytes; }
  std::int64_t communicators_bytes() const override { return communicators_bytes_; }
  bool healthy() const override { return healthy_; }
  Watchdog& watchdog() override { return watchdog_; }
  void progressed() override {
    streams_.look();
    watchdog_.progressed();
  }
  const GraphFacts& graphs() const override { return graphs_.facts(); }

  // --- for the kernels ---------------------------------------------------------
  Buffers& buffers() { return buffers_; }
  std::byte* arena(std::int32_t rank) { return arenas_.at(rank).data(); }
  void copy(Lane lane, void* to, const void* from, std::int64_t bytes);  // nothing if to == from

 private:
  void say_without_graph(OpId op);
  PinnedMemory& pinned(const void* key, std::int64_t bytes);

  CudaOptions options_;
  std::string name_;
  std::int64_t widest_head_;
  bool healthy_ = true;
  std::int64_t communicators_bytes_ = 0;
  std::map<std::int32_t, DeviceMemory> arenas_;  // by rank
  std::vector<DeviceMemory> more_;               // of ranks that were given memory again
  std::vector<PinnedMemory> hosts_;              // what the plan keeps on the host
  std::map<const void*, std::unique_ptr<PinnedMemory>> pinned_;
  // host address: what arrives there at the end of this step, and how much
  std::map<void*, std::pair<PinnedMemory*, std::int64_t>> offloads_;
  Graphs graphs_;
  bool said_without_graph_ = false;
  Buffers buffers_{streams_};
  Streams streams_;    // goes before: after a failed step its work may still use all of the above
  Watchdog watchdog_;  // goes first: it asks the streams
};

}  // namespace rehearse::exec::cuda
