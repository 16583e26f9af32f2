// SPDX-License-Identifier: Apache-2.0
// The CUDA backend's host logic on a double: no GPU, no claim about kernels or speed. Whatever
// order the double's streams run in, events make the result that of the CPU, bit for bit.
#include "exec/cuda/make.h"
#include "tests/cuda_double/processes.h"

namespace rehearse::exec {
namespace {

using cuda_double::CaptureFault;

Trained train_on_double(Family family, const Keys& keys, bool graphs = true,
                        std::vector<std::string>* said = nullptr) {
  Prepared p = prepare(family, keys);
  CudaOptions options = cuda_options(p);
  options.graphs = graphs;
  if (said != nullptr) options.warn = [said](const std::string& what) { said->push_back(what); };
  return train_prepared(p, options);
}

class OnDouble : public testing::TestWithParam<std::pair<Family, Keys>> {};

// Work on every stream is delayed at random: a missing event would let an op read what is not there
// yet, or what is already overwritten.
TEST_P(OnDouble, GivesTheBitsOfTheCpu) {
  const auto& [family, keys] = GetParam();
  cuda_double::shake(11, 40);
  const Trained there = train_on_double(family, keys), here = train_layout(family, keys);
  cuda_double::shake(0, 0);
  ASSERT_EQ(there.error, "");
  ASSERT_EQ(here.error, "");
  EXPECT_TRUE(distance(there, here).bitwise);
  EXPECT_EQ(cuda_double::unordered(), "");
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, OnDouble,
    testing::Values(
        std::pair{Family::Gpt2, Keys{}},
        std::pair{Family::Llama, Keys{"tensor_parallel=2", "sequence_parallel=true"}},
        std::pair{Family::Gpt2, Keys{"tensor_parallel=2", "pipeline_parallel=2"}},
        std::pair{Family::Gpt2,
                  Keys{"pipeline_parallel=4", "schedule=interleaved_1f1b", "virtual_stages=2"}},
        std::pair{Family::Gpt2Untied,
                  Keys{"pipeline_parallel=2", "schedule=zb_h1", "data_parallel=2"}},
        std::pair{Family::Gpt2,
                  Keys{"data_parallel=4", "zero_stage=1", "overlap={\"gradient_reduce\": true}"}},
        std::pair{Family::Llama, Keys{"data_parallel=4", "zero_stage=3"}},
        std::pair{Family::Gpt2,
                  Keys{"data_parallel=2", "zero_stage=2", "pipeline_parallel=2", "recompute=full"}},
        std::pair{Family::Gpt2,
                  Keys{"data_parallel=2", "data_parallel_algorithm=parameter_server"}},
        std::pair{Family::Gpt2, Keys{"pipeline_parallel=4", "schedule=dualpipe"}},
        std::pair{Family::Llama, Keys{"pipeline_parallel=2", "schedule=zb_v", "tensor_parallel=2"}},
        std::pair{Family::Llama, Keys{"context_parallel=2", "tensor_parallel=2"}},
        std::pair{Family::Gpt2,
                  Keys{"context_parallel=4", "schedule=zb_h1", "pipeline_parallel=2"}},
        std::pair{Family::Llama,
                  Keys{"pipeline_parallel=2", "schedule=seq_1f1b", "sequence_slices=2"}},
        std::pair{Family::Gpt2, Keys{"pipeline_parallel=2", "schedule=seq_1f1b",
                                     "sequence_slices=4", "context_parallel=2"}},
        std::pair{Family::Llama, Keys{"pipeline_parallel=2", "schedule=seq_zb_h1",
                                      "sequence_slices=2", "context_parallel=2", "recompute=full"}},
        std::pair{Family::Llama, Keys{"tensor_parallel=4"}},
        std::pair{Family::Gpt2, Keys{"offload=activations"}},
        std::pair{Family::Llama, Keys{"pipeline_parallel=2", "schedule=interleaved_1f1b",
                                      "virtual_stages=2", "offload=activations", "prefetch=0"}},
        std::pair{Family::Gpt2, Keys{"pipeline_parallel=2", "schedule=dualpipev",
                                     "tensor_parallel=2", "offload=activations", "prefetch=2"}},
        std::pair{Family::Gpt2, Keys{"offload=optimizer"}},
        std::pair{Family::Llama, Keys{"data_parallel=2", "zero_stage=2", "pipeline_parallel=2",
                                      "offload=optimizer"}},
        std::pair{Family::Gpt2,
                  Keys{"data_parallel=2", "zero_stage=3", "offload=optimizer", "prefetch=0"}},
        // A norm is planned over what the sum before it reads: the two must be two passes.
        std::pair{Family::Llama,
                  Keys{"tensor_parallel=2", "sequence_parallel=true", "recompute=full"}}));

std::int64_t compute_ops(const Prepared& p) {
  std::int64_t count = 0;
  for (const Op& op : p.schedule.ops) count += is_compute(op.kind) ? 1 : 0;
  return count;
}

// From the second of four steps on every op that meets no other rank is launched as a graph.
TEST(Graphs, HoldEveryOpThatMeetsNobody) {
  const Keys keys{"pipeline_parallel=2", "recompute=full"};
  const std::int64_t ops = compute_ops(prepare(Family::Gpt2, keys));
  const cuda_double::GraphCounts before = cuda_double::graphs();
  ASSERT_EQ(train_on_double(Family::Gpt2, keys).error, "");
  const cuda_double::GraphCounts after = cuda_double::graphs();
  EXPECT_EQ(after.captured - before.captured, ops);
  EXPECT_EQ(after.launched - before.launched, 3 * ops);
}

TEST(Graphs, LeaveOutOpsThatMeetTheirTensorParallelGroup) {
  const cuda_double::GraphCounts before = cuda_double::graphs();
  ASSERT_EQ(train_on_double(Family::Gpt2, {"tensor_parallel=2"}).error, "");
  EXPECT_EQ(cuda_double::graphs().captured, before.captured);
}

TEST(Graphs, AreLeftOutWhenAskedTo) {
  const cuda_double::GraphCounts before = cuda_double::graphs();
  const Trained with = train_on_double(Family::Gpt2, {});
  EXPECT_GT(cuda_double::graphs().captured, before.captured);
  const cuda_double::GraphCounts between = cuda_double::graphs();
  const Trained without = train_on_double(Family::Gpt2, {}, false);
  EXPECT_EQ(cuda_double::graphs().captured, between.captured);
  EXPECT_TRUE(distance(with, without).bitwise);
}

// Every third capture fails, in each of the ways that it can: these ops are issued kernel by
// kernel, the others keep their graphs, the numbers are the same, and one line says so.
TEST(Graphs, ThatCannotBeCapturedAreDoneWithout) {
  const Keys keys{"pipeline_parallel=2", "recompute=full"};
  const std::int64_t ops = compute_ops(prepare(Family::Gpt2, keys));
  const Trained here = train_layout(Family::Gpt2, keys);
  for (const CaptureFault fault : {CaptureFault::Begin, CaptureFault::Inside, CaptureFault::End,
                                   CaptureFault::Instantiate, CaptureFault::Launch}) {
    SCOPED_TRACE(static_cast<int>(fault));
    std::vector<std::string> said;
    const cuda_double::GraphCounts before = cuda_double::graphs();
    cuda_double::break_captures(3, fault);
    const Trained there = train_on_double(Family::Gpt2, keys, true, &said);
    cuda_double::break_captures(0);
    ASSERT_EQ(there.error, "");
    EXPECT_TRUE(distance(there, here).bitwise);
    EXPECT_EQ(cuda_double::graphs().launched - before.launched, 3 * (ops - (ops + 2) / 3));
    ASSERT_EQ(said.size(), 1u);
    EXPECT_NE(said[0].find("no CUDA graph of 0F0"), std::string::npos) << said[0];
    EXPECT_NE(said[0].find(fault == CaptureFault::Begin    ? "BeginCapture"
                           : fault == CaptureFault::Launch ? "GraphLaunch"
                           : fault == CaptureFault::Inside ? "kernel: embed"
                           : fault == CaptureFault::End    ? "EndCapture"
                                                           : "Instantiate: out of memory"),
              std::string::npos)
        << said[0];
  }
}

// The double sums in the order of the members, so that even here the bits are those of one process.
TEST(NcclDouble, TrainsWithTheBitsOfOneProcess) {
  for (const Keys& keys :
       {Keys{"data_parallel=2"}, Keys{"tensor_parallel=2", "pipeline_parallel=2"},
        Keys{"data_parallel=4", "zero_stage=3"},
        Keys{"pipeline_parallel=2", "data_parallel=2", "zero_stage=1", "schedule=zb_h1"},
        Keys{"context_parallel=4"}, Keys{"context_parallel=2", "tensor_parallel=2"}}) {
    Prepared p = prepare(Family::Gpt2, keys);
    const std::vector<Outcome> there = train_with_nccl(p, {});
    const Trained here = train_layout(Family::Gpt2, keys);
    for (const Outcome& process : there) {
      ASSERT_EQ(process.error, "") << keys[0];
      EXPECT_EQ(process.losses, here.losses) << keys[0];
    }
    EXPECT_EQ(cuda_double::unordered(), "");
  }
}

// Real NCCL would hang.
TEST(NcclDouble, NamesASwappedCollective) {
  Prepared p = prepare(Family::Gpt2, {"data_parallel=2"});
  void* array = nullptr;
  ASSERT_EQ(cudaMalloc(&array, 64 * sizeof(float)), cudaSuccess);
  const auto outcomes = train_with_nccl(
      p, {.sabotage = [&](std::int32_t process, std::int64_t step, Communicator& nccl, Device&) {
        if (process != 1 || step != 1) return;
        // One collective too many on the dp communicator: the partner's next one does not match.
        const Mesh mesh(p.plan);
        const GroupInstances groups(p.schedule, mesh);
        const auto place = groups.of[static_cast<std::size_t>(groups.group(GroupKind::Data))][1];
        const std::vector<Contribution> brought{{}, {array, array}};
        const std::vector<Lane> lanes{{}, {1, Stream::Dp}};
        nccl.collective({.kind = OpKind::AllGather,
                         .elements = 64,
                         .instance = place.instance,
                         .ranks = groups.ranks[static_cast<std::size_t>(place.instance)],
                         .contributions = brought,
                         .lanes = lanes},
                        [](const Result<>&) {});
      }});
  cudaFree(array);
  bool named = false;
  for (const Outcome& process : outcomes) {
    EXPECT_NE(process.error, "");
    named = named || (process.error.find("mismatch: rank") != std::string::npos &&
                      process.error.find("AllGather of 32") != std::string::npos);
  }
  EXPECT_TRUE(named) << outcomes[0].error << " | " << outcomes[1].error;
}

TEST(CudaDouble, SaysThatThereIsNoDevice) {
  cuda_double::set_devices(0);
  const auto old = cuda::make_backend({});
  cuda_double::set_driver(0);
  const auto none = cuda::make_backend({});
  cuda_double::set_driver(12040);
  cuda_double::set_devices(8);
  ASSERT_FALSE(old);
  EXPECT_EQ(old.error().message, "no CUDA device: the driver is for CUDA 12.4, this build needs " +
                                     cuda::dotted(CUDART_VERSION) +
                                     ": a newer driver, or a build with CUDA 12");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().message, "no CUDA device: there is no driver's library (libcuda.so.1)");
}

// Nobody takes another process's device; where the launcher shows each process its own, that is
// number 0 for all of them.
TEST(CudaDouble, SaysThatAProcessHasNoDevice) {
  unsetenv("CUDA_VISIBLE_DEVICES");
  EXPECT_TRUE(cuda::make_backend({.device = 7}));
  const auto eighth = cuda::make_backend({.device = 8});
  ASSERT_FALSE(eighth);
  EXPECT_EQ(eighth.error().message,
            "process 8 of this machine (LOCAL_RANK) has no device: there are 8");
  cuda_double::set_devices(1);
  const auto second = cuda::make_backend({.device = 1});
  setenv("CUDA_VISIBLE_DEVICES", "3", 1);
  const auto own = cuda::make_backend({.device = 1});
  unsetenv("CUDA_VISIBLE_DEVICES");
  cuda_double::set_devices(8);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().message,
            "process 1 of this machine (LOCAL_RANK) has no device: there is one");
  EXPECT_TRUE(own);
}

// sm_86, sm_89 and sm_120 give a block 99 KiB: exact attention of wider heads does not fit.
TEST(CudaDouble, TakesTheHeadsThatSharedMemoryHolds) {
  cuda_double::set_shared_bytes(std::size_t{99} << 10);
  const auto in_fp32 = cuda::make_backend({.type = ElementType::Float32});
  const auto in_bf16 = cuda::make_backend({.type = ElementType::BFloat16});
  cuda_double::set_shared_bytes(std::size_t{227} << 10);
  const auto large = cuda::make_backend({.type = ElementType::Float32});
  EXPECT_EQ(in_fp32.value().device->widest_head(), 128);
  EXPECT_EQ(in_bf16.value().device->widest_head(), 192);
  EXPECT_EQ(large.value().device->widest_head(), 256);
}

}  // namespace
}  // namespace rehearse::exec
