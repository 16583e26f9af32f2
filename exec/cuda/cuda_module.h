// SPDX-License-Identifier: Apache-2.0
// The CUDA + NCCL backend: a module (schedules/base/installed/module.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "exec/backend/backend.h"
#include "exec/backend/communicator.h"
#include "exec/backend/gpu_facts.h"
#include "exec/step/exchanges/meetings.h"
#include "schedules/base/result.h"

namespace rehearse::exec {

struct CudaOptions {
  std::int32_t device = 0;                   // the process of this machine, LOCAL_RANK
  ElementType type = ElementType::BFloat16;  // of activations and parameters
  double timeout_s = 600;                    // that an op may take
  bool graphs = true;                        // of ops that do the same in every step
  // Which engine attention in 16 bits runs on. "mma", "wgmma", "cudnn": that one; "ours": the
  // faster of the first two; "say": the fastest of all, and every choice is said; empty: the
  // fastest. Nothing else.
  std::string attention;
  std::function<std::string(OpId)> label;  // of an op, for errors
  // Says once what goes on, but slower than it could; may be null.
  std::function<void(const std::string&)> warn;
  // The run has failed so, and its host does not come back from a call: reports it and ends the
  // process. From another thread; may be null.
  std::function<void(const std::string&)> stuck;
};

// What NCCL needs to know of the run. Every process holds the ranks [process * n, (process + 1) *
// n) with n = 1: NCCL wants one process per rank.
struct NcclOptions {
  std::int32_t process = 0, processes = 1;
  const GroupInstances* groups = nullptr;                    // who meets whom, over all ranks
  std::vector<std::pair<std::int32_t, std::int32_t>> edges;  // from a rank to a rank: transfers
  std::int64_t largest_elements = 0;                         // of what a group exchanges at a time
  std::vector<Meeting> meetings;  // collectives that are to be connected, in this order
  // Gives process 0's bytes to every process (rendezvous of the id). Error: a partner is gone.
  std::function<Result<std::string>(const std::string& mine)> share;
};

struct CudaModule {
  static constexpr const char* kName = "cuda";
  static constexpr const char* kMissing =
      "no backend for it here: install rehearse-cuda, or build where its toolkit and NCCL are";
  static constexpr int kVersion = 8;
  int version = 0;
  // Devices that can be used. Error: "no CUDA device", with the driver's reason.
  Result<std::int32_t> (*devices)() = nullptr;
  Result<Backend> (*make_backend)(const CudaOptions&) = nullptr;
  // REQUIRES: `device` came from make_backend and outlives the communicator.
  Result<std::unique_ptr<Communicator>> (*make_nccl)(Device& device, const NcclOptions&) = nullptr;
  // REQUIRES: `device` came from make_backend.
  Result<GpuFacts> (*inspect)(const Device& device) = nullptr;
  std::string (*versions)() = nullptr;  // "CUDA 13.0, NCCL 2.28.9, cuDNN 9.19.0"
};

// The module is installed: CUDA and NCCL were there when it was built. Loads nothing.
bool has_cuda_module();
// An NVIDIA driver is there. Loads nothing: half a gigabyte of libraries to learn that is too much.
bool has_cuda_driver();
// Error: one line that begins with CUDA: there is none here, or which library it misses.
Result<const CudaModule*> load_cuda_module();

}  // namespace rehearse::exec
