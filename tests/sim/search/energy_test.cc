// SPDX-License-Identifier: Apache-2.0
// Energy of a training run, and files of prices.
#include "sim/search/buy/energy.h"

#include <gtest/gtest.h>

#include <fstream>

#include "sim/search/buy/prices.h"

namespace rehearse::sim {
namespace {

// 16 GPUs of 700 W on two nodes of 10,200 W: the rest of a node takes 10,200 - 8 x 700 = 4,600 W.
// An hour of GPUs at 500 W: 8 kWh, host and network 9.2 kWh, at a PUE of 1.25 21.5 kWh.
TEST(Energy, CountsGpusHostsAndTheBuilding) {
  Cluster cluster;
  cluster.gpus_per_node = 8;
  cluster.gpu.tdp_w = 700;
  cluster.system_power_max_w = 10200;
  EXPECT_NEAR(rest_of_node_w(cluster).value(), 4600, 1e-9);
  const TrainingEnergy energy =
      training_energy(16 * 500, 3600, 16, cluster, {.pue = 1.25, .co2_g_per_kwh = 400});
  EXPECT_NEAR(energy.gpu_kwh, 8, 1e-9);
  EXPECT_NEAR(energy.host_kwh.value(), 9.2, 1e-9);
  EXPECT_NEAR(energy.facility_kwh.value(), 21.5, 1e-9);
  EXPECT_NEAR(energy.co2_t.value(), 0.0086, 1e-9);
}

TEST(Energy, OfANodeThatNobodyDescribedIsNotKnown) {
  Cluster cluster;
  cluster.gpu.tdp_w = 700;
  EXPECT_FALSE(rest_of_node_w(cluster));
  EXPECT_FALSE(training_energy(500, 3600, 1, cluster, {.co2_g_per_kwh = 400}).facility_kwh);
  EXPECT_FALSE(training_energy(500, 3600, 1, cluster, {.co2_g_per_kwh = 400}).co2_t);
  EXPECT_NEAR(training_energy(500, 3600, 1, cluster, {.node_w = 100}).host_kwh.value(), 0.1, 1e-12);
}

Result<std::vector<Price>> prices_of(const std::string& text) {
  const std::string path = testing::TempDir() + "/prices.json";
  std::ofstream(path) << text;
  return read_prices(path);
}

TEST(Prices, AreReadByCluster) {
  const auto prices = prices_of(R"({"schema": "prices/1", "prices": [
    {"cluster": "dgx-h100", "usd_per_gpu_hour": 2.5, "interruptions_per_million_gpu_hours": 100, "source": "s"},
    {"cluster": "dgx-b200", "usd_per_gpu_hour": 4}]})");
  ASSERT_TRUE(prices) << prices.error().message;
  EXPECT_EQ(price_of(prices.value(), "dgx-h100")->usd_per_gpu_hour, 2.5);
  EXPECT_EQ(price_of(prices.value(), "dgx-h100")->interruptions_per_million_gpu_hours, 100);
  EXPECT_EQ(price_of(prices.value(), "dgx-b200")->usd_per_gpu_hour, 4);
  EXPECT_EQ(price_of(prices.value(), "dgx-a100-80gb"), nullptr);
}

TEST(Prices, AreRefusedWhereTheyAreBroken) {
  const auto refused = [](const std::string& text) {
    const auto prices = prices_of(text);
    return prices ? std::string("read") : prices.error().message;
  };
  EXPECT_NE(refused(R"({"prices": [{"cluster": "a"}]})").find("usd_per_gpu_hour"), std::string::npos);
  EXPECT_NE(refused(R"({"prices": [{"cluster": "a", "usd_per_gpu_hour": -1}]})").find("usd_per_gpu_hour"), std::string::npos);
  EXPECT_NE(refused(R"({"prices": [{"cluster": "a", "usd_per_gpu_hour": 1}, {"cluster": "a", "usd_per_gpu_hour": 2}]})").find("two prices"), std::string::npos);
  EXPECT_NE(refused(R"({"price": []})").find("price"), std::string::npos);
}

}  // namespace
}  // namespace rehearse::sim
