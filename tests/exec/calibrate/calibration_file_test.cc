// SPDX-License-Identifier: Apache-2.0
// What is measured is written so that the simulator reads the same numbers.
#include "exec/calibrate/calibration_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "exec/calibrate/measure.h"
#include "exec/cpu/cpu_backend.h"
#include "sim/cluster/cluster.h"
#include "sim/compute/kernel_scalars.h"

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
  t.attention = {{true, true, false, 2, 128, 64, 33.0},
                 {false, false, true, 2, 64, 64, 11.0},
                 {false, true, true, 2, 64, 64, 7.0},
                 {false, true, false, 2, 128, 192, 320.0, 1, 128},
                 {true, false, true, 2, 64, 64, 8.0, 1, 0, true}};
  t.exchanges = {{OpKind::AllReduce, 2, 4096, 3.0},
                 {OpKind::Send, 2, 4096, 1.0},
                 {OpKind::Send, 2, 4096, 9.0, ExchangeTime::Way::Memory},
                 {OpKind::Send, 2, 4096, 90.0, ExchangeTime::Way::Tcp},
                 {OpKind::Reduce, 4, 4096, 5.0, ExchangeTime::Way::Process, true}};
  t.copies = {{true, 8192, 50.0, true}, {false, 8192, 25.0, true}};
  t.products_together = 1.2;
  t.attention_together = 1.1;
  t.kernels_together = 1.5;
  t.op_us = 0.75;
  t.meeting_us = 12;
  t.handover_us = 20;
  t.noise = 0.02;
  t.product_scatter = 0.08;
  t.together_scatter = 0.3;
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
  ASSERT_EQ(c.attention.size(), 5u);
  EXPECT_TRUE(c.attention[4].half);
  EXPECT_TRUE(c.attention[4].part);
  EXPECT_FALSE(c.attention[1].half);
  EXPECT_TRUE(c.attention[0].backward);
  EXPECT_EQ(c.attention[0].sequence, 128);
  EXPECT_TRUE(c.attention[0].causal);
  EXPECT_FALSE(c.attention[0].part);
  EXPECT_FALSE(c.attention[1].causal);
  EXPECT_TRUE(c.attention[1].part);
  EXPECT_TRUE(c.attention[2].causal);
  EXPECT_TRUE(c.attention[2].part);
  EXPECT_EQ(c.attention[1].time_us, 11);
  EXPECT_NEAR(c.attention[3].time_us, 384, 1e-9);  // of values as wide as keys: 2 x 192 / 320
  ASSERT_EQ(c.collectives.size(), 5u);
  EXPECT_EQ(c.collectives[0].op, sim::CollectiveOp::AllReduce);
  EXPECT_EQ(c.collectives[1].op, sim::CollectiveOp::SendRecv);
  EXPECT_EQ(c.collectives[1].between_processes, sim::ProcessLink::None);
  EXPECT_EQ(c.collectives[2].between_processes, sim::ProcessLink::Memory);
  EXPECT_EQ(c.collectives[3].between_processes, sim::ProcessLink::Tcp);
  EXPECT_TRUE(c.collectives[4].apart);
  EXPECT_FALSE(c.collectives[0].apart);
  ASSERT_EQ(c.copies.size(), 4u);
  EXPECT_TRUE(c.copies[0].drives);
  EXPECT_EQ(c.copies[0].direction, sim::CopyDirection::DeviceToHost);
  EXPECT_EQ(c.copies[1].time_us, 25.0);
  EXPECT_FALSE(c.copies[2].drives);
  EXPECT_EQ(c.copies[2].bytes, 32768);  // read and written
  EXPECT_EQ(*c.launch_us, 0.75);
  EXPECT_EQ(*c.scalar("workers.matrix_products"), 1.2);
  EXPECT_EQ(c.scatter(false), 0.08);
  EXPECT_EQ(c.scatter(true), 0.3);
  EXPECT_EQ(*c.scalar("workers.meeting_us"), 12);
  EXPECT_EQ(*c.scalar("workers.handover_us"), 20);
}

// A GPU's tables: peaks are the best that was measured, shares are of these.
TEST(CalibrationFile, TellsAGpusPeaksAndShares) {
  MachineTables t = tables();
  t.type = ElementType::BFloat16;
  t.gpu = GpuFacts{.name = "NVIDIA H200",
                   .capability = 90,
                   .sm_count = 132,
                   .memory_bytes = std::int64_t{140} << 30,
                   .l2_bytes = 50 << 20,
                   .sm_clock_mhz = 1980,
                   .versions = "CUDA 13.0, NCCL 2.28.9",
                   .context_bytes = std::int64_t{500} << 20};
  // 2 * 8192^3 FLOP in 1374 us: 800 TFLOP/s. Half of it for another as large.
  t.gemm = {{GemmRole::Forward, 8192, 8192, 8192, 1374.0},
            {GemmRole::InputGradient, 8192, 8192, 8192, 2748.0}};
  // 4 GB/ms is what an add reaches, a norm half of it.
  t.kernels = {{"add", false, 400'000'000, 100.0}, {"norm", false, 400'000'000, 200.0}};
  // 2 * 4 * 16 heads * 64 * 2048^2 FLOP in 100 us: 343.6 TFLOP/s.
  // Twice as fast as a part, which is another kernel's.
  t.attention = {{false, true, false, 16, 2048, 64, 100.0, 4},
                 {false, true, true, 16, 2048, 64, 50.0, 4}};
  t.copies = {{false, 50'000'000, 1000.0}, {true, 50'000'000, 1250.0}};
  t.exchanges = {{OpKind::AllReduce, 8, 800'000'000, 3500.0}};  // bus: 2 * 7/8 * 0.8 GB / 3.5 ms
  t.launch_us = 2.5;
  t.beside_collective = 0.08;
  const std::string folder = testing::TempDir() + "calibration_gpu_test/";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "gpu.json") << calibration_text(t, "gpu", "1.0");
  std::ofstream(folder + "gpu.cluster.json") << cluster_text(t, "gpu.cluster", "gpu.json");
  const Result<sim::Cluster> read = sim::read_cluster({.path = folder + "gpu.cluster.json"});
  ASSERT_TRUE(read) << read.error().message;
  const sim::Cluster& cluster = read.value();
  EXPECT_EQ(cluster.workers, 0);
  EXPECT_EQ(cluster.gpus_per_node, 8);
  EXPECT_EQ(cluster.gpu.compute_capability, 90);
  EXPECT_EQ(cluster.calibration->scatter(false), 0.08);
  EXPECT_NEAR(*cluster.gpu.peaks.bf16, 800.2e12, 0.1e12);
  ASSERT_TRUE(cluster.calibration);
  const sim::Calibration& c = *cluster.calibration;
  EXPECT_EQ(c.gemm[0].type, ComputeType::Bf16);
  EXPECT_EQ(c.attention[0].batch, 4);
  EXPECT_EQ(c.copies[1].direction, sim::CopyDirection::DeviceToHost);
  EXPECT_EQ(c.launch_us, 2.5);
  const Result<sim::KernelScalars> scalars = sim::read_kernel_scalars(cluster);
  ASSERT_TRUE(scalars) << scalars.error().message;
  EXPECT_NEAR(scalars.value().gemm_sustained, 1, 1e-3);  // the upper one of two
  EXPECT_NEAR(scalars.value().memory[static_cast<std::size_t>(sim::MemoryClass::Norm)], 0.5, 1e-3);
  EXPECT_NEAR(scalars.value().attention_forward[static_cast<std::size_t>(AttentionKernel::Flash2)],
              343.6 / 800.2, 1e-3);
  EXPECT_NEAR(scalars.value().overlap_slowdown, 0.08, 1e-9);
  EXPECT_EQ(scalars.value().executor_issue_us, 2.5);
}

TEST(Stopwatch, TakesTheMedianAndKnowsTheSpread) {
  const Backend backend = make_cpu_backend();
  Stopwatch watch(*backend.device, 5, 0);
  int calls = 0;
  const double us = watch.median_us([&] { ++calls; });
  EXPECT_EQ(calls, 6);  // one that does not count
  EXPECT_GE(us, 0);
  EXPECT_GE(watch.noise(), 0);
}

// Ten rounds: the second slowest over the second fastest.
TEST(Stopwatch, ScatterLeavesTheOuterTenthsOut) {
  EXPECT_NEAR(scatter({3, 1, 1.25, 1, 1, 1, 1, 1.5, 0.1, 1}), 0.5, 1e-12);
  EXPECT_EQ(scatter({2, 2, 2}), 0);
  EXPECT_EQ(scatter({}), 0);
}

TEST(RotatingMemory, HandsOutAlignedPiecesAndBeginsAgain) {
  const Backend backend = make_cpu_backend();
  RotatingMemory memory(*backend.device, 1 << 16);
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
