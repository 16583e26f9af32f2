// SPDX-License-Identifier: Apache-2.0
// Pipeline transfers and host copies, by hand and against Vidur's measured pairs.
#include "sim/network/transfer_cost.h"

#include <cmath>

#include "tests/sim/network/network_fixture.h"

namespace rehearse::sim {
namespace {

double microseconds(const TransferCost& cost) {
  return static_cast<double>(cost.time.value) * 1e-3;
}

TEST(TransferCost, IsTheNicOfOneRankBetweenNodes) {
  // Recipe 3.10: 20 us + S / (0.9 NIC) on InfiniBand of 1.5 us; 50 MB over 8 rails of 25 GB/s.
  const auto selene = machine("selene-a100-80gb");
  const Network network = make_network(*selene, make_plan({.t = 8, .p = 8, .d = 16}));
  const std::int64_t bytes = 2LL * 2048 * 12288 / 8;
  const TransferCost cost = transfer_cost({bytes}, network.path({0}, {1}), network);
  EXPECT_NEAR(microseconds(cost), 20 + static_cast<double>(bytes) / (.9 * 25e9) * 1e6, .002);
  EXPECT_EQ(cost.link, LinkKind::Nic);
  ASSERT_EQ(cost.send.size(), 1u);
  ASSERT_EQ(cost.recv.size(), 1u);
  EXPECT_EQ(network.links()[cost.send[0].resource.index()].kind, LinkKind::Nic);
  EXPECT_TRUE(network.links()[cost.send[0].resource.index()].outward);
  EXPECT_FALSE(network.links()[cost.recv[0].resource.index()].outward);
  // While it runs it has the NIC for all but the 20 us.
  EXPECT_NEAR(cost.send[0].share, 1 - 20 / microseconds(cost), 1e-3);
}

TEST(TransferCost, AgreesWithVidursPairsInsideANode) {
  const nlohmann::json data = read_data("vidur_send_recv.json");
  ASSERT_FALSE(data.is_discarded());
  int tables = 0;
  for (const nlohmann::json& row : data["rows"]) {
    const std::string system = row["system"];
    if (row["path"] != "intra_node" || (system != "a100_dgx" && system != "h100_dgx")) continue;
    const auto node = machine(system == "a100_dgx" ? "dgx-a100-80gb" : "dgx-h100");
    const Network network = make_network(*node, make_plan({.p = 2}));
    const Path path = network.path({0}, {1});
    double sum = 0;
    for (const nlohmann::json& point : row["points"]) {
      const Bytes bytes{point["bytes"].get<std::int64_t>()};
      sum += std::abs(microseconds(transfer_cost(bytes, path, network)) /
                          point["time_us_median"].get<double>() -
                      1);
    }
    const double mean = sum / static_cast<double>(row["points"].size());
    EXPECT_LT(mean, system == "a100_dgx" ? .18 : .095) << system;
    ++tables;
  }
  EXPECT_EQ(tables, 2);
}

TEST(TransferCost, CostsNothingOnTheSameDevice) {
  const auto dgx = machine("dgx-a100-80gb");
  const Network network = make_network(*dgx, make_plan({.p = 2}));
  const TransferCost cost = transfer_cost({1 << 20}, network.path({1}, {1}), network);
  EXPECT_EQ(cost.time.value, 0);
  EXPECT_TRUE(cost.send.empty());
}

TEST(TransferCost, ScattersOverTheRailsAndGathersAtTheReceiver) {
  const auto selene = machine("selene-a100-80gb");
  const Network network = make_network(*selene, make_plan({.t = 8, .p = 2, .d = 2}));
  const Bytes whole{2LL * 2048 * 12288};
  const Path path = network.path({0}, {1});
  const GroupShape tensor = network.group({1}, Axis::Tensor);
  const TransferCost cost = scatter_gather_transfer_cost(whole, path, tensor, network);
  const TransferCost eighth = transfer_cost({whole.value / 8}, path, network);
  const CollectiveCost gather = collective_cost(OpKind::AllGather, whole, tensor, network);
  EXPECT_EQ(cost.time, eighth.time + gather.time);
  EXPECT_LT(cost.time, transfer_cost(whole, path, network).time);
  for (const Demand& demand : cost.recv) EXPECT_LE(demand.share, 1);
  EXPECT_EQ(cost.recv.size(), 3u);  // the NIC inwards, the ports both ways
}

TEST(TransferCost, SharesASlowNicWithItsSiblings) {
  // One NIC of 12.5 GB/s for 8 GPUs, of which TCP reaches 0.7: eight pairs at once, each at an
  // eighth.
  const auto a2 = machine("gcp-a2-highgpu-8g");
  const Network network = make_network(*a2, make_plan({.t = 8, .p = 2}));
  const TransferCost cost = transfer_cost({1 << 30}, network.path({0}, {1}), network);
  const double wire = 8.0 * (1 << 30) / (.7 * 12.5e9) * 1e6;
  EXPECT_NEAR(microseconds(cost), 17 + 2 * 30 + wire, .01);  // NIC latency 30 us
}

TEST(TransferCost, AddsTheDistanceBetweenDataCentres) {
  auto dgx = machine("dgx-h100");
  Fabric fabric;
  fabric.pod_gpus = 8;
  fabric.between_pods_latency_us = 5000;
  dgx->cluster.fabric = fabric;
  const Network far = make_network(*dgx, make_plan({.t = 8, .p = 2}));
  dgx->cluster.fabric.reset();
  const Network near = make_network(*dgx, make_plan({.t = 8, .p = 2}));
  const double added = microseconds(transfer_cost({4096}, near.path({0}, {1}), near));
  dgx->cluster.fabric = fabric;
  EXPECT_NEAR(microseconds(transfer_cost({4096}, far.path({0}, {1}), far)), added + 5000, .01);
}

TEST(HostCopy, IsBoundByTheSwitchThatItsGpusShare) {
  const auto dgx = machine("dgx-a100-80gb");
  const CollectiveConstants& k = dgx->model.constants;
  const Network one = make_network(*dgx, make_plan({}));
  const Network eight = make_network(*dgx, make_plan({.t = 8}));
  const double bytes = 1 << 30, link = 31e9 * k.host_copy_fraction;
  const TransferCost alone = host_copy_cost({1 << 30}, true, one.to_host({0}), one);
  const TransferCost shared = host_copy_cost({1 << 30}, false, eight.to_host({0}), eight);
  EXPECT_NEAR(microseconds(alone), k.host_copy_alpha * 1e6 + bytes / link * 1e6, .01);
  EXPECT_NEAR(microseconds(shared), k.host_copy_alpha * 1e6 + 2 * bytes / link * 1e6, .01);
  EXPECT_TRUE(alone.recv.empty());
  EXPECT_TRUE(shared.send.empty());
  EXPECT_EQ(one.links()[alone.send.at(0).resource.index()].kind, LinkKind::Pcie);
}

TEST(HostCopy, TakesTheClustersOwnMeasurementFirst) {
  auto dgx = machine("dgx-a100-80gb");
  dgx->cluster.calibration = Calibration{};
  dgx->cluster.calibration->copies = {{CopyDirection::DeviceToHost, 1 << 20, 50},
                                      {CopyDirection::DeviceToHost, 1 << 24, 800}};
  const Network network = make_network(*dgx, make_plan({}));
  const Path path = network.to_host({0});
  EXPECT_NEAR(microseconds(host_copy_cost({1 << 20}, true, path, network)), 50, 1e-3);
  EXPECT_NEAR(microseconds(host_copy_cost({1 << 22}, true, path, network)), 200, 1e-2);
  EXPECT_EQ(host_copy_cost({1 << 22}, true, path, network).level, CostLevel::Interpolated);
  EXPECT_EQ(host_copy_cost({1 << 22}, false, path, network).level, CostLevel::Formula);
}

}  // namespace
}  // namespace rehearse::sim
