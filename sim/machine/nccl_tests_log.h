// SPDX-License-Identifier: Apache-2.0
// What a program of nccl-tests (or rccl-tests) printed: the times of one collective, and the GPUs
// that took part. A file may hold several runs.
//
//   # Collective test starting: all_reduce_perf      (or a command line that names the program)
//   #  Rank  0 Group  0 Pid 6899 on node-1 device  0 [0000:04:00] NVIDIA H100 80GB HBM3
//   #       size         count      type   redop    root     time   algbw   busbw #wrong ...
//     1048576        262144     float     sum      -1    203.2    5.16    9.68      0 ...
//
// The time is the first one, out of place, in microseconds. That a table is of the collective that
// is named, its bus bandwidth proves: NCCL's factor of the collective times the algorithm's
// bandwidth (NVIDIA/nccl-tests doc/PERFORMANCE.md). A table that nobody names is an all-reduce
// where that factor says so, else refused.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "schedules/base/result.h"
#include "sim/cluster/calibration.h"

namespace rehearse::sim {

struct NcclTestsLog {
  std::vector<CollectivePoint> points;
  std::vector<std::string> gpu_names;  // each once
  std::int32_t gpus_per_node = 0;      // of the ranks, most on one host; 0: no rank was printed
};

// Errors: "PATH:LINE: what is wrong": no table, no ranks, a collective that is not named, a factor
// that is another collective's.
Result<NcclTestsLog> read_nccl_tests_log(std::string_view text, const std::string& path);

}  // namespace rehearse::sim
