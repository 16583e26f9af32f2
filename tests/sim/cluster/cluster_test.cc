// SPDX-License-Identifier: Apache-2.0
#include "sim/cluster/cluster.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "schedules/base/json_reader.h"

namespace rehearse::sim {
namespace {

std::vector<std::string> json_files(const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".json") paths.push_back(entry.path().string());
  }
  std::ranges::sort(paths);
  return paths;
}

Cluster shipped(const std::string& id) {
  Result<Cluster> cluster = read_cluster({.path = "scenarios/clusters/" + id + ".json"});
  EXPECT_TRUE(cluster) << (cluster ? "" : cluster.error().message);
  return cluster ? std::move(cluster).value() : Cluster{};
}

// A whole small cluster, with `more` between its keys.
Result<Cluster> inline_cluster(const std::string& more) {
  return read_cluster(
      {.path = "scenarios/x.json",
       .inline_json = R"({"gpu": {"sm_count": 10, "peak_dense_tflops": {"bf16": 100},
 "memory_capacity_gb": 80, "memory_bandwidth_gb_per_s": 1000},
 "gpus_per_node": 4, "scale_up": {"kind": "nvswitch", "gb_per_s_per_direction_per_gpu": 300})" +
                      more + "}",
       .line = 5});
}

TEST(Cluster, EveryShippedFileIsRead) {
  const std::vector<std::string> paths = json_files("scenarios/clusters");
  EXPECT_GE(paths.size(), 37u);
  for (const std::string& path : paths) {
    const Result<Cluster> cluster = read_cluster({.path = path});
    ASSERT_TRUE(cluster) << cluster.error().message;
    EXPECT_EQ(cluster.value().id, std::filesystem::path(path).stem().string());
    EXPECT_GT(cluster.value().scale_up_bandwidth().value, 0) << path;
    EXPECT_GT(cluster.value().capacity().value, 0) << path;
    EXPECT_TRUE(cluster.value().peak_flops(ComputeType::Fp16)) << path;
  }
}

// 128 GPUs at 64 of 72 per domain are two whole domains; each keeps one NIC per GPU used.
TEST(Cluster, ADomainMayBeUsedInPart) {
  const Result<Scenario> scenario = parse_scenario(
      R"({"model": "gpt2-124m", "cluster": "gb200-nvl72", "domain_gpus": 64, "plan": {}})",
      "scenarios/x.json", 1, {});
  ASSERT_TRUE(scenario) << scenario.error().message;
  EXPECT_EQ(scenario.value().gpus, 64);  // left out: one node
  const Cluster used = read_cluster(scenario.value().cluster).value();
  EXPECT_EQ(used.gpus_per_node, 64);
  EXPECT_EQ(used.nics.count, 64);
  EXPECT_EQ(used.price_usd_per_gpu_hour, shipped("gb200-nvl72").price_usd_per_gpu_hour);
  const Result<Scenario> beyond = parse_scenario(
      R"({"model": "gpt2-124m", "cluster": "gb200-nvl72",
"domain_gpus": 73, "plan": {}})",
      "scenarios/x.json", 1, {});
  ASSERT_FALSE(beyond);
  EXPECT_EQ(beyond.error().message, "scenarios/x.json:2: domain_gpus: 73 of the 72 GPUs of a node");
}

TEST(Cluster, DgxA100HasTheFiguresOfItsFile) {
  const Cluster c = shipped("dgx-a100-80gb");
  EXPECT_EQ(c.gpu.architecture, "ampere");
  EXPECT_EQ(c.gpu.sm_count, 108);
  EXPECT_EQ(c.peak_flops(ComputeType::Bf16), 312e12);
  EXPECT_EQ(c.peak_flops(ComputeType::Fp32), 19.5e12);
  EXPECT_FALSE(c.peak_flops(ComputeType::Fp8));  // null in the file: not known
  EXPECT_EQ(c.gpu.memory_bandwidth.value, 2039e9);
  EXPECT_EQ(c.gpus_per_node, 8);
  EXPECT_EQ(c.scale_up_bandwidth().value, 300e9);
  EXPECT_EQ(c.scale_up.achievable_fraction, 0.77);
  EXPECT_EQ(c.nics.count, 8);
  EXPECT_EQ(c.nics.bandwidth_each.value, 25e9);
  EXPECT_FALSE(c.fabric);  // none named: full bisection
  EXPECT_FALSE(c.price_usd_per_gpu_hour);
  // 79.2 x 2^30 = 85,040,352,460.8 bytes
  EXPECT_EQ(c.capacity().value, 85'040'352'460);
}

TEST(Cluster, FabricIdNamesAShippedFabric) {
  const Cluster c = shipped("selene-a100-80gb");
  ASSERT_TRUE(c.fabric);
  EXPECT_EQ(c.fabric->id, "superpod-a100-hdr");
  EXPECT_EQ(c.fabric->topology, Topology::RailOptimizedFatTree);
  EXPECT_EQ(c.fabric->port_bandwidth.value, 25e9);  // 200 Gb/s
  EXPECT_EQ(c.fabric->rails, 8);
  const Cluster llama = shipped("llama3-h100-80gb");
  ASSERT_TRUE(llama.fabric);
  EXPECT_EQ(llama.fabric->pod_gpus, 3072);
  EXPECT_EQ(llama.fabric->oversubscription_aggregation_to_core, 7.0);
}

TEST(Cluster, APcieTreeHasTheBandwidthOfTheGpusLink) {
  const Cluster c = shipped("l40s-8");
  EXPECT_EQ(c.scale_up.kind, ScaleUpKind::PcieTree);
  EXPECT_EQ(c.scale_up_bandwidth().value, c.gpu.pcie.bandwidth.value);
  EXPECT_FALSE(c.gpu.nvlink);
}

TEST(Cluster, PriceOfANodeIsSharedByItsGpus) {
  bool seen = false;
  for (const std::string& path : json_files("scenarios/clusters")) {
    const Result<Cluster> cluster = read_cluster({.path = path});
    seen = seen || (cluster && cluster.value().price_usd_per_gpu_hour);
  }
  EXPECT_TRUE(seen);
  EXPECT_EQ(inline_cluster(R"(, "price_usd_per_node_hour": 32)").value().price_usd_per_gpu_hour, 8);
  EXPECT_EQ(inline_cluster(R"(, "price_per_gpu_hour": 3, "price_usd_per_node_hour": 32)")
                .value()
                .price_usd_per_gpu_hour,
            3);
}

TEST(Cluster, ValuesMaySayWhereTheyComeFrom) {
  const Result<Cluster> cluster =
      inline_cluster(R"(, "price_per_gpu_hour": {"value": 2.5, "source": "a page"})");
  ASSERT_TRUE(cluster) << cluster.error().message;
  EXPECT_EQ(cluster.value().price_usd_per_gpu_hour, 2.5);
}

TEST(Cluster, InlineErrorsHaveTheLineOfTheScenario) {
  const Result<Cluster> cluster = inline_cluster(",\n\"gpus_pr_node\": 8");
  ASSERT_FALSE(cluster);
  EXPECT_EQ(cluster.error().message,
            "scenarios/x.json:8: cluster.gpus_pr_node: unknown key, the nearest known one is "
            "gpus_per_node");
}

TEST(Cluster, InlineFabricAndCalibrationAreRead) {
  const Result<Cluster> cluster = inline_cluster(R"(,
    "nics": {"count": 4, "gb_per_s_per_direction_each": 25},
    "fabric": {"topology": "three_level_clos", "pod_gpus": 64, "between_pods_latency_us": 500},
    "calibration": {
      "gemm": [{"m": 1000, "n": 1000, "k": 1000, "fraction_of_peak": 0.5},
               {"m": 1000, "n": 1000, "k": 1000, "type": "bf16", "time_us": 80}],
      "collectives": [{"op": "reduce_scatter", "ranks": 8, "nodes": 2, "bytes": 4096, "time_us": 30}],
      "attention": [{"kernel": "flash2", "direction": "backward", "heads": 8, "sequence": 2048, "head_dim": 128, "time_us": 90}],
      "memory_bound": [{"op": "norm", "bytes": 1000000, "time_us": 4}],
      "copies": [{"direction": "d2h", "bytes": 4096, "time_us": 9}],
      "launch_us": 5.5,
      "scalars": {"memory.norm": 0.4}})");
  ASSERT_TRUE(cluster) << cluster.error().message;
  EXPECT_EQ(cluster.value().fabric->between_pods_latency_us, 500);
  EXPECT_EQ(cluster.value().nics.gpus_per_nic, 1);
  const Calibration& calibration = *cluster.value().calibration;
  // 2 x 10^9 FLOPs at 10^14 FLOP/s take 20 us; half the peak takes 40 us, 80 us is a quarter.
  ASSERT_EQ(calibration.gemm.size(), 2u);
  EXPECT_DOUBLE_EQ(calibration.gemm[0].time_us, 40);
  EXPECT_DOUBLE_EQ(calibration.gemm[1].fraction_of_peak, 0.25);
  EXPECT_EQ(calibration.collectives.at(0).op, CollectiveOp::ReduceScatter);
  EXPECT_EQ(calibration.collectives.at(0).nodes, 2);
  EXPECT_TRUE(calibration.attention.at(0).backward);
  EXPECT_EQ(calibration.attention.at(0).kv_heads, 8);
  EXPECT_EQ(calibration.memory_bound.at(0).op, "norm");
  EXPECT_EQ(calibration.copies.at(0).direction, CopyDirection::DeviceToHost);
  EXPECT_EQ(calibration.launch_us, 5.5);
  EXPECT_EQ(calibration.scalar("memory.norm"), 0.4);
  EXPECT_FALSE(calibration.scalar("memory.add"));
}

// Latent heads: 192 + 128 columns of products forward, 3 x 192 + 2 x 128 backward, where heads of
// one width have 2 x 192 and 5 x 192. A time is kept as that of such heads.
TEST(Cluster, TimesOfValuesNarrowerThanKeysAreKeptByTheirFlops) {
  const Result<Cluster> cluster = inline_cluster(R"(,
    "calibration": {"attention": [
      {"kernel": "flash2", "direction": "forward", "heads": 8, "sequence": 2048, "head_dim": 192,
       "value_dim": 128, "time_us": 320},
      {"kernel": "flash2", "direction": "backward", "heads": 8, "sequence": 2048, "head_dim": 192,
       "value_dim": 128, "time_us": 832},
      {"kernel": "flash2", "direction": "forward", "heads": 8, "sequence": 2048, "head_dim": 192,
       "time_us": 384}]})");
  ASSERT_TRUE(cluster) << cluster.error().message;
  const std::vector<AttentionPoint>& points = cluster.value().calibration->attention;
  EXPECT_NEAR(points.at(0).time_us, 384, 1e-9);
  EXPECT_NEAR(points.at(1).time_us, 960, 1e-9);
  EXPECT_EQ(points.at(2).time_us, 384);
}

TEST(Cluster, TheCalibrationOfThePageIsRead) {
  const Result<std::string> page = read_text_file("docs/add_a_cluster.md", 1 << 20);
  ASSERT_TRUE(page) << page.error().message;
  const std::size_t begin = page.value().find("```json\n", page.value().find("## Calibration")) + 8;
  const std::string example = page.value().substr(begin, page.value().find("```", begin) - begin);
  const Result<Cluster> cluster = inline_cluster(", \"calibration\": " + example);
  ASSERT_TRUE(cluster) << cluster.error().message;
  EXPECT_EQ(cluster.value().calibration->gemm.size(), 2u);
  EXPECT_EQ(cluster.value().calibration->collectives.size(), 1u);
}

TEST(Cluster, SeveralNodesNeedNics) {
  const Result<Cluster> cluster = inline_cluster("");
  ASSERT_TRUE(cluster);
  EXPECT_TRUE(check_gpus(cluster.value(), 4));
  EXPECT_FALSE(check_gpus(cluster.value(), 5));
}

}  // namespace
}  // namespace rehearse::sim
