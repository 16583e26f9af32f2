// SPDX-License-Identifier: Apache-2.0
#include "schedules/ranks/crossing.h"

namespace rehearse {

Crossed crossed(OpKind kind, std::int64_t bytes, std::int32_t members, std::int32_t processes,
                std::int32_t from, std::int32_t to) {
  const std::int64_t part = bytes / members, slice = (bytes + processes - 1) / processes;
  const bool uncut = bytes <= kUncutBytes;
  switch (kind) {
    case OpKind::AllReduce:
      if (uncut || members == 2) return {1, from * bytes};
      return {2, from * slice + slice};
    case OpKind::Reduce:
      if (uncut || processes == 2) return {1, from * bytes};
      return {2, from * slice + slice};
    case OpKind::Broadcast:
      if (uncut || processes == 2) return {1, bytes};
      return {2, 2 * slice};
    case OpKind::AllGather:
    case OpKind::Unshard:
    case OpKind::Gather:
      return {1, from * part};
    case OpKind::Scatter:
      return {1, to * part};
    case OpKind::ReduceScatter:
    case OpKind::AllToAll:
      return {1, std::int64_t{from} * to * part};
    default:
      return {1, bytes};
  }
}

}  // namespace rehearse
