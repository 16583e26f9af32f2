// SPDX-License-Identifier: Apache-2.0
// Measured tables of one machine: what `rehearse calibrate` writes and a cluster file may name.
// The format is described in docs/add_a_cluster.md. Points only; interpolation is compute_cost's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "schedules/base/result.h"
#include "schedules/scenario/plan.h"

namespace rehearse::sim {

// C[m,n] (+)= A[m,k] B[k,n], `batch` times. One of time_us and fraction_of_peak is given (> 0);
// the other is 0 until `read_cluster` fills it in from the GPU's peak.
struct GemmPoint {
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
  ComputeType type = ComputeType::Bf16;
  bool accumulate = false;  // into an fp32 output that is read first
  std::string layout;       // "TN", "NN", "NT"; empty: not said
  double time_us = 0, fraction_of_peak = 0;
};

struct MemoryBoundPoint {
  std::string op;          // docs/add_a_cluster.md lists the words
  std::int64_t bytes = 0;  // read and written
  bool backward = false;
  double time_us = 0;
};

struct AttentionPoint {
  AttentionKernel kernel = AttentionKernel::Flash2;
  bool backward = false, causal = true;
  bool part = false;  // of one whose keys come in parts: added to what others gave
  bool half = false;  // half of the queries or of the keys take part, as in a block of a ring
  std::int64_t batch = 1, heads = 0, kv_heads = 0, sequence = 0, head_dim = 0;
  double time_us = 0;
};

enum class CollectiveOp : std::uint8_t {
  AllReduce,
  AllGather,
  ReduceScatter,
  AllToAll,
  Broadcast,
  Reduce,
  SendRecv,
};
// How ranks reach each other that a CPU performs: threads of one process, or each in its own.
enum class ProcessLink : std::uint8_t { None, Memory, Tcp };

struct CollectivePoint {
  CollectiveOp op = CollectiveOp::AllReduce;
  std::int32_t ranks = 2, nodes = 1;
  std::int64_t bytes = 0;  // the whole array, as nccl-tests counts (send/recv: the message)
  double time_us = 0;
  ProcessLink between_processes = ProcessLink::None;
  bool apart = false;  // the sum lies beside what was summed, not over it
};

enum class CopyDirection : std::uint8_t { HostToDevice, DeviceToHost, DeviceToDevice };
struct CopyPoint {
  CopyDirection direction{};
  std::int64_t bytes = 0;
  double time_us = 0;
  bool drives = false;  // of a CPU: the other end is the file of what is offloaded to drives
};

struct Calibration {
  std::string path, id;
  std::vector<GemmPoint> gemm;
  std::vector<MemoryBoundPoint> memory_bound;
  std::vector<AttentionPoint> attention;
  std::vector<CollectivePoint> collectives;
  std::vector<CopyPoint> copies;
  std::optional<double> launch_us;  // host time to issue one op
  // Scalars with a physical meaning, by name (open list; compute_cost says which it reads).
  std::vector<std::pair<std::string, double>> scalars;

  std::optional<double> scalar(std::string_view name) const;  // empty: the file has none
  // How far equal measurements lay apart while it was made: a prediction from it is not nearer than
  // that. 0 where the file does not say. `together`: with cores that compute at once.
  double scatter(bool together) const;
};
// Scatter beyond this makes predictions doubtful, which is said.
inline constexpr double kDoubtfulScatter = 0.2;

Result<Calibration> read_calibration(const std::string& path);

}  // namespace rehearse::sim
