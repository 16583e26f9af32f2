// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/nccl_collective.h"

namespace rehearse::exec::cuda {
namespace {

// Calls that NCCL takes as one.
class Grouped {
 public:
  Grouped() : first_(ncclGroupStart()) {}
  void add(ncclResult_t result) {
    if (first_ == ncclSuccess || first_ == ncclInProgress) first_ = result;
  }
  ncclResult_t end() {
    add(ncclGroupEnd());
    return first_;
  }

 private:
  ncclResult_t first_;
};

}  // namespace

ncclResult_t issue(const NcclCollective& c, ncclComm_t comm, cudaStream_t stream) {
  const auto at = [&](std::byte* array, int m) { return array + m * c.pitch; };
  const bool in_place = c.in == c.out;
  switch (c.kind) {
    case OpKind::AllReduce:
      return ncclAllReduce(c.in, c.out, c.whole, c.type, c.maximum ? ncclMax : ncclSum, comm,
                           stream);
    case OpKind::ReduceScatter: {
      std::byte* const own = in_place ? at(c.out, c.me) : c.out;
      if (!c.apart) return ncclReduceScatter(c.in, own, c.part, c.type, ncclSum, comm, stream);
      Grouped grouped;
      for (int m = 0; m < c.members; ++m) {
        std::byte* const from = at(c.in, m);
        grouped.add(
            ncclReduce(from, m == c.me ? own : from, c.part, c.type, ncclSum, m, comm, stream));
      }
      return grouped.end();
    }
    case OpKind::AllGather:
    case OpKind::Unshard: {
      std::byte* const own = in_place ? at(c.in, c.me) : c.in;
      if (!c.apart) return ncclAllGather(own, c.out, c.part, c.type, comm, stream);
      Grouped grouped;
      for (int m = 0; m < c.members; ++m) {
        std::byte* const to = at(c.out, m);
        grouped.add(ncclBroadcast(m == c.me ? own : to, to, c.part, c.type, m, comm, stream));
      }
      return grouped.end();
    }
    case OpKind::Broadcast:
      return ncclBroadcast(c.in, c.out, c.whole, c.type, c.root, comm, stream);
    case OpKind::Reduce:
      return ncclReduce(c.in, c.out, c.whole, c.type, ncclSum, c.root, comm, stream);
    case OpKind::Gather:
    case OpKind::Scatter:
    case OpKind::AllToAll: {
      Grouped grouped;
      const bool gathers = c.kind == OpKind::Gather, scatters = c.kind == OpKind::Scatter;
      for (int m = 0; m < c.members; ++m) {
        const bool sends = gathers ? m == c.root : !scatters || c.me == c.root;
        const bool receives = scatters ? m == c.root : !gathers || c.me == c.root;
        if (sends) {
          grouped.add(ncclSend(gathers ? c.in : at(c.in, m), c.part, c.type, m, comm, stream));
        }
        if (receives) {
          grouped.add(ncclRecv(scatters ? c.out : at(c.out, m), c.part, c.type, m, comm, stream));
        }
      }
      return grouped.end();
    }
    case OpKind::Send: {  // round the ring
      Grouped grouped;
      grouped.add(ncclSend(c.in, c.whole, c.type, (c.me + 1) % c.members, comm, stream));
      grouped.add(
          ncclRecv(c.out, c.whole, c.type, (c.me + c.members - 1) % c.members, comm, stream));
      return grouped.end();
    }
    default:
      return ncclInvalidArgument;
  }
}

}  // namespace rehearse::exec::cuda
