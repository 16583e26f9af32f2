// SPDX-License-Identifier: Apache-2.0
#include "sim/network/transfer_cost.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "sim/cost/measured_curve.h"
#include "sim/cost/to_nanoseconds.h"
#include "sim/network/crossing_cost.h"
#include "sim/network/shared_memory_cost.h"

namespace rehearse::sim {
namespace {

Nanoseconds nanoseconds(double seconds) {
  return std::max(Nanoseconds{1}, seconds_to_nanoseconds(seconds));
}

std::vector<Demand> demands(const std::vector<LinkUse>& uses, double bytes, double seconds) {
  std::vector<Demand> all;
  for (const LinkUse& use : uses) {
    if (use.part == 0) continue;  // other rows' alone
    all.push_back({use.resource, std::min(1.0, use.part * bytes * use.ring / seconds)});
  }
  return all;
}

// The cost on the cluster as it is described, before it is corrected.
TransferCost described_transfer(Bytes size, const Path& path, const Network& network) {
  TransferCost cost{.link = path.link};
  if (path.same_device || size.value <= 0) return cost;
  if (network.cluster().workers > 0) {
    const Meeting ends{.ranks = 2, .processes = path.between_processes ? 2 : 1};
    if (const auto time = shared_memory_time(OpKind::Send, size, ends, network.model().measured,
                                             network.cluster())) {
      cost.time = nanoseconds(time->seconds);
      cost.level = time->level;
      return cost;
    }
  }
  const auto bytes = static_cast<double>(size.value);
  const CollectiveModel& model = network.model();
  const CollectiveConstants& k = model.constants;
  const Cluster& c = network.cluster();
  double alpha = send_recv_latency(path.hops, network);
  if (network.torus()) cost.level = CostLevel::Datasheet;
  if (path.between_nodes) {
    alpha = k.transfer_alpha + k.transfer_latency_hops * c.nics.one_way_latency_us * kMicro;
    if (!model.nic.benchmarked) cost.level = CostLevel::Datasheet;
    if (path.crosses_pod && c.fabric) alpha += c.fabric->between_pods_latency_us * kMicro;
  }
  double seconds = alpha + bytes * path.seconds_per_byte;
  const std::optional<CurveTime> measured = read_collectives(
      model.measured, CollectiveOp::SendRecv, 2, path.between_nodes ? 2 : 1, size.value);
  if (measured) {
    seconds = measured->seconds;
    cost.level = measured->level;
    for (const std::vector<LinkUse>* uses : {&path.out, &path.in}) {  // shared with siblings
      for (const LinkUse& use : *uses) {
        if (use.kind != LinkKind::Port) seconds = std::max(seconds, bytes * use.ring);
      }
    }
  } else if (!path.between_nodes && model.system.send_recv_bandwidth > 0) {
    cost.level = CostLevel::Interpolated;
  }
  cost.time = nanoseconds(seconds);
  cost.send = demands(path.out, bytes, seconds);
  cost.recv = demands(path.in, bytes, seconds);
  return cost;
}

// As `calibrate` measured it; empty: it did not.
std::optional<CurveTime> measured_copy(const Cluster& cluster, Bytes size, bool to_host,
                                       bool drives) {
  if (!cluster.calibration) return std::nullopt;
  std::vector<std::int64_t> sizes;
  std::vector<double> time_us;
  const CopyDirection direction =
      to_host ? CopyDirection::DeviceToHost : CopyDirection::HostToDevice;
  for (const CopyPoint& point : cluster.calibration->copies) {
    if (point.direction != direction || point.drives != drives) continue;
    if (!sizes.empty() && point.bytes <= sizes.back()) continue;  // ascending sizes only
    sizes.push_back(point.bytes);
    time_us.push_back(point.time_us);
  }
  return read_curve(sizes, time_us, size.value);
}

}  // namespace

TransferCost transfer_cost(Bytes bytes, const Path& path, const Network& network) {
  TransferCost cost = described_transfer(bytes, path, network);
  const double factor = network.cluster().correction.transfers;
  if (factor != 1) {
    cost.time = to_nanoseconds(static_cast<double>(cost.time.value) * factor);
    for (std::vector<Demand>* side : {&cost.send, &cost.recv}) {
      for (Demand& demand : *side) demand.share = std::min(1.0, demand.share / factor);
    }
  }
  if (cost.time.value > 0) {
    cost.crossing = add_crossing(OpKind::Send, bytes, 2, 2, path.crossings, network.cluster(),
                                 cost.time, cost.send);
  }
  return cost;
}

TransferCost scatter_gather_transfer_cost(Bytes bytes, const Path& path,
                                          const GroupShape& receiver_tensor_group,
                                          const Network& network) {
  const std::int64_t t = std::max(receiver_tensor_group.ranks, 1);
  TransferCost cost = transfer_cost({(bytes.value + t - 1) / t}, path, network);
  if (t == 1 || path.same_device) return cost;
  const CollectiveCost gather =
      collective_cost(OpKind::AllGather, bytes, receiver_tensor_group, network);
  // One after the other: shares are averages over the sum.
  const double wire = static_cast<double>(cost.time.value);
  const double whole = wire + static_cast<double>(gather.time.value);
  for (Demand& demand : cost.send) demand.share *= wire / whole;
  for (Demand& demand : cost.recv) demand.share *= wire / whole;
  for (const Demand& demand : gather.demands) {
    const double share = demand.share * (1 - wire / whole);
    const auto same = std::find_if(cost.recv.begin(), cost.recv.end(), [&](const Demand& other) {
      return other.resource == demand.resource;
    });
    if (same == cost.recv.end()) {
      cost.recv.push_back({demand.resource, share});
    } else {
      same->share += share;
    }
  }
  cost.time += gather.time;
  cost.level = std::max(cost.level, gather.level);
  return cost;
}

TransferCost handover_cost(const Plan& plan, Bytes bytes, const Path& path,
                           const GroupShape& receiver_tensor_group, const Network& network) {
  TransferCost cost = plan.scatters_transfers() ? scatter_gather_transfer_cost(
                                                      bytes, path, receiver_tensor_group, network)
                                                : transfer_cost(bytes, path, network);
  if (plan.overlap_pipeline) return cost;
  // Compute waits: for the other direction's too where they are serial, and for the host.
  const Nanoseconds wire = cost.time;
  if (plan.transfers == TransferForm::Serial) cost.time += wire;
  cost.time += Nanoseconds{1000 * std::int64_t{plan.runtime.blocking_transfer_us}};
  cost.waits = cost.time - wire;
  const double share = static_cast<double>(wire.value) / static_cast<double>(cost.time.value);
  for (std::vector<Demand>* side : {&cost.send, &cost.recv}) {
    for (Demand& demand : *side) demand.share *= share;
  }
  return cost;
}

TransferCost host_copy_cost(Bytes size, bool to_host, const Path& path, const Network& network) {
  TransferCost cost{.link = LinkKind::Pcie};
  if (size.value <= 0) return cost;
  const auto bytes = static_cast<double>(size.value);
  double seconds = network.model().constants.host_copy_alpha + bytes * path.seconds_per_byte;
  // Of one copy alone: GPUs behind one switch share its link.
  if (const auto measured = measured_copy(network.cluster(), size, to_host, /*drives=*/false)) {
    const double link =
        network.cluster().gpu.pcie.bandwidth.value * network.model().constants.host_copy_fraction;
    const double sharing = std::max(1.0, path.seconds_per_byte * link);
    seconds = measured->seconds * sharing;
    cost.level = measured->level;
  }
  cost.time = nanoseconds(seconds);
  (to_host ? cost.send : cost.recv) = demands(to_host ? path.out : path.in, bytes, seconds);
  return cost;
}

TransferCost nvme_copy_cost(Bytes size, bool to_host, std::int32_t ranks, const Path& path,
                            const Network& network) {
  TransferCost cost = host_copy_cost(size, to_host, path, network);
  // A CPU's file, pages and all.
  if (const auto measured = measured_copy(network.cluster(), size, to_host, /*drives=*/true)) {
    cost.time = nanoseconds(measured->seconds);
    cost.level = measured->level;
    return cost;
  }
  const Nanoseconds drives =
      to_host ? nvme_time({0}, size, ranks, network) : nvme_time(size, {0}, ranks, network);
  if (drives <= cost.time) return cost;
  const double share =
      static_cast<double>(cost.time.value) / static_cast<double>(drives.value);  // of the link
  for (std::vector<Demand>* side : {&cost.send, &cost.recv}) {
    for (Demand& demand : *side) demand.share *= share;
  }
  cost.time = drives;
  cost.level = CostLevel::Datasheet;
  return cost;
}

Nanoseconds nvme_time(Bytes read, Bytes written, std::int32_t ranks, const Network& network) {
  const Nvme& nvme = network.cluster().nvme;
  if (!nvme.known()) return {};
  return nanoseconds(ranks * (static_cast<double>(read.value) / nvme.read.value +
                              static_cast<double>(written.value) / nvme.write.value));
}

Nanoseconds swapped_update_time(const SwappedUpdate& of) {
  const auto read = static_cast<double>(of.read.value),
             written = static_cast<double>(of.written.value);
  // What a part in the middle takes, and what of it the next one runs beside.
  double middle = static_cast<double>(of.update.value);
  if (!reads_ahead(of.pipeline)) middle += read;
  if (!writes_behind(of.pipeline)) middle += written;
  middle = std::max({middle, read, written});
  const double first = read + static_cast<double>(of.update.value) + written;
  const double parts = std::max(1.0, of.parts);
  return nanoseconds(1e-9 * (first + (parts - 1) * middle) / parts);
}

Nanoseconds host_update_time(Bytes size, std::int32_t ranks_per_node, const Network& network) {
  const double node =
      network.model().constants.host_update_rate * std::max(1, network.cluster().host.sockets);
  return nanoseconds(static_cast<double>(size.value) * ranks_per_node / node);
}

}  // namespace rehearse::sim
