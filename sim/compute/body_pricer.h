// SPDX-License-Identifier: Apache-2.0
// The nodes of one body priced one after another on one stream: kernels, collectives and what hides
// them, and the host that issues.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "schedules/body/body.h"
#include "sim/compute/body_cost.h"
#include "sim/compute/compute_cost.h"
#include "sim/compute/fused_nodes.h"
#include "sim/cost/cost.h"
#include "sim/cost/rests_on.h"

namespace rehearse::sim {

// (a^n + b^n)^(1/n): host-bound and device-bound stretches alternate inside a layer.
double soft_maximum(double a, double b, double exponent);

struct BodyTotals {
  double compute_ns = 0, exposed_ns = 0, contention_ns = 0, collective_ns = 0, host_us = 0;
  double crossing_ns = 0;  // of exposed_ns: over throttled links
  double calls_us = 0;     // of host_us: for single experts or parts, of an assumed time each
  double tensor_ns = 0, flops16 = 0, hbm_bytes = 0, flops = 0;
  double from_idle_ns = 0;   // from an idle device to the end of the last kernel
  double drained_ns = 0;     // the body, where its host waits for the device on the way; else 0
  double imbalanced_ns = 0;  // of compute_ns: what the busiest rank does beyond the mean
  double shared_ns = 0;      // compute_ns while all workers of a CPU compute
  RestsOn rests_on;
  std::vector<Demand> demands;  // share * ns until divided by the body's time
};

class BodyPricer {
 public:
  BodyPricer(const ComputeCosts& costs, const CollectiveTimes& collectives, double issue_us,
             std::int32_t layer = -1);

  BodyTotals price(std::span<const Node> nodes);
  // After price(): each node alone.
  std::vector<NodePrice> nodes() const;

 private:
  // Hidden collectives take no time of the stream; what they slow is spread over all kernels.
  double of_stream(std::span<const Node> nodes, std::size_t i) const;
  struct Stretch {
    double device = 0, host = 0;
    double from_idle = 0;  // from an idle device to the end of the last kernel
  };
  // Nodes [begin, end). Every kernel waits for the first of its launches; behind it the device
  // works on what is left. `slowed`: time of the stream over that of its kernels alone.
  Stretch stretch(std::span<const Node> nodes, std::size_t begin, std::size_t end,
                  double slowed) const;
  void begin_idle(std::span<const Node> nodes);

  // Transformer Engine's pipeline: all parts of its product run beside as few SMs as its sums take.
  bool spares_sms(std::span<const Node> nodes, std::size_t i) const;

  void compute(std::span<const Node> nodes, const FusedNode& fused, std::size_t i);
  void count(const NodeCost& cost);
  void collective(const Node& node, std::size_t i);
  void communicates(std::size_t i, double ns);
  void expose(std::size_t i, double ns);

  // Nodes up to `until` run while the collective is under way: on a device on a stream beside it,
  // where what is hidden slows compute; the workers of a CPU copy themselves, and compute while
  // what they sent crosses a throttled link. Copy engines carry a ring.
  void hide_beside(std::span<const Node> nodes, std::size_t at);
  void hide_ring(std::span<const Node> nodes, std::size_t at);
  // Hidden collectives of one stretch and the products that they run beside. What is hidden costs a
  // share of itself (it takes SMs and bandwidth from the products); what does not fit is exposed.
  void hide_stretches(std::span<const Node> nodes);

  const ComputeCosts& costs_;
  const CollectiveTimes& collectives_;
  double issue_us_;
  double busiest_rows_;  // of the body's layer
  BodyTotals totals_;
  std::vector<double> ns_, host_ns_;
  std::vector<double> crossing_ns_;  // of ns_: over throttled links
  std::vector<CostLevel> levels_;
};

}  // namespace rehearse::sim
