// SPDX-License-Identifier: Apache-2.0
// One layer of experts put together: what must hold whatever the rates are.
#include "sim/predict/pricing/expert_layer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/sim/network/network_fixture.h"

namespace rehearse::sim {
namespace {

struct Rig {
  std::unique_ptr<Machine> machine = rehearse::sim::machine("dgx-h100");
  ComputeCosts costs = burst_costs(
      machine->cluster, read_kernel_scalars(machine->cluster, "scenarios/kernels").value());

  ExpertLayerCost price(const ExpertLayer& layer, std::int32_t ranks) const {
    const Plan plan = make_plan({.c = ranks});
    const Network network(machine->cluster, machine->model, plan, {});
    return expert_layer_cost(layer, costs, network.group({0}, Axis::Context), network);
  }
};

constexpr ExpertLayer kLayer{
    .tokens = 4096, .hidden = 4096, .width = 1536, .routing = {.experts = 64, .per_token = 4}};

double time_of(const std::vector<LayerPart>& parts, std::string_view word) {
  double sum = 0;
  for (const LayerPart& part : parts) {
    if (part.name.find(word) != std::string_view::npos) sum += part.ns;
  }
  return sum;
}
double communication_of(const std::vector<LayerPart>& parts) {
  double sum = 0;
  for (const LayerPart& part : parts) sum += part.communicates ? part.ns : 0;
  return sum;
}

// Ranks that share the experts do not divide the rows: each brings as many as it gets. Without a
// group nothing travels.
TEST(ExpertLayer, SharingExpertsMovesTokensAndKeepsRows) {
  const Rig rig;
  const ExpertLayerCost alone = rig.price(kLayer, 1);
  EXPECT_EQ(communication_of(alone.forward), 0);
  EXPECT_EQ(alone.rows, 4096 * 4);
  for (const Dispatcher d :
       {Dispatcher::AllToAll, Dispatcher::AllGather, Dispatcher::Deduplicated}) {
    ExpertLayer layer = kLayer;
    layer.dispatcher = d;
    const ExpertLayerCost shared = rig.price(layer, 8);
    EXPECT_EQ(shared.rows, alone.rows);
    EXPECT_GT(communication_of(shared.forward), 0);
    EXPECT_GT(time_of(shared.backward, "combine backward"), 0);
  }
}

// A backward has twice the products, and moves what the forward moved.
TEST(ExpertLayer, ABackwardMovesWhatItsForwardMoved) {
  const Rig rig;
  const ExpertLayerCost cost = rig.price(kLayer, 16);
  EXPECT_EQ(time_of(cost.forward, "dispatch"), time_of(cost.backward, "combine backward"));
  EXPECT_EQ(time_of(cost.forward, "combine"), time_of(cost.backward, "dispatch backward"));
  EXPECT_NEAR(time_of(cost.backward, "experts fc") / time_of(cost.forward, "experts fc"), 2, 0.1);
}

// The busiest rank sets the pace: products, rows and transfers of half more rows take half more.
TEST(ExpertLayer, ABusyRankIsWaitedFor) {
  const Rig rig;
  ExpertLayer layer = kLayer;
  layer.load = {LoadBalance::Factor, 1.5};
  const ExpertLayerCost even = rig.price(kLayer, 8), uneven = rig.price(layer, 8);
  EXPECT_EQ(uneven.rows, 1.5 * even.rows);
  EXPECT_NEAR(time_of(uneven.forward, "experts fc") / time_of(even.forward, "experts fc"), 1.5,
              0.03);
  EXPECT_GT(time_of(uneven.forward, "dispatch"), time_of(even.forward, "dispatch"));
}

// Beside dispatch and combine a shared expert costs what it does not hide, and its slowdown.
TEST(ExpertLayer, ASharedExpertHidesBesideTheTransfers) {
  const Rig rig;
  ExpertLayer layer = kLayer;
  layer.shared_width = 1536;
  const ExpertLayerCost apart = rig.price(layer, 8);
  layer.overlaps_shared = true;
  const ExpertLayerCost beside = rig.price(layer, 8);
  const double whole = time_of(apart.forward, "shared experts");
  const double left = time_of(beside.forward, "shared experts");
  EXPECT_GT(whole, left);
  EXPECT_GE(left, rig.costs.scalars.dispatch_slowdown * whole - 1e-6);
  const double moves = time_of(apart.forward, "dispatch") + time_of(apart.forward, "combine");
  EXPECT_GE(left, whole - moves * (1 - rig.costs.scalars.dispatch_slowdown) - 1e-6);
}

// 8 bit: faster products, and copies that a 16-bit layer does not have; a permutation that pads
// saves the copies of rows.
TEST(ExpertLayer, In8BitsCopiesWhatItMultiplies) {
  const Rig rig;
  ExpertLayer layer = kLayer;
  layer.block_fp8 = true;
  const ExpertLayerCost fp8 = rig.price(layer, 8), bf16 = rig.price(kLayer, 8);
  EXPECT_LT(time_of(fp8.forward, "experts fc"), time_of(bf16.forward, "experts fc"));
  EXPECT_EQ(time_of(bf16.forward, "quantise"), 0);
  EXPECT_GT(time_of(fp8.forward, "quantise"), 0);
  layer.pads_in_place = true;
  EXPECT_EQ(time_of(rig.price(layer, 8).forward, "pad rows"), 0);
  EXPECT_GT(time_of(fp8.forward, "pad rows"), 0);
}

// A forward's dispatch in 8 bit leaves combine and backward in 16.
TEST(ExpertLayer, DispatchesIn8Bits) {
  const Rig rig;
  ExpertLayer layer = kLayer;
  layer.dispatcher = Dispatcher::Deduplicated;
  const ExpertLayerCost bf16 = rig.price(layer, 64);
  layer.fp8_dispatch = true;
  const ExpertLayerCost fp8 = rig.price(layer, 64);
  EXPECT_NEAR(
      static_cast<double>(fp8.dispatch.nic_bytes) / static_cast<double>(bf16.dispatch.nic_bytes),
      33.0 / 64, 1e-6);
  EXPECT_EQ(fp8.combine.nic_bytes, bf16.combine.nic_bytes);
  EXPECT_EQ(total_ns(fp8.backward), total_ns(bf16.backward));
}

}  // namespace
}  // namespace rehearse::sim
