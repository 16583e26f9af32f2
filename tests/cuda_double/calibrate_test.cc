// SPDX-License-Identifier: Apache-2.0
// `calibrate` on the double, in small sizes (small_sizes.cc): every kind of point is measured, by
// the device's events, in the memory that the backend says it holds. The times are a double's and
// mean nothing.
#include "exec/calibrate/calibrate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "exec/calibrate/calibration_file.h"
#include "exec/cuda/make.h"
#include "tests/cuda_double/prepared.h"

namespace rehearse::exec {
namespace {

CudaOptions cuda_options() {
  return {.type = ElementType::Float32, .timeout_s = 120, .label = [](OpId) { return "a kernel"; }};
}

TEST(CalibrateOnDouble, MeasuresEveryKindOfPoint) {
  const Result<Backend> backend = cuda::make_backend(cuda_options());
  ASSERT_TRUE(backend) << backend.error().message;
  const Result<MachineTables> tables =
      calibrate(backend.value(), {.sizes = CalibrateSizes::gpu(true)});
  ASSERT_TRUE(tables) << tables.error().message;
  const MachineTables& t = tables.value();
  EXPECT_EQ(t.gemm.size(), 3u * 2 * 2 * 2);
  EXPECT_EQ(t.grouped.size(), 3u * 2 * 2);  // narrow to wide and back
  for (const GemmTime& point : t.grouped) {
    EXPECT_EQ(point.batch, 8);
    EXPECT_GT(point.us, 0);
  }
  EXPECT_NE(calibration_text(t, "double", "0").find("\"batch\""), std::string::npos);
  // Three head sizes, two lengths, two directions: the whole, the part of its own keys and
  // another's. The largest are DeepSeek-V2's, whose values are narrower than their keys.
  EXPECT_EQ(t.attention.size(), 3u * 2 * 2 * 3);
  EXPECT_EQ(t.attention.back().head_dim, 192);
  EXPECT_EQ(t.attention.back().value_dim, 128);
  EXPECT_NE(calibration_text(t, "double", "0").find("\"value_dim\":128"), std::string::npos);
  EXPECT_EQ(t.attention.front().samples, 2);
  for (const bool backward : {false, true}) {
    for (const auto& [causal, part] : {std::pair{true, false}, {true, true}, {false, true}}) {
      EXPECT_EQ(std::ranges::count_if(t.attention,
                                      [&](const AttentionTime& p) {
                                        return p.backward == backward && p.causal == causal &&
                                               p.part == part && p.us > 0;
                                      }),
                6)
          << backward << causal << part;
    }
  }
  EXPECT_EQ(t.copies.size(), 4u);
  EXPECT_EQ(t.kernels.size(), 22u * 2);
  EXPECT_GT(t.launch_us, 0);
  EXPECT_TRUE(t.exchanges.empty());
  EXPECT_FALSE(t.beside_collective);
  for (const KernelTime& point : t.kernels) EXPECT_GT(point.us, 0) << point.op;
}

// A rank of a ring of two with two slices: a quarter of the sequence, its heads, its samples;
// before the grid, so that the simulator reads these.
TEST(CalibrateOnDouble, MeasuresTheAttentionOfGivenScenarios) {
  const Prepared p = prepare(Family::Gpt2, {"micro_batch=2", "context_parallel=2"});
  const Result<Backend> backend = cuda::make_backend(cuda_options());
  ASSERT_TRUE(backend) << backend.error().message;
  const Result<MachineTables> tables =
      calibrate(backend.value(), {.sizes = CalibrateSizes::gpu(true), .scenarios = {p.scenario}});
  ASSERT_TRUE(tables) << tables.error().message;
  const std::vector<AttentionTime>& t = tables.value().attention;
  EXPECT_EQ(t.size(), (3u * 2 + 1) * 2 * 3);
  EXPECT_EQ(t.front().sequence, p.plan.sequence_length / 2);
  EXPECT_EQ(t.front().samples, p.plan.micro_batch);
  EXPECT_EQ(t.front().heads, p.scenario.model.heads);
  EXPECT_EQ(t.front().head_dim, p.scenario.model.head_dim);
  EXPECT_EQ(t.front().value_dim, p.scenario.model.head_dim);
}

// What no arena and no buffer holds is the context's: the double says how much it takes.
TEST(CalibrateOnDouble, KnowsWhatTheContextTakes) {
  const Result<Backend> backend = cuda::make_backend(cuda_options());
  ASSERT_TRUE(backend);
  ASSERT_TRUE(calibrate(backend.value(), {.sizes = CalibrateSizes::gpu(true)}));
  const Result<GpuFacts> facts = cuda::inspect(*backend.value().device);
  ASSERT_TRUE(facts) << facts.error().message;
  EXPECT_EQ(facts.value().context_bytes, std::int64_t{300} << 20);
  EXPECT_EQ(facts.value().capability, 90);
  EXPECT_EQ(facts.value().sm_count, 132);
}

// Memory that a trial frees on its stream stays with CUDA's pool while the host only asks events.
TEST(CalibrateOnDouble, DoesNotCountWhatTrialsFreedAsTheContexts) {
  const Result<Backend> backend = cuda::make_backend(cuda_options());
  ASSERT_TRUE(backend);
  cudaStream_t stream = nullptr;
  void* memory = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaMallocAsync(&memory, std::size_t{5} << 20, stream), cudaSuccess);
  ASSERT_EQ(cudaFreeAsync(memory, stream), cudaSuccess);
  while (cudaStreamQuery(stream) == cudaErrorNotReady) std::this_thread::yield();
  const Result<GpuFacts> facts = cuda::inspect(*backend.value().device);
  ASSERT_TRUE(facts) << facts.error().message;
  EXPECT_EQ(facts.value().context_bytes, std::int64_t{300} << 20);
  cudaStreamDestroy(stream);
}

// Three processes: groups of two (the third is in none) and of three.
TEST(CalibrateOnDouble, MeasuresNcclForEveryNumberOfRanks) {
  constexpr std::int32_t kProcesses = 3;
  const GroupInstances groups = GroupInstances::by_size(kProcesses);
  ASSERT_EQ(groups.of.size(), 2u);
  std::vector<Result<MachineTables>> tables(kProcesses, Error{"did not run"});
  std::mutex mutex;
  std::condition_variable changed;
  std::string id;
  std::vector<std::thread> processes;
  for (std::int32_t p = 0; p < kProcesses; ++p) {
    processes.emplace_back([&, p] {
      const auto backend = cuda::make_backend(cuda_options());
      const auto share = [&](const std::string& mine) -> Result<std::string> {
        std::unique_lock lock(mutex);
        if (p == 0) {
          id = mine;
          changed.notify_all();
        }
        changed.wait(lock, [&] { return !id.empty(); });
        return id;
      };
      const auto nccl = cuda::make_nccl(
          *backend.value().device,
          {.process = p, .processes = kProcesses, .groups = &groups, .share = share});
      if (!nccl) return;
      tables[static_cast<std::size_t>(p)] =
          calibrate(backend.value(), {.sizes = CalibrateSizes::gpu(true),
                                      .communicator = nccl.value().get(),
                                      .groups = &groups});
    });
  }
  for (std::thread& process : processes) process.join();
  for (const Result<MachineTables>& of : tables) ASSERT_TRUE(of) << of.error().message;
  // Six collectives of two sizes, over two ranks and over three.
  EXPECT_EQ(tables[0].value().exchanges.size(), 2u * 6 * 2);
  EXPECT_EQ(tables[2].value().exchanges.size(), 6u * 2);
  EXPECT_EQ(tables[2].value().exchanges.front().ranks, 3);
  EXPECT_EQ(tables[2].value().exchanges.front().bytes, 4 * 63);
  EXPECT_TRUE(tables[0].value().beside_collective);
}

}  // namespace
}  // namespace rehearse::exec
