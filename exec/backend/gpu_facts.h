// SPDX-License-Identifier: Apache-2.0
// What is known of a GPU beside its speed.
#pragma once

#include <cstdint>
#include <string>

namespace rehearse::exec {

struct GraphFacts {  // CUDA graphs of a run's ops; all are made in its second step
  std::int64_t count = 0, nodes = 0;
  std::int64_t nanoseconds = 0;  // of the host, to instantiate them
  std::int64_t bytes = 0;        // of the device's memory that went in that step
};

struct GpuFacts {
  std::string name;             // "NVIDIA H200"
  std::int32_t capability = 0;  // 90
  std::int32_t sm_count = 0;
  std::int64_t memory_bytes = 0, l2_bytes = 0;
  double sm_clock_mhz = 0, memory_clock_mhz = 0;  // the highest; what it ran at is not known here
  std::string versions;                           // of driver and libraries
  std::int64_t free_bytes = 0;                    // now
  std::int64_t communicators_bytes = 0;           // of all communicators, when they had connected
  GraphFacts graphs;
  // Taken now by nobody's arenas, buffers, communicators or graphs: the context, its modules, other
  // programs.
  std::int64_t context_bytes = 0;
  std::int64_t communicator_bytes = 0;  // of one communicator; 0: none was made
};

}  // namespace rehearse::exec
