// SPDX-License-Identifier: Apache-2.0
#include "sim/compute/body_pricer.h"

#include <algorithm>
#include <cmath>

#include "sim/compute/bandwidth_cost.h"
#include "sim/cost/overlap.h"
#include "sim/cost/to_nanoseconds.h"

namespace rehearse::sim {
namespace {

bool is_collective(NodeKind kind) {
  return collective_kind(kind) != OpKind::Forward;
}

// What a hidden collective may run beside: tensor-parallel ones beside the products of the same
// stretch of nodes, the ring of context parallelism beside the attention core that follows.
bool in_stretch(const Node& node, bool ring) {
  if (ring) {
    return node.kind() == NodeKind::Attention || node.kind() == NodeKind::AttentionBackward ||
           node.kind() == NodeKind::Softmax || node.kind() == NodeKind::Dropout ||
           (node.kind() == NodeKind::Gemm && node.role() == GemmRole::None) ||
           node.kind() == NodeKind::Elementwise;
  }
  return (node.kind() == NodeKind::Gemm && node.role() != GemmRole::None && node.pieces == 1 &&
          !is_grouped(node.kernel)) ||
         node.kind() == NodeKind::Elementwise || (is_collective(node.kind()) && node.overlapped);
}

// A node that runs in one pass with a neighbour: what it moves, without a kernel's own time.
NodeCost without_launch(const ComputeCosts& costs, MemoryClass memory_class, std::int64_t bytes) {
  NodeCost cost = memory_bound_cost(costs, memory_class, static_cast<double>(bytes));
  if (bytes > 0) cost.ns -= costs.scalars.kernel_us * 1e3;
  return cost;
}

// Rows of the busiest rank in a layer, or in the mean layer (-1). Prediction layers are as the
// last.
double busiest_rows(const ComputeCosts& costs, std::int32_t layer) {
  if (layer < 0 || costs.busiest_by_layer.empty()) return costs.busiest_rows;
  const auto last = costs.busiest_by_layer.size() - 1;
  return costs.busiest_by_layer[std::min(static_cast<std::size_t>(layer), last)];
}

}  // namespace

double soft_maximum(double a, double b, double exponent) {
  const double larger = std::max(a, b);
  if (larger <= 0) return 0;
  return larger * std::pow(1 + std::pow(std::min(a, b) / larger, exponent), 1 / exponent);
}

BodyPricer::BodyPricer(const ComputeCosts& costs, const CollectiveTimes& collectives,
                       double issue_us, std::int32_t layer)
    : costs_(costs),
      collectives_(collectives),
      issue_us_(issue_us),
      busiest_rows_(busiest_rows(costs, layer)) {}

BodyTotals BodyPricer::price(std::span<const Node> nodes) {
  const std::size_t count = nodes.size();
  ns_.assign(count, 0);
  host_ns_.assign(count, 0);
  crossing_ns_.assign(count, 0);
  levels_.assign(count, CostLevel::Formula);
  for (std::size_t i = 0; i < count; ++i) {
    const FusedNode fused = costs_.fuses ? fused_node(nodes, i, costs_.tensor_cores)
                                         : FusedNode{.bytes = nodes[i].bytes};
    if (fused.launched) {
      const double calls = costs_.correction.host * costs_.scalars.expert_call_us() *
                           static_cast<double>(nodes[i].expert_calls);
      host_ns_[i] = (issue_us_ * nodes[i].issued() + calls) * 1e3;
      totals_.host_us += issue_us_ * nodes[i].issued() + calls;
      totals_.calls_us += calls;
    }
    is_collective(nodes[i].kind()) ? collective(nodes[i], i) : compute(nodes, fused, i);
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (!is_collective(nodes[i].kind())) continue;
    if (!nodes[i].overlapped) {
      hide_beside(nodes, i);
    } else if (nodes[i].kind() == NodeKind::RingExchange) {
      hide_ring(nodes, i);
    }
  }
  hide_stretches(nodes);
  begin_idle(nodes);
  return std::move(totals_);
}

std::vector<NodePrice> BodyPricer::nodes() const {
  std::vector<NodePrice> all;
  for (std::size_t i = 0; i < ns_.size(); ++i) all.push_back({to_nanoseconds(ns_[i]), levels_[i]});
  return all;
}

double BodyPricer::of_stream(std::span<const Node> nodes, std::size_t i) const {
  const bool beside_others = nodes[i].overlapped || (nodes[i].pieces > 1 && nodes[i].until > 0);
  return beside_others ? 0 : ns_[i];
}

BodyPricer::Stretch BodyPricer::stretch(std::span<const Node> nodes, std::size_t begin,
                                        std::size_t end, double slowed) const {
  Stretch all;
  for (std::size_t i = begin; i < end; ++i) {
    all.device += slowed * of_stream(nodes, i);
    all.host += host_ns_[i];
  }
  double left = all.device, issued = 0;
  for (std::size_t i = begin; i < end; ++i) {
    // Calls without a kernel of their own precede what follows.
    const double first = nodes[i].launches > 0 ? issue_us_ * 1e3 : host_ns_[i];
    all.from_idle = std::max(all.from_idle, issued + first + left);
    issued += host_ns_[i];
    left -= slowed * of_stream(nodes, i);
  }
  all.from_idle = std::max(all.from_idle, all.host);
  return all;
}

void BodyPricer::begin_idle(std::span<const Node> nodes) {
  const double device = totals_.compute_ns + totals_.exposed_ns + totals_.contention_ns;
  double alone = 0;
  for (std::size_t i = 0; i < nodes.size(); ++i) alone += of_stream(nodes, i);
  const double slowed = alone > 0 ? device / alone : 0;
  totals_.from_idle_ns = stretch(nodes, 0, nodes.size(), slowed).from_idle;
  if (std::ranges::none_of(nodes, &Node::drains)) return;
  // Where the host waits for the device it has no lead left, and what follows begins idle.
  for (std::size_t begin = 0; begin < nodes.size();) {
    std::size_t end = begin + 1;
    while (end < nodes.size() && !nodes[end].drains) ++end;
    const Stretch part = stretch(nodes, begin, end, slowed);
    const double both = soft_maximum(part.device, part.host, costs_.scalars.host_exponent);
    totals_.drained_ns += nodes[begin].drains ? std::max(part.from_idle, both) : both;
    begin = end;
  }
}

bool BodyPricer::spares_sms(std::span<const Node> nodes, std::size_t i) const {
  return costs_.spares_sms && nodes[i].kind() == NodeKind::Gemm && nodes[i].pieces > 1 &&
         i + 1 < nodes.size() && nodes[i + 1].kind() == NodeKind::ReduceScatter &&
         nodes[i + 1].pieces == nodes[i].pieces;
}

void BodyPricer::compute(std::span<const Node> nodes, const FusedNode& fused, std::size_t i) {
  const Node& node = nodes[i];
  NodeCost cost = fused.launched
                      ? price_node(costs_, node)
                      : without_launch(costs_, memory_class(costs_, node.kind()), fused.bytes);
  if (spares_sms(nodes, i)) cost.ns = ns_beside(costs_, node, costs_.piece_sms);
  if (node.routed) {
    totals_.imbalanced_ns += cost.ns * (busiest_rows_ - costs_.mean_rows);
    cost.ns *= busiest_rows_;
  }
  ns_[i] = cost.ns;
  levels_[i] = cost.level;
  count(cost);
  totals_.tensor_ns += cost.tensor_ns;
  totals_.flops16 += cost.flops16;
  totals_.hbm_bytes += static_cast<double>(fused.bytes);
  totals_.flops += node.flops;
}

void BodyPricer::count(const NodeCost& cost) {
  totals_.compute_ns += cost.ns;
  totals_.shared_ns += cost.ns * cost.shared;
  totals_.rests_on.add(cost.level, cost.table, cost.ns);
}

void BodyPricer::collective(const Node& node, std::size_t i) {
  count(price_before(costs_, node));
  if (!collectives_) return;
  const CollectiveUse use = collectives_(node.kind(), node.axis, Bytes{node.bytes});
  // A dispatch was priced with the busiest rank's rows of the mean layer.
  const bool by_rows =
      node.routed && node.kind() != NodeKind::Dispatch && node.kind() != NodeKind::Combine;
  const double rows = by_rows ? busiest_rows_ : busiest_rows_ / costs_.busiest_rows;
  ns_[i] = static_cast<double>(use.time.value) * (node.routed ? rows : 1);
  levels_[i] = use.level;
  totals_.collective_ns += ns_[i];
  crossing_ns_[i] = static_cast<double>(use.crossing.value) * (node.routed ? rows : 1);
  for (const Demand& demand : use.demands) {
    const auto found = std::ranges::find(totals_.demands, demand.resource, &Demand::resource);
    const double taken = demand.share * ns_[i];
    if (found != totals_.demands.end()) {
      found->share += taken;
    } else {
      totals_.demands.push_back({demand.resource, taken});
    }
  }
}

void BodyPricer::communicates(std::size_t i, double ns) {
  totals_.rests_on.add(levels_[i], collective_table(levels_[i]), ns);
}

void BodyPricer::expose(std::size_t i, double ns) {
  totals_.exposed_ns += ns;
  communicates(i, ns);
}

void BodyPricer::hide_beside(std::span<const Node> nodes, std::size_t at) {
  const bool piece = nodes[at].pieces > 1 && nodes[at].kind() != NodeKind::RingExchange;
  double room = 0, slowed = 0;
  const auto until = static_cast<std::size_t>(std::max(nodes[at].until, 0));
  for (std::size_t i = at + 1; i < until; ++i) {
    room += ns_[i];
    const bool slows = piece && !spares_sms(nodes, i);
    slowed += slows ? ns_beside(costs_, nodes[i], costs_.piece_sms) : ns_[i];
  }
  if (costs_.sharing.workers > 0) {
    const double crossing = std::max(0.0, crossing_ns_[at] - room);
    totals_.crossing_ns += crossing;
    return expose(at, ns_[at] - crossing_ns_[at] + crossing);
  }
  const double slowdown = nodes[at].axis == Axis::Tensor ? costs_.scalars.hidden_contention
                                                         : costs_.scalars.dispatch_slowdown;
  const Hidden out =
      nodes[at].pieces > 1 ? beside(ns_[at], room, slowed) : hide(ns_[at], room, slowdown);
  expose(at, out.exposed);
  totals_.contention_ns += out.contention;
  communicates(at, out.contention);
}

void BodyPricer::hide_ring(std::span<const Node> nodes, std::size_t at) {
  double room = 0;
  for (std::size_t i = at + 1; i < nodes.size() && in_stretch(nodes[i], true); ++i) room += ns_[i];
  expose(at, std::max(0.0, ns_[at] - room));
}

void BodyPricer::hide_stretches(std::span<const Node> nodes) {
  for (std::size_t begin = 0; begin < nodes.size();) {
    if (!in_stretch(nodes[begin], false) || nodes[begin].kind() == NodeKind::RingExchange) {
      ++begin;
      continue;
    }
    std::size_t end = begin, last = nodes.size();
    double room = 0, hidden = 0;
    for (; end < nodes.size() && in_stretch(nodes[end], false) &&
           nodes[end].kind() != NodeKind::RingExchange;
         ++end) {
      if (nodes[end].kind() == NodeKind::Gemm) room += ns_[end];
      if (!is_collective(nodes[end].kind())) continue;
      last = end;
      hidden += ns_[end];
    }
    if (last < nodes.size()) {
      const Hidden out = hide(hidden, room, costs_.scalars.hidden_contention);
      expose(last, out.exposed);
      totals_.contention_ns += out.contention;
      communicates(last, out.contention);
    }
    begin = end;
  }
}

}  // namespace rehearse::sim
