// SPDX-License-Identifier: Apache-2.0
// Energy of a training run, and files of prices.
#include "sim/search/buy/energy.h"

#include <gtest/gtest.h>

#include <fstream>

#include "sim/search/buy/prices.h"

namespace rehearse::sim {
namespace {

// 16 GPUs of 700 W on two nodes of 10,200 W: a host takes 10,200 - 8 x 700 = 4,600 W. An hour of
// GPUs at 500 W: 8 kWh, hosts 9.2 kWh, 16 NICs at 50 W 0.8 kWh, at a PUE of 1.25 22.5 kWh, 9 kg.
Cluster nodes_of_eight() {
  Cluster cluster;
  cluster.gpus_per_node = 8;
  cluster.nics.count = 8;
  cluster.gpu.tdp_w = 700;
  return cluster;
}
const Site kMadeUp{.pue = {1.25, "t"}, .co2_g_per_kwh = {400, "t"}, .network_w_per_nic = {50, "t"}};

TEST(Energy, CountsGpusHostsNetworkAndTheBuilding) {
  Cluster cluster = nodes_of_eight();
  cluster.system_power_max_w = 10200;
  EXPECT_NEAR(host_w(cluster).value(), 4600, 1e-9);
  const TrainingEnergy energy =
      training_energy(16 * 500, host_w(cluster), 3600, 16, cluster, kMadeUp);
  EXPECT_NEAR(energy.gpu_kwh, 8, 1e-9);
  EXPECT_NEAR(energy.host_kwh.value(), 9.2, 1e-9);
  EXPECT_NEAR(energy.network_kwh, 0.8, 1e-9);
  EXPECT_NEAR(energy.facility_kwh.value(), 22.5, 1e-9);
  EXPECT_NEAR(energy.co2_t.value(), 0.009, 1e-9);
  EXPECT_EQ(training_energy(4000, 100, 3600, 8, cluster, kMadeUp).network_kwh, 0);  // one node
}

TEST(Energy, OfANodeThatNobodyDescribedIsNotKnown) {
  const Cluster cluster = nodes_of_eight();
  EXPECT_FALSE(host_w(cluster));
  const TrainingEnergy energy = training_energy(500, {}, 3600, 16, cluster, kMadeUp);
  EXPECT_NEAR(energy.gpu_kwh, 0.5, 1e-12);
  EXPECT_FALSE(energy.facility_kwh);
  EXPECT_FALSE(energy.co2_t);
}

TEST(Site, OfAnAverageSiteSaysWhereItsFiguresAreFrom) {
  const Result<Site> site = average_site();
  ASSERT_TRUE(site) << site.error().message;
  for (const SourcedFigure& figure :
       {site.value().pue, site.value().co2_g_per_kwh, site.value().network_w_per_nic}) {
    EXPECT_GT(figure.value, 1);
    EXPECT_FALSE(figure.source.empty());
  }
}

Result<std::vector<Price>> prices_of(const std::string& text) {
  const std::string path = testing::TempDir() + "/prices.json";
  std::ofstream(path) << text;
  return read_prices(path);
}

TEST(Prices, AreReadByCluster) {
  const auto prices = prices_of(R"({"schema": "prices/1", "prices": [
    {"cluster": "dgx-h100", "usd_per_gpu_hour": 2.5, "interruptions_per_million_gpu_hours": 100,
     "source": "s"},
    {"cluster": "dgx-b200", "usd_per_gpu_hour": 4, "source": "assumed"}]})");
  ASSERT_TRUE(prices) << prices.error().message;
  EXPECT_EQ(price_of(prices.value(), "dgx-h100")->usd_per_gpu_hour, 2.5);
  EXPECT_EQ(price_of(prices.value(), "dgx-h100")->interruptions_per_million_gpu_hours, 100);
  EXPECT_EQ(price_of(prices.value(), "dgx-b200")->usd_per_gpu_hour, 4);
  EXPECT_EQ(price_of(prices.value(), "dgx-a100-80gb"), nullptr);
}

// By file, line and key.
TEST(Prices, AreRefusedWhereTheyAreBroken) {
  const auto refused = [](const std::string& rows, const std::string& where) {
    const auto prices = prices_of("{\"prices\": [\n" + rows + "]}");
    ASSERT_FALSE(prices) << rows;
    EXPECT_NE(prices.error().message.find("prices.json:2: " + where), std::string::npos)
        << prices.error().message;
  };
  const std::string good = R"("cluster": "a", "source": "s")";
  refused("{" + good + "}", "prices[0].usd_per_gpu_hour: ");
  refused("{" + good + R"(, "usd_per_gpu_hour": -1})", "prices[0].usd_per_gpu_hour: ");
  refused(R"({"cluster": "a", "usd_per_gpu_hour": 1})", "prices[0].source: ");
  refused("{" + good + R"(, "usd_per_gpu_hour": 1, "usd": 2})", "prices[0].usd: ");
  const std::string one = "{" + good + R"(, "usd_per_gpu_hour": 1})";
  refused(one + ", " + one, "prices[1].cluster: \"a\" has two prices");
}

}  // namespace
}  // namespace rehearse::sim
