// What is measured is written so that the simulator reads the same numbers.
#include "exec/calibration_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "exec/measure.h"
#include "sim/cluster.h"

namespace rehearse::exec {
namespace {

MachineTables tables() {
  MachineTables t{.cpu = "A \"CPU\"",
                  .instruction_set = "avx2",
                  .date = "2026-01-01",
                  .cores = 4,
                  .memory_bytes = std::int64_t{16} << 30};
  t.gemm = {{GemmRole::Forward, 64, 128, 256, 100.0},
            {GemmRole::InputGradient, 64, 256, 128, 110.0},
            {GemmRole::WeightGradient, 256, 128, 64, 120.5}};
  t.kernels = {{"norm", false, 4096, 1.25},
               {"norm", true, 8192, 2.5},
               {"copy", false, 65536, 4.0},
               {"add", false, 65536, 8.0}};
  t.attention = {{true, 2, 128, 64, 33.0}};
  t.exchanges = {{OpKind::AllReduce, 2, 4096, 3.0}, {OpKind::Send, 2, 4096, 1.0}};
  t.products_together = 1.2;
  t.attention_together = 1.1;
  t.kernels_together = 1.5;
  t.op_us = 0.75;
  t.meeting_us = 12;
  t.handover_us = 20;
  t.noise = 0.02;
  return t;
}

TEST(CalibrationFile, IsReadAsItWasWritten) {
  const std::string folder = testing::TempDir() + "calibration_file_test/";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "here.json") << calibration_text(tables(), "here", "1.0");
  std::ofstream(folder + "here.cluster.json")
      << cluster_text(tables(), "here.cluster", "here.json");
  const Result<sim::Cluster> read = sim::read_cluster({.path = folder + "here.cluster.json"});
  ASSERT_TRUE(read) << read.error().message;
  const sim::Cluster& cluster = read.value();
  EXPECT_EQ(cluster.workers, 4);
  EXPECT_EQ(cluster.gpus_per_node, 4);
  EXPECT_EQ(cluster.capacity().value, std::int64_t{4} << 30);
  // The best product: 2 * 64 * 128 * 256 FLOPs in 100 us.
  EXPECT_NEAR(*cluster.peak_flops(ComputeType::Fp32), 2.0 * 64 * 128 * 256 / 100e-6, 1e3);
  EXPECT_NEAR(cluster.gpu.memory_bandwidth.value, 65536 / 8e-6, 1e6);
  ASSERT_TRUE(cluster.calibration);
  const sim::Calibration& c = *cluster.calibration;
  ASSERT_EQ(c.gemm.size(), 3u);
  EXPECT_EQ(c.gemm[0].layout, "TN");
  EXPECT_EQ(c.gemm[1].layout, "NN");
  EXPECT_FALSE(c.gemm[1].accumulate);
  EXPECT_EQ(c.gemm[2].layout, "NT");
  EXPECT_TRUE(c.gemm[2].accumulate);
  EXPECT_EQ(c.gemm[2].type, ComputeType::Fp32);
  EXPECT_EQ(c.gemm[2].m, 256);
  EXPECT_EQ(c.gemm[2].n, 128);
  EXPECT_EQ(c.gemm[2].k, 64);
  EXPECT_EQ(c.gemm[2].time_us, 120.5);
  ASSERT_EQ(c.memory_bound.size(), 4u);
  EXPECT_FALSE(c.memory_bound[0].backward);
  EXPECT_TRUE(c.memory_bound[1].backward);
  EXPECT_EQ(c.memory_bound[1].bytes, 8192);
  EXPECT_EQ(c.memory_bound[1].time_us, 2.5);
  ASSERT_EQ(c.attention.size(), 1u);
  EXPECT_TRUE(c.attention[0].backward);
  EXPECT_EQ(c.attention[0].sequence, 128);
  ASSERT_EQ(c.collectives.size(), 2u);
  EXPECT_EQ(c.collectives[0].op, sim::CollectiveOp::AllReduce);
  EXPECT_EQ(c.collectives[1].op, sim::CollectiveOp::SendRecv);
  ASSERT_EQ(c.copies.size(), 2u);
  EXPECT_EQ(c.copies[0].bytes, 32768);  // read and written
  EXPECT_EQ(*c.launch_us, 0.75);
  EXPECT_EQ(*c.scalar("workers.matrix_products"), 1.2);
  EXPECT_EQ(*c.scalar("workers.meeting_us"), 12);
  EXPECT_EQ(*c.scalar("workers.handover_us"), 20);
}

TEST(Stopwatch, TakesTheMedianAndKnowsTheSpread) {
  Stopwatch watch(5, 0);
  int calls = 0;
  const double us = watch.median_us([&] { ++calls; });
  EXPECT_EQ(calls, 6);  // one that does not count
  EXPECT_GE(us, 0);
  EXPECT_GE(watch.noise(), 0);
}

TEST(RotatingMemory, HandsOutAlignedPiecesAndBeginsAgain) {
  RotatingMemory memory(1 << 16);
  const float* first = memory.next(4096);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % 256, 0u);
  EXPECT_NE(memory.next(4096), first);
  bool again = false;
  for (int i = 0; i < 8; ++i) again = again || memory.next(4096) == first;
  EXPECT_TRUE(again);
  const float* large = memory.next(1 << 16);  // more than there was
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(large) % 256, 0u);
  for (int i = 0; i < 1 << 16; ++i) EXPECT_LT(std::fabs(large[i]), 1.0F);
}

}  // namespace
}  // namespace rehearse::exec
