// SPDX-License-Identifier: Apache-2.0
// Measures this machine: the kernels of a backend; on a CPU what threads lose to each other, what
// the scheduler takes, collectives and copies among ranks of one process and of several; on a GPU
// copies to and from the host, what issuing a kernel costs, and NCCL's collectives where there are
// several processes.
//
// The tables are for the simulator, which reads them from a file (calibration_file.h); nothing here
// knows how they are used. Data are random; what a step reads cold (weights, saved activations) is
// cold here. One thread, or one stream, unless said.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "exec/backend/backend.h"
#include "exec/backend/communicator.h"
#include "exec/backend/gpu_facts.h"
#include "exec/step/exchanges/group_instances.h"
#include "schedules/base/result.h"
#include "schedules/body/body.h"
#include "schedules/scenario/scenario.h"

namespace rehearse::exec {

// C[m,n] (+)= A[m,k] B[k,n], as a body's node counts it; a weight gradient with its bias' sums.
struct GemmTime {
  GemmRole role{};
  std::int64_t m = 0, n = 0, k = 0;
  double us = 0;
  std::int64_t batch = 1;  // experts, each with a product of this size
};
struct KernelTime {
  std::string_view op;  // a word of the calibration's memory_bound list
  bool backward = false;
  std::int64_t bytes = 0;  // read and written, as a body's node counts them
  double us = 0;
};
struct AttentionTime {
  // Masked: the whole, or the part of its own keys. Without a mask: a part with as many queries as
  // keys. Parts are added to what others gave, in fp32.
  bool backward = false, causal = true, part = false;
  std::int64_t heads = 0, sequence = 0, head_dim = 0;
  double us = 0;
  std::int64_t samples = 1;
  std::int64_t value_dim = 0;  // of a head's values; 0: head_dim
  std::int64_t values() const { return value_dim > 0 ? value_dim : head_dim; }
  // Of a block that came round a ring: half of the queries, or of the keys, take part; their mean.
  bool half = false;
};
struct CopyTime {
  bool to_host = false;
  std::int64_t bytes = 0;
  double us = 0;
  bool drives = false;  // to the file of what is offloaded there, or from it
};
struct ExchangeTime {
  OpKind kind{};  // a collective; Send: a transfer
  std::int32_t ranks = 2;
  std::int64_t bytes = 0;  // the whole array
  double us = 0;
  // How they reach each other: in one process, or each in its own.
  enum class Way : std::uint8_t { Process, Memory, Tcp } way = Way::Process;
  bool apart = false;  // a sum that is written beside what was summed, not over it
};

struct MachineTables {
  std::string cpu, instruction_set, date;  // date: of the measurement, UTC
  ElementType type = ElementType::Float32;
  std::optional<GpuFacts> gpu;  // its kernels, where there is one
  std::int32_t cores = 1;       // that this process may use
  std::int64_t memory_bytes = 0;
  std::vector<GemmTime> gemm;
  std::vector<GemmTime> grouped;  // of several experts at once, on a GPU
  std::vector<KernelTime> kernels;
  std::vector<AttentionTime> attention;
  std::vector<ExchangeTime> exchanges;
  std::vector<CopyTime> copies;  // to and from a GPU, or the file that stands for drives
  std::string no_drives;         // why that file was not measured; empty: it was
  // Time of each while every core computes, over its time alone.
  double products_together = 1, attention_together = 1, kernels_together = 1;
  double products_in_bf16 = 1;  // time of a product in bf16 over the same one's in fp32
  double op_us = 0;             // of the scheduler, per op of a schedule
  double meeting_us = 0;        // a collective: from the last rank's arrival until all go on
  double handover_us = 0;       // a transfer: from both ends' arrival until the receiver goes on
  double launch_us = 0;         // of the host, to issue a kernel to a GPU
  // How much slower a GPU's products are beside a collective; empty: there was none beside.
  std::optional<double> beside_collective;
  double noise = 0;  // median spread of a point's repetitions (quartiles over median)
  // One product, measured between all else: its slowest rounds over its fastest, less 1 (of ten
  // rounds the second of each). And of what cores lose to each other, all turns.
  double product_scatter = 0, together_scatter = 0;
  double seconds = 0;  // that it took
  int left_out = 0;    // exchanges among threads for which there was no memory
};

// What is measured: sizes of a kind go from the first to the last by a factor.
struct CalibrateSizes {
  struct Range {
    std::int64_t first = 1, last = 1, factor = 2;
  };
  std::vector<std::int64_t> tokens, features;    // the grid of products
  std::int64_t experts = 8;                      // of grouped products
  std::int64_t columns = 256, vocabulary = 256;  // of memory-bound kernels; of those over logits
  Range bytes;                                   // of memory-bound kernels
  Range sequence;                                // of attention
  std::int64_t heads = 2, attention_tokens = 0;  // 0: one sample
  Range exchanged;                               // floats of a collective
  Range copied;                                  // bytes, to and from a GPU
  std::int64_t cold_bytes = 0;                   // more than the caches hold
  int repetitions = 1, scheduler_steps = 0;
  double seconds = 0, together_seconds = 0;  // of a point; of threads that compute together
  static CalibrateSizes cpu(bool quick), gpu(bool quick);
};

struct CalibrateOptions {
  CalibrateSizes sizes;
  std::vector<Scenario> scenarios;          // also measure the very shapes of these
  ElementType type = ElementType::Float32;  // that the backend computes in
  std::string offload_dir;                  // of the file for offloaded values; OffloadFile::open
  // NCCL: every process calibrates, in step; `groups` has one group per number of ranks.
  Communicator* communicator = nullptr;
  const GroupInstances* groups = nullptr;
  std::function<void(std::string_view what, double share)> progress;
};

// REQUIRES: a backend without arenas; nothing else runs on the machine, else the tables say so
// (`noise`). Error: what the device or NCCL says.
Result<MachineTables> calibrate(const Backend& backend, const CalibrateOptions& options);

}  // namespace rehearse::exec
