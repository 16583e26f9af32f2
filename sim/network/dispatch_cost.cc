// SPDX-License-Identifier: Apache-2.0
#include "sim/network/dispatch_cost.h"

#include <algorithm>
#include <cmath>

#include "sim/cost/to_nanoseconds.h"

namespace rehearse::sim {
namespace {

// Bytes of a rank's buffer that are spread evenly over all ranks, per class of link.
struct Buffers {
  double scale_up = 0;  // over the members of a node
  double nic = 0;       // over nodes
};

std::int64_t whole(double bytes) {
  return std::llround(bytes);
}

// Seconds per byte of a buffer spread over the group, on one link, at the rate that dispatchers
// reach: a port's share of its data sheet, a NIC's of its line rate.
double seconds_per_byte(const LinkUse& use, double scale_up_fraction, const Network& network) {
  const CollectiveModel& model = network.model();
  if (use.kind == LinkKind::Nic) {
    return use.pairwise * model.nic.achievable_fraction / model.dispatch.nic_fraction;
  }
  const Cluster& cluster = network.cluster();
  if (use.kind != LinkKind::Port || cluster.scale_up.kind == ScaleUpKind::PcieTree) {
    return use.pairwise;
  }
  const double port = cluster.scale_up_bandwidth().value * scale_up_fraction;
  return use.pairwise * network.ring_bandwidth(cluster.gpus_per_node) / port;
}

// [s] of a grouped send and receive: what one pair takes, and the call.
double latency(const GroupShape& group, const Network& network) {
  const CollectiveModel& model = network.model();
  const CollectiveConstants& k = model.constants;
  if (group.nodes == 1) {
    return k.call_overhead + send_recv_latency(group.reach_hops, network);
  }
  const Cluster& c = network.cluster();
  const double pods = group.pods > 1 && c.fabric ? c.fabric->between_pods_latency_us * kMicro : 0.0;
  return k.call_overhead + k.transfer_alpha +
         k.transfer_latency_hops * c.nics.one_way_latency_us * kMicro + pods;
}

// `moved`: buffers with what stays on a rank or node, as LinkUse::pairwise counts them. With
// `forwarded`, what came over a NIC goes on over the ports too: all copies that do not stay on
// their rank's index do, not only those of the own node.
CollectiveCost links_cost(const Buffers& moved, bool forwarded, double scale_up_fraction,
                          const GroupShape& group, const Network& network) {
  CollectiveCost cost{.algorithm = Algorithm::Pairwise};
  if (network.torus()) cost.level = CostLevel::Datasheet;
  const double alpha = latency(group, network);
  std::vector<double> seconds;
  double slowest = 0;
  for (const LinkUse& use : group.links) {
    const bool port = is_scale_up(use.kind);
    double each = seconds_per_byte(use, scale_up_fraction, network);
    if (port && forwarded) each *= static_cast<double>(group.ranks) / group.ranks_per_node;
    seconds.push_back(each * (port ? moved.scale_up : moved.nic));
    if (seconds.back() > slowest) {
      slowest = seconds.back();
      cost.link = use.kind;
    }
  }
  const double time = alpha + slowest;
  cost.time = std::max(Nanoseconds{1}, seconds_to_nanoseconds(time));
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    const double share = std::min(1.0, group.links[i].part * seconds[i] / time);
    if (share > 0) cost.demands.push_back({group.links[i].resource, share});
  }
  return cost;
}

// Shares of a buffer spread evenly over all ranks that leave the rank, but not the node; that leave
// the node.
double inside_share(const GroupShape& group) {
  return static_cast<double>(group.ranks_per_node - 1) / group.ranks;
}
double outside_share(const GroupShape& group) {
  return static_cast<double>(group.ranks - group.ranks_per_node) / group.ranks;
}

DispatchCost all_to_all(double buffer, double load, const GroupShape& group,
                        const Network& network) {
  DispatchCost made{.scale_up_bytes = whole(buffer * inside_share(group)),
                    .nic_bytes = whole(buffer * outside_share(group))};
  const double busiest = buffer * load;
  made.cost = collective_cost(OpKind::AllToAll, Bytes{whole(busiest)}, group, network);
  // Between nodes a table of this very group says more than rates of links, and they more than a
  // form that was made for rings.
  if (group.nodes > 1 && made.cost.level >= CostLevel::Formula) {
    made.cost = links_cost({busiest, busiest}, false,
                           network.model().dispatch.all_to_all_scale_up_fraction, group, network);
  }
  return made;
}

DispatchCost deduplicated(double token, const DispatchShape& shape, const GroupShape& group,
                          const Network& network) {
  const auto tokens = static_cast<double>(shape.tokens);
  const double per_rank = tokens * expected_parts(shape.routing, group.ranks) * token;
  const double per_node =
      group.nodes > 1 ? tokens * expected_parts(shape.routing, group.nodes) * token : 0;
  const double forwarded = 1 - 1.0 / group.ranks_per_node;
  DispatchCost made{.scale_up_bytes = whole(per_rank * forwarded),
                    .nic_bytes = whole(per_node * outside_share(group))};
  made.cost = links_cost({per_rank * shape.load, per_node * shape.load}, true,
                         network.model().dispatch.deduplicated_scale_up_fraction, group, network);
  return made;
}

DispatchCost gathered(OpKind kind, double token, const DispatchShape& shape,
                      const GroupShape& group, const Network& network) {
  const double array = static_cast<double>(shape.tokens) * group.ranks * token;
  // Rings: what one member passes on leaves its node once for all members of the node.
  const double passed = array * (group.ranks - 1) / group.ranks;
  const double leaving = group.nodes > 1 ? passed / group.ranks_per_node : 0;
  return {.cost = collective_cost(kind, Bytes{whole(array)}, group, network),
          .scale_up_bytes = whole(passed - leaving),
          .nic_bytes = whole(leaving)};
}

}  // namespace

DispatchCost dispatch_cost(Dispatcher dispatcher, const DispatchShape& shape,
                           const GroupShape& group, const Network& network) {
  if (group.ranks <= 1 || shape.tokens <= 0) return {};
  const double token = static_cast<double>(shape.hidden) * shape.bytes_per_value;
  switch (dispatcher) {
    case Dispatcher::AllToAll:
      return all_to_all(static_cast<double>(shape.tokens) * shape.routing.per_token * token,
                        shape.load, group, network);
    case Dispatcher::AllGather:
      return gathered(OpKind::AllGather, token, shape, group, network);
    case Dispatcher::Deduplicated:
      return deduplicated(token, shape, group, network);
  }
  return {};
}

DispatchCost gathered_combine_cost(const DispatchShape& shape, const GroupShape& group,
                                   const Network& network) {
  if (group.ranks <= 1 || shape.tokens <= 0) return {};
  constexpr double kFp32 = 4;
  return gathered(OpKind::ReduceScatter, static_cast<double>(shape.hidden) * kFp32, shape, group,
                  network);
}

Nanoseconds layout_time(Dispatcher dispatcher, const Network& network) {
  if (dispatcher != Dispatcher::Deduplicated) return {};
  return seconds_to_nanoseconds(network.model().dispatch.layout);
}

}  // namespace rehearse::sim
