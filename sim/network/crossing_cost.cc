// SPDX-License-Identifier: Apache-2.0
#include "sim/network/crossing_cost.h"

#include <algorithm>

#include "schedules/ranks/crossing.h"

namespace rehearse::sim {

Nanoseconds add_crossing(OpKind kind, Bytes bytes, std::int32_t members, std::int32_t processes,
                         std::span<const Crossing> crossings, const Cluster& cluster,
                         Nanoseconds& time, std::vector<Demand>& demands) {
  struct Carried {
    ResourceId link{};
    std::int64_t bytes = 0;
  };
  std::vector<Carried> carried;
  std::int32_t rounds = 0;
  for (const Crossing& crossing : crossings) {
    if (kind == OpKind::Send && !crossing.next) continue;
    const Crossed one =
        crossed(kind, bytes.value, members, processes, crossing.senders, crossing.receivers);
    rounds = std::max(rounds, one.rounds);
    auto at = std::ranges::find(carried, crossing.link, &Carried::link);
    if (at == carried.end()) at = carried.insert(at, {crossing.link, 0});
    at->bytes += one.bytes * crossing.instances;
  }
  if (carried.empty()) return {};
  const std::int64_t most = std::ranges::max_element(carried, {}, &Carried::bytes)->bytes;
  const Nanoseconds added{rounds * cluster.throttle.latency_ns +
                          cluster.throttle.occupied_ns(most)};
  const auto before = static_cast<double>(time.value);
  time += added;
  const auto whole = static_cast<double>(std::max<std::int64_t>(1, time.value));
  for (Demand& demand : demands) demand.share *= before / whole;
  for (const Carried& one : carried) {
    const auto ns = static_cast<double>(cluster.throttle.occupied_ns(one.bytes));
    if (ns > 0) demands.push_back({one.link, std::min(1.0, ns / whole)});
  }
  return added;
}

}  // namespace rehearse::sim
