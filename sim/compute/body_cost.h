// SPDX-License-Identifier: Apache-2.0
// What the inside of a compute op costs: a body priced as one time, with what it waits for.
//
// The compute model of one GPU type under one plan. Nodes are priced one after another on one
// stream (compute_cost.h); collectives inside a body are timed by a function that the caller gives
// (collective_cost.h), hidden where the runtime hides them; the host that issues bounds the whole.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "schedules/base/result.h"
#include "schedules/body/body.h"
#include "sim/cluster/cluster.h"
#include "sim/compute/compute_cost.h"
#include "sim/cost/cost.h"
#include "sim/cost/rests_on.h"

namespace rehearse::sim {

// A collective alone on idle links, and what it takes of them while it runs.
struct CollectiveUse {
  Nanoseconds time{};
  std::vector<Demand> demands;
  CostLevel level = CostLevel::Formula;
  Nanoseconds crossing{};  // of `time`: over throttled links, where nobody copies
};
// `kind`: AllReduce, AllGather, ReduceScatter, AllToAll, RingExchange (to the next rank of the
// axis); `payload`: the whole array (RingExchange: all that one rank sends to the next). Asked for
// Axis::Tensor, Axis::Context and those of experts by bodies, and for Axis::Data once where the
// clock is found. `kind` also Dispatch and Combine, of all copies of a rank's tokens, whose time is
// that of the busiest rank.
using CollectiveTimes = std::function<CollectiveUse(NodeKind kind, Axis axis, Bytes payload)>;

struct NodePrice {
  Nanoseconds time{};
  CostLevel level = CostLevel::Formula;
};

struct BodyCost {
  Nanoseconds time{};           // alone: soft maximum of device and host time
  Nanoseconds device{};         // kernels and exposed collectives, the host out of the way
  Nanoseconds communicating{};  // of `time`: waiting for its own collectives (idle, not busy)
  Nanoseconds crossing{};       // of that: over throttled links, where no worker copies
  Nanoseconds imbalanced{};     // of `time`: the mean rank waits for the busiest (idle, not busy)
  Nanoseconds host{};  // the host thread's work. Already inside `time`: a Cost made of this
                       //   has host = 0
  // From an idle device to its last kernel's end, where the host drains at transfers; else 0.
  Nanoseconds from_idle{};
  Nanoseconds collectives{};             // all of its own collectives, hidden ones too
  CostLevel level = CostLevel::Formula;  // the level that most of the time rests on
  RestsOn rests_on;                      // `device` by level and by table [ns]
  double flops = 0;                      // of matrix products and attention, recomputation included
  double shared = 1;  // a CPU: time of its computing while all workers compute, over it alone
  std::vector<Demand> demands;  // shares averaged over `time`
};

// The sum of bodies run one after another (a compute op over several segments). Where the host has
// no lead when the op begins, it gains one body after another: A and then B take
// max(L_A + D_B, H_A + L_B), with host H, device D and, from an idle device, L.
BodyCost sum(const std::vector<const BodyCost*>& bodies);

constexpr int kNewtonSchulzSteps = 5;

class ComputeModel {
 public:
  // Scalars of the GPU and, where it would exceed its power limit under this plan, the clock that
  // it settles at. REQUIRES: its plan is resolved.
  static Result<ComputeModel> create(const Cluster& cluster, const Layout& layout,
                                     const CollectiveTimes& collectives);
  // The same with scalars that the caller has (tests, what-if).
  // `known`: what was found of products under other plans, of who prices many; null: nothing.
  static Result<ComputeModel> create(const Cluster& cluster, const Layout& layout,
                                     const CollectiveTimes& collectives, KernelScalars scalars,
                                     KnownProducts* known = nullptr);

  // A body of the layout that it was created with, which the caller names again: as it was made for
  // the clock, or made now, into `made`.
  const Body& body(const Layout& layout, const BodyShape& shape, std::optional<Body>& made) const;

  // `layer`: of the model, whose experts have the rows that a run measured there; -1: their mean.
  BodyCost price(const Body& body, std::int32_t layer = -1) const;
  // Each node alone, in the body's order: kernels, and collectives whether hidden or not. Their sum
  // is not the body's time, which hides collectives and may be bound by the host.
  std::vector<NodePrice> price_nodes(const Body& body, std::int32_t layer = -1) const;
  // Kernels outside of bodies; `parameters` is what this rank owns or holds.
  Nanoseconds optimizer_step(std::int64_t parameters) const;
  // Muon's update of a matrix: five steps X <- 3.4445 X + (-4.775 A + 2.0315 A^2) X, A = X X^T, in
  // bf16 (Jordan et al., 2024, github.com/KellerJordan/Muon).
  Nanoseconds orthogonalize(std::int64_t rows, std::int64_t columns) const;
  Bytes optimizer_bytes(std::int64_t parameters) const;  // that an update reads and writes
  Nanoseconds gradient_norm(std::int64_t parameters) const;
  Nanoseconds clear(Bytes bytes) const;  // sets memory to zero
  Nanoseconds elementwise(
      Bytes moved) const;  // casts, ADD of two gradients: bytes read and written
  // Parameters to 8 bit before they are gathered, or back behind it. `moved`: where no table has
  // it.
  Nanoseconds quantize(std::int64_t values, bool back, Bytes moved) const;

  double clock() const { return costs_.clock; }  // share of the full tensor clock, (0, 1]
  const KernelScalars& scalars() const { return costs_.scalars; }
  const WorkerSharing& sharing() const { return costs_.sharing; }

 private:
  ComputeModel() = default;
  double memory_bound_ns(std::string_view op, MemoryClass otherwise, double bytes) const;
  ComputeCosts costs_;
  CollectiveTimes collectives_;
  Plan plan_;
  std::vector<std::pair<BodyShape, Body>> bodies_;
};

}  // namespace rehearse::sim
