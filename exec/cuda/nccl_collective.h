// SPDX-License-Identifier: Apache-2.0
// A collective as NCCL's calls, from one member.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstddef>
#include <cstdint>

#include "exec/backend/exchange.h"

namespace rehearse::exec::cuda {

struct NcclCollective {
  OpKind kind{};
  bool maximum = false;  // AllReduce: largest instead of sum
  ncclDataType_t type{};
  std::size_t part = 0, whole = 0;  // elements of a member's part, of all
  std::int64_t pitch = 0;           // from a part to the next one [B]
  // The parts do not lie one behind the other (Exchange::pitch). Then a gather is a broadcast of
  // every member's part and a sum a reduction to every member, as one group: a link carries what it
  // would of the parts together, and nothing is packed. NCCL takes the group as one kernel (2.28.9:
  // enqueue.cc fills a plan with tasks; from 2.29.2 on src/scheduler/allgatherv_sched.cc does it
  // for broadcasts).
  bool apart = false;
  int root = 0, members = 1, me = 0;
  std::byte *in = nullptr, *out = nullptr;  // as Contribution has them
};

// Enqueues it. ncclInvalidArgument: NCCL has nothing for the kind.
ncclResult_t issue(const NcclCollective& c, ncclComm_t comm, cudaStream_t stream);

}  // namespace rehearse::exec::cuda
