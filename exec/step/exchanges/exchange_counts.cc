// SPDX-License-Identifier: Apache-2.0
#include "exec/step/exchanges/exchange_counts.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace rehearse::exec {
namespace {

auto place_of(const CollectiveCount& count) {
  return std::tuple(count.group, count.kind);
}

}  // namespace

std::vector<CollectiveCount> busiest(std::vector<CollectiveCount> a,
                                     const std::vector<CollectiveCount>& b) {
  for (const CollectiveCount& one : b) {
    const auto same = std::ranges::lower_bound(a, place_of(one), {}, place_of);
    if (same == a.end() || place_of(*same) != place_of(one)) {
      a.insert(same, one);
    } else if (one.bytes > same->bytes) {
      *same = one;
    }
  }
  return a;
}

std::vector<CollectiveCount> ExchangeCounts::busiest() const {
  std::vector<CollectiveCount> all;
  for (const CollectiveCount& one : of_) {
    if (one.count > 0) all = exec::busiest(std::move(all), {one});
  }
  return all;
}

}  // namespace rehearse::exec
