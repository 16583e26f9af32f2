// SPDX-License-Identifier: Apache-2.0
// The chain of estimates; every step yields seconds.
#include "sim/network/collective_cost.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "sim/cost/measured_curve.h"
#include "sim/cost/to_nanoseconds.h"
#include "sim/network/crossing_cost.h"
#include "sim/network/shared_memory_cost.h"

namespace rehearse::sim {
namespace {

bool is_parts(OpKind kind) {
  return kind == OpKind::AllGather || kind == OpKind::ReduceScatter;
}
bool is_pairwise(OpKind kind) {
  return kind == OpKind::AllToAll || kind == OpKind::Gather || kind == OpKind::Scatter;
}
OpKind normalised(OpKind kind) {
  return kind == OpKind::Unshard ? OpKind::AllGather : kind;
}
bool is_priced(OpKind kind) {
  return kind >= OpKind::AllReduce && kind <= OpKind::AllToAll;
}

// What NCCL's search would find on these links: as many channels as a GPU has NVLinks, or two per
// NIC between nodes.
TunerInput tuner_input(const GroupShape& shape, const Network& network) {
  const Cluster& c = network.cluster();
  const TunerTables& tables = network.model().tuner;
  TunerInput in{.tables = &tables, .ranks = shape.ranks, .nodes = shape.nodes};
  const bool nvidia = c.gpu.compute_capability.has_value();
  in.compute_capability = c.gpu.compute_capability.value_or(80);
  in.nvlink = c.scale_up.kind != ScaleUpKind::PcieTree;
  in.amd_cpu = c.host.cpu.find("AMD") != std::string::npos;
  in.nic_latency_us = c.nics.one_way_latency_us;
  double port = 0, worst = 0;
  for (const LinkUse& use : shape.links) {
    if (use.kind == LinkKind::Port) port = 1 / use.ring / 1e9;
    worst = std::max(worst, use.ring);
  }
  const double all = worst > 0 ? 1 / worst / 1e9 : 1;  // GB/s of the slowest link
  if (shape.nodes > 1) {
    in.channels = std::max(2, 2 * static_cast<std::int32_t>(std::lround(shape.nics)));
    in.channel_inter = in.channel_intra = all / in.channels;
  } else if (c.scale_up.kind == ScaleUpKind::NvSwitch && nvidia && c.gpu.nvlink_links > 0) {
    in.channels = c.gpu.nvlink_links;
    in.channel_intra = nvlink_channel_gb_per_s(tables, in.compute_capability);
  } else {
    in.channels = 4;
    in.channel_intra = std::min(port > 0 ? port : all, all) / in.channels;
  }
  const std::int32_t from = network.model().system.in_switch_from;
  in.nvls = c.scale_up.in_network_reduction && shape.ranks_per_node >= (from > 0 ? from : 2);
  in.nvls_channels = in.nvls ? 16 : 0;  // NCCL opens 16 for the switch
  in.channel_nvls = nvlink_channel_gb_per_s(tables, in.compute_capability);
  return in;
}

// alpha + root sqrt(S) + amount / bandwidth of a group inside a node.
struct Line {
  double alpha = 0, root = 0, bandwidth = 0;
  bool exact = false;  // fitted for this kind and number of ranks
  std::int64_t min_bytes = 0, max_bytes = 0;
};

Line line_of(const CollectiveFit& fit) {
  return {fit.alpha, fit.root, fit.bus_bandwidth, true, fit.min_bytes, fit.max_bytes};
}

// Steps of the ring beyond the largest fitted group, unless the switch reduces.
double more_steps(std::int32_t fitted, OpKind kind, const GroupShape& shape,
                  const Network& network) {
  TunerInput in = tuner_input(shape, network);
  if (in.nvls && kind == OpKind::AllReduce) return 0;
  const double larger = tuner_time(in, kind, 0, Algorithm::Ring, Protocol::Simple).time_us;
  in.ranks = fitted;
  return (larger - tuner_time(in, kind, 0, Algorithm::Ring, Protocol::Simple).time_us) * kMicro;
}

// The fit of `kind` for n ranks of one node; between two fitted sizes on a straight line.
std::optional<Line> fitted_line(OpKind kind, const GroupShape& shape, const Network& network) {
  const std::int32_t n = shape.ranks;
  const CollectiveFit* below = nullptr;
  const CollectiveFit* above = nullptr;
  for (const CollectiveFit& fit : network.model().fits) {
    if (fit.kind != kind || fit.nodes != 1) continue;
    if (fit.ranks <= n && (below == nullptr || fit.ranks > below->ranks)) below = &fit;
    if (fit.ranks >= n && (above == nullptr || fit.ranks < above->ranks)) above = &fit;
  }
  if (below != nullptr && below->ranks == n) return line_of(*below);
  if (below == nullptr && above == nullptr) return std::nullopt;
  if (below == nullptr || above == nullptr) {
    const CollectiveFit& nearest = below != nullptr ? *below : *above;
    Line line = line_of(nearest);
    line.exact = false;
    if (below != nullptr) line.alpha += more_steps(nearest.ranks, kind, shape, network);
    return line;
  }
  const double share = static_cast<double>(n - below->ranks) / (above->ranks - below->ranks);
  const auto mix = [share](double a, double b) { return a * (1 - share) + b * share; };
  return Line{mix(below->alpha, above->alpha), mix(below->root, above->root),
              mix(below->bus_bandwidth, above->bus_bandwidth)};
}

// Bytes that go around the ring (or through the root's link) per member, and the links' time.
struct Amount {
  double ring = 0, pairwise = 0;
  double on(const LinkUse& use) const { return ring * use.ring + pairwise * use.pairwise; }
};

Amount amount_of(OpKind kind, double bytes, std::int32_t ranks) {
  const double share = static_cast<double>(ranks - 1) / ranks;
  switch (kind) {
    case OpKind::AllReduce:
      return {2 * share * bytes, 0};
    case OpKind::AllToAll:
      return {0, bytes};
    case OpKind::Broadcast:
    case OpKind::Reduce:
      return {bytes, 0};
    default:
      return {share * bytes, 0};
  }
}

struct Estimate {
  double seconds = 0;
  double port = 0;  // of it, the ports' transfer time
  CostLevel level = CostLevel::Formula;
  std::optional<Protocol> protocol;
};

// Fixed part of small messages (protocol LL), over whatever links.
double small_message_alpha(const GroupShape& shape, const Network& network) {
  const TunerInput in = tuner_input(shape, network);
  double best = tuner_time(in, OpKind::AllReduce, 0, Algorithm::Ring, Protocol::Ll).time_us;
  best =
      std::min(best, tuner_time(in, OpKind::AllReduce, 0, Algorithm::Tree, Protocol::Ll).time_us);
  return best * kMicro + network.model().constants.call_overhead;
}

// Rings of neighbours, and messages that are passed on: every link on the way once after another,
// and what the busiest carries. The libraries of such machines are not NCCL, and nobody's table or
// tuning model stands behind them here.
Estimate on_torus(OpKind kind, double busiest, const GroupShape& shape, const Network& network) {
  const std::int32_t turns = kind == OpKind::AllReduce ? 2 : 1;
  const std::int32_t hops = is_pairwise(kind) ? shape.reach_hops : turns * shape.turn_hops;
  return {.seconds = send_recv_latency(hops, network) + busiest, .level = CostLevel::Datasheet};
}

Estimate inside_node(OpKind kind, double bytes, const Amount& amount, double port, double shared,
                     const GroupShape& shape, const Network& network) {
  const CollectiveModel& model = network.model();
  const CollectiveConstants& k = model.constants;
  std::optional<Line> line = fitted_line(kind, shape, network);
  const double leaving = bytes * (shape.ranks - 1) / shape.ranks;  // of a rank, in an all-to-all
  if (!line && kind != OpKind::AllReduce) {  // from the all-reduce of the same group
    line = fitted_line(OpKind::AllReduce, shape, network);
    if (line) {
      line->alpha *= k.part_alpha;
      line->root *= k.part_root;
      line->bandwidth = std::min(line->bandwidth, (amount.ring + amount.pairwise) / port);
      line->exact = false;
      if (kind == OpKind::AllToAll) line->bandwidth = leaving / port;
    }
  }
  if (line) {
    if (shape.siblings == 1) shared = 0;  // the table was measured over these very links
    const double moved = kind == OpKind::AllToAll ? leaving : amount.ring + amount.pairwise;
    Estimate e{.port = moved / line->bandwidth};
    e.seconds = line->alpha + line->root * std::sqrt(bytes) + std::max(e.port, shared);
    // Below the data a call still takes what NCCL's small protocol does, but no more than the
    // smallest size that was measured.
    const auto least = static_cast<double>(line->min_bytes);
    if (bytes < least || line->max_bytes == 0) {
      double floor = small_message_alpha(shape, network);
      if (least > 0) {
        floor = std::min(floor, line->alpha + line->root * std::sqrt(least) +
                                    moved * least / bytes / line->bandwidth);
      }
      e.seconds = std::max(e.seconds, floor);
    }
    const bool inside = line->max_bytes == 0 || (bytes >= static_cast<double>(line->min_bytes) &&
                                                 bytes <= static_cast<double>(line->max_bytes));
    e.level = line->exact && inside ? CostLevel::Interpolated : CostLevel::Formula;
    if (model.system.small_bandwidth > 0 && kind == OpKind::AllReduce) {
      const double transfer = std::max(amount.ring / model.system.small_bandwidth, shared);
      const double small = small_message_alpha(shape, network) + transfer;
      if (small < e.seconds) {
        e.seconds = small;
        e.level = CostLevel::Formula;
        e.protocol = Protocol::Ll;
      }
    }
    return e;
  }
  Estimate e{.port = port};
  const TunerInput in = tuner_input(shape, network);
  const TunerChoice choice = choose(in, kind, bytes);
  // The tuner is NCCL's; another vendor's library chooses otherwise.
  const std::string& vendor = network.cluster().gpu.vendor;
  const bool nccl = vendor.empty() || vendor == kNvidia;
  e.level = nccl ? CostLevel::Formula : CostLevel::Datasheet;
  if (choice.time_us < 0) {  // grouped sends: every peer costs a hop
    const double hops = (shape.ranks - 1) * network.cluster().scale_up.hop_latency_us * kMicro;
    e.seconds = k.call_overhead + hops + std::max(port, shared);
    return e;
  }
  const double latency = tuner_time(in, kind, 0, choice.algorithm, choice.protocol).time_us;
  const double transfer = (choice.time_us - latency) * kMicro;
  e.port = std::min(port, transfer);
  e.seconds = k.call_overhead + latency * kMicro + std::max(transfer, shared);
  return e;
}

Estimate between_nodes(OpKind kind, double bytes, double slowest, double port,
                       const GroupShape& shape, const Network& network) {
  const CollectiveModel& model = network.model();
  const CollectiveConstants& k = model.constants;
  const Cluster& c = network.cluster();
  Estimate e{.port = port};
  if (!model.nic.benchmarked) e.level = CostLevel::Datasheet;
  if (shape.siblings == 1) {
    for (const CollectiveFit& fit : model.fits) {
      if (fit.kind != kind || fit.nodes != shape.nodes || fit.ranks != shape.ranks) continue;
      const double factor = bus_bandwidth_factor(kind, shape.ranks);
      e.seconds = fit.alpha + fit.root * std::sqrt(bytes) + factor * bytes / fit.bus_bandwidth;
      const bool inside = bytes >= static_cast<double>(fit.min_bytes) &&
                          bytes <= static_cast<double>(fit.max_bytes);
      e.level = inside ? CostLevel::Interpolated : CostLevel::Formula;
      return e;
    }
  }
  const double nic_latency = c.nics.one_way_latency_us * kMicro;
  const double step =
      model.nic.step >= 0 ? model.nic.step : k.latency_hops * nic_latency + k.step_fixed;
  const double rounds = kind == OpKind::AllReduce ? 2 : 1;
  double alpha = rounds * (std::log2(shape.nodes) + 1) * step + k.multi_node_fixed;
  const TunerInput in = tuner_input(shape, network);
  if (is_parts(kind)) {  // rings (or PAT) alone: no tree shortens them
    double ring = tuner_time(in, kind, 0, Algorithm::Ring, Protocol::Simple).time_us;
    const double pat = tuner_time(in, kind, 0, Algorithm::Pat, Protocol::Simple).time_us;
    if (pat >= 0) ring = std::min(ring, pat);
    alpha = std::max(alpha, k.call_overhead + ring * kMicro);
  }
  double far = 0;
  if (shape.pods > 1 && c.fabric) {  // a tree goes up and down, a ring enters every pod once
    const double crossings =
        kind == OpKind::AllReduce ? 2 * std::ceil(std::log2(shape.pods)) : shape.pods;
    far = crossings * c.fabric->between_pods_latency_us * kMicro;
  }
  e.seconds = alpha + far + slowest;
  if (model.nic.step < 0 && !is_pairwise(kind)) {
    for (const Algorithm algorithm : {Algorithm::Ring, Algorithm::Tree}) {
      const double latency = tuner_time(in, kind, 0, algorithm, Protocol::Ll).time_us;
      if (latency < 0) continue;
      const double transfer =
          tuner_time(in, kind, bytes, algorithm, Protocol::Ll).time_us - latency;
      const double small =
          k.call_overhead + far + latency * kMicro + std::max(transfer * kMicro, slowest);
      if (small >= e.seconds) continue;
      e.seconds = small;
      e.protocol = Protocol::Ll;
    }
  }
  return e;
}

// The load of a link below one node: what an all-to-all of g of the n ranks puts on it per byte.
// With i of the ranks below the link, i (n - i) / n of each buffer leaves it; in a ring one
// member's flow does.
double pairwise_of_part(const LinkUse& use, std::int32_t n, std::int32_t g) {
  if (is_scale_up(use.kind)) return use.pairwise * n / g;  // (g-1)/n of it
  const double leaving = use.ring > 0 ? use.pairwise / use.ring : 0;
  const double below = (n - std::sqrt(std::max(0.0, double{1} * n * n - 4 * n * leaving))) / 2;
  return use.ring * below * std::max(0.0, g - below) / g;
}

CollectiveCost described_cost(OpKind asked, Bytes size, const GroupShape& shape,
                              const Network& network, bool apart = false);

// The members of a group of several nodes that are on one of them, and the links between these.
GroupShape part_inside(const GroupShape& shape) {
  GroupShape part = shape;
  part.ranks = shape.ranks_per_node;
  part.nodes = part.pods = 1;
  part.processes = std::min(shape.processes, part.ranks);
  part.nics = 0;
  std::erase_if(part.links, [](const LinkUse& use) { return !is_inside_node(use.kind); });
  for (LinkUse& use : part.links) use.pairwise = pairwise_of_part(use, shape.ranks, part.ranks);
  return part;
}

// What goes around several nodes goes through each of them, over the very links that its members
// there would use alone: no bus bandwidth is above theirs. Links' capacities do not say so, since
// inside a node tables of what NCCL reaches count, and between nodes the formula.
struct Least {
  double seconds = 0;   // of the whole call
  double transfer = 0;  // of it, what further bytes add, for all of them
};
Least least_of(OpKind kind, Bytes size, const GroupShape& shape, const Network& network) {
  if (shape.nodes <= 1 || shape.ranks_per_node <= 1) return {};
  const GroupShape part = part_inside(shape);
  const double more =
      bus_bandwidth_factor(kind, shape.ranks) / bus_bandwidth_factor(kind, part.ranks) * 1e-9;
  const auto time = [&](std::int64_t bytes) {
    return static_cast<double>(described_cost(kind, {bytes}, part, network).time.value) * more;
  };
  const std::int64_t rest = size.value - size.value / 2;
  const double whole = time(size.value);
  const double transfer =
      (whole - time(size.value / 2)) * static_cast<double>(size.value) / static_cast<double>(rest);
  return {.seconds = whole, .transfer = std::clamp(transfer, 0.0, whole)};
}

// The cost on the cluster as it is described, before it is corrected.
CollectiveCost described_cost(OpKind asked, Bytes size, const GroupShape& shape,
                              const Network& network, bool apart) {
  const OpKind kind = normalised(asked);
  CollectiveCost cost;
  if (!is_priced(kind) || shape.ranks <= 1 || size.value <= 0) return cost;
  if (network.cluster().workers > 0) {
    if (const auto time = shared_memory_time(kind, size, {shape.ranks, shape.processes, apart},
                                             network.model().measured, network.cluster())) {
      cost.time = seconds_to_nanoseconds(time->seconds);
      cost.level = time->level;
      return cost;
    }
  }
  const auto bytes = static_cast<double>(size.value);
  const Amount amount = amount_of(kind, bytes, shape.ranks);
  double port = 0, shared = 0, slowest = 0;
  for (const LinkUse& use : shape.links) {
    const double seconds = amount.on(use);
    (use.kind == LinkKind::Port ? port : shared) =
        std::max(use.kind == LinkKind::Port ? port : shared, seconds);
    if (seconds > slowest) {
      slowest = seconds;
      cost.link = use.kind;
    }
  }
  const bool one_node = shape.nodes == 1;
  const Least least = least_of(kind, size, shape, network);
  const bool torus = one_node && network.torus().has_value();
  Estimate e = torus      ? on_torus(kind, slowest, shape, network)
               : one_node ? inside_node(kind, bytes, amount, port, shared, shape, network)
                          : between_nodes(kind, bytes, std::max(slowest, least.transfer), port,
                                          shape, network);
  // A table of this very group says more than any bound.
  if (e.level != CostLevel::Interpolated) {
    e.seconds = std::max(e.seconds, least.seconds);
  }
  const std::optional<CollectiveOp> op = table_of(kind);
  if (op) {
    const std::optional<CurveTime> measured =
        read_collectives(network.model().measured, *op, shape.ranks, shape.nodes, size.value);
    if (measured) {  // siblings were idle when it was measured: the shared links still bound it
      e = {.seconds = std::max(measured->seconds, shared),
           .port = std::min(e.port, measured->seconds),
           .level = measured->level};
    }
  }
  cost.time = std::max(Nanoseconds{1}, seconds_to_nanoseconds(e.seconds));
  cost.level = e.level;
  cost.algorithm = is_pairwise(kind) ? Algorithm::Pairwise : Algorithm::Ring;
  if (!is_pairwise(kind) && !torus) {
    const TunerChoice choice = choose(tuner_input(shape, network), kind, bytes);
    cost.algorithm = choice.algorithm;
    cost.protocol = e.protocol.value_or(choice.protocol);
  }
  for (const LinkUse& use : shape.links) {
    const double seconds = use.kind == LinkKind::Port ? e.port : amount.on(use);
    const double share = std::min(1.0, use.part * seconds / e.seconds);
    if (share > 0) cost.demands.push_back({use.resource, share});
  }
  return cost;
}

CollectiveCost described_shift(Bytes size, const GroupShape& shape, const Network& network) {
  CollectiveCost cost{.algorithm = Algorithm::Pairwise};
  if (shape.ranks <= 1 || size.value <= 0) return cost;
  if (network.cluster().workers > 0) {  // one thread of a process copies every rank's block
    const Meeting ends{.ranks = 2, .processes = std::min(shape.processes, 2)};
    const Bytes copied{size.value * shape.ranks / shape.processes};
    if (const auto time = shared_memory_time(OpKind::Send, copied, ends, network.model().measured,
                                             network.cluster())) {
      cost.time = seconds_to_nanoseconds(time->seconds);
      cost.level = time->level;
      return cost;
    }
  }
  const auto bytes = static_cast<double>(size.value);
  const CollectiveModel& model = network.model();
  const CollectiveConstants& k = model.constants;
  if (network.torus()) cost.level = CostLevel::Datasheet;
  std::vector<double> seconds;
  double slowest = 0;
  for (const LinkUse& use : shape.links) {
    double each = use.ring;
    if (use.kind == LinkKind::Nic) {  // the member at the node's edge has its own NIC alone
      each = std::max(each, 1 / network.links()[use.resource.index()].capacity.value) *
             model.nic.achievable_fraction / model.transfer_fraction();
    }
    if (use.kind == LinkKind::Port) each = 1 / network.pair_bandwidth();
    if (use.kind == LinkKind::Torus) each = use.next;
    seconds.push_back(bytes * each);
    if (seconds.back() > slowest) {
      slowest = seconds.back();
      cost.link = use.kind;
    }
  }
  double alpha = send_recv_latency(shape.next_hops, network);
  if (shape.nodes > 1) {
    alpha = k.transfer_alpha +
            k.transfer_latency_hops * network.cluster().nics.one_way_latency_us * kMicro;
  }
  const double time = alpha + slowest;
  cost.time = std::max(Nanoseconds{1}, seconds_to_nanoseconds(time));
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    const double share = std::min(1.0, shape.links[i].part * seconds[i] / time);
    if (share > 0) cost.demands.push_back({shape.links[i].resource, share});
  }
  return cost;
}

void crosses(OpKind kind, Bytes bytes, const GroupShape& shape, const Network& network,
             CollectiveCost& cost) {
  cost.crossing = add_crossing(kind, bytes, shape.ranks, shape.processes, shape.crossings,
                               network.cluster(), cost.time, cost.demands);
}

// Times of this very cluster were measured: its links are as much slower as they say.
CollectiveCost corrected(CollectiveCost cost, const Network& network) {
  const double factor = network.cluster().correction.collectives;
  if (factor == 1) return cost;
  cost.time = to_nanoseconds(static_cast<double>(cost.time.value) * factor);
  for (Demand& demand : cost.demands) demand.share = std::min(1.0, demand.share / factor);
  return cost;
}

}  // namespace

CollectiveCost collective_cost(OpKind kind, Bytes bytes, const GroupShape& shape,
                               const Network& network, bool apart) {
  CollectiveCost cost = corrected(described_cost(kind, bytes, shape, network, apart), network);
  if (cost.time.value > 0) crosses(normalised(kind), bytes, shape, network, cost);
  return cost;
}

CollectiveCost tensor_broadcasts_cost(Bytes bytes, std::int32_t tensors, const GroupShape& shape,
                                      const Network& network) {
  CollectiveCost cost = collective_cost(OpKind::Broadcast, bytes, shape, network);
  if (shape.ranks <= 1 || cost.time.value <= 0) return cost;
  const TunerInput in = tuner_input(shape, network);
  const TunerTables& tables = network.model().tuner;
  const auto ring = static_cast<std::size_t>(Algorithm::Ring);
  const auto simple = static_cast<std::size_t>(Protocol::Simple);
  const double inside = (in.nvlink ? tables.nvlink : tables.pcie)[ring][simple];
  const double outside = tables.network[ring][simple] + 2 * in.nic_latency_us;
  const double share = shape.nodes > 1 ? static_cast<double>(shape.nodes) / shape.ranks : 0;
  const double channel = shape.nodes > 1 ? in.channel_inter : in.channel_intra;  // [GB/s]
  const double hop = (inside * (1 - share) + outside * share) * kMicro +
                     network.model().constants.chunk_bytes / (channel * 1e9);
  const double owners = std::min(shape.ranks, tensors);
  const double whole = static_cast<double>(cost.time.value);
  const double time = whole + owners * (shape.ranks - 1) * hop * 1e9;
  cost.time = to_nanoseconds(time);
  for (Demand& demand : cost.demands) demand.share *= whole / time;
  return cost;
}

CollectiveCost ring_shift_cost(Bytes bytes, const GroupShape& shape, const Network& network) {
  CollectiveCost cost = corrected(described_shift(bytes, shape, network), network);
  if (cost.time.value > 0) crosses(OpKind::Send, bytes, shape, network, cost);
  return cost;
}

double send_recv_latency(std::int32_t hops, const Network& network) {
  if (network.torus()) return hops * network.cluster().scale_up.hop_latency_us * kMicro;
  const CollectiveModel& model = network.model();
  return model.system.send_recv_alpha > 0 ? model.system.send_recv_alpha
                                          : model.constants.send_recv_alpha;
}

double bus_bandwidth_factor(OpKind kind, std::int32_t ranks) {
  const double share = ranks > 0 ? static_cast<double>(ranks - 1) / ranks : 0;
  switch (normalised(kind)) {
    case OpKind::AllReduce:
      return 2 * share;
    case OpKind::AllGather:
    case OpKind::ReduceScatter:
    case OpKind::AllToAll:
    case OpKind::Gather:
    case OpKind::Scatter:
      return share;
    default:
      return 1;
  }
}

BytesPerSecond bus_bandwidth(OpKind kind, Bytes bytes, std::int32_t ranks, Nanoseconds time) {
  if (time.value <= 0) return {0};
  return {bus_bandwidth_factor(kind, ranks) * static_cast<double>(bytes.value) /
          (static_cast<double>(time.value) * 1e-9)};
}

}  // namespace rehearse::sim
