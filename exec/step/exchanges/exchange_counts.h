// SPDX-License-Identifier: Apache-2.0
// How often the ranks here met in a step, and for how many bytes: counted where an exchange is
// handed to the device or to what carries data between processes, two additions each.
#pragma once

#include <cstdint>
#include <vector>

#include "exec/backend/exchange.h"
#include "schedules/ir/group.h"

namespace rehearse::exec {

// Collectives of one kind over one group, in the instance that exchanged most.
struct CollectiveCount {
  GroupKind group{};
  OpKind kind{};  // of bodies' rings: Send
  std::int32_t ranks = 1;
  std::int64_t count = 0, bytes = 0;  // payload, the whole arrays
  bool operator==(const CollectiveCount&) const = default;
};

class ExchangeCounts {
 public:
  void clear() { of_.assign(of_.size(), {}); }
  void add(GroupKind group, const Exchange& exchange) {
    const auto at = static_cast<std::size_t>(exchange.instance) * kNumOpKinds +
                    static_cast<std::size_t>(exchange.kind);
    if (at >= of_.size()) of_.resize(at + kNumOpKinds);
    CollectiveCount& count = of_[at];
    count.group = group;
    count.kind = exchange.kind;
    count.ranks = static_cast<std::int32_t>(exchange.ranks.size());
    ++count.count;
    count.bytes += exchange.elements * bytes_of(exchange.type);
  }
  // By group and kind.
  std::vector<CollectiveCount> busiest() const;

 private:
  std::vector<CollectiveCount> of_;  // [instance * kNumOpKinds + kind]
};

// Those of both, the busier one where both have a kind over a group.
std::vector<CollectiveCount> busiest(std::vector<CollectiveCount> a,
                                     const std::vector<CollectiveCount>& b);

}  // namespace rehearse::exec
