// SPDX-License-Identifier: Apache-2.0
// The CUDA backend's host logic on a double: no GPU, no claim about kernels or speed. Whatever
// order the double's streams run in, events make the result that of the CPU, bit for bit.
#include <thread>

#include "tests/cuda_double/prepared.h"

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

// ---- NCCL's double: one "process" is a thread that holds one rank -----------

struct Shared {  // the store of the run
  std::mutex mutex;
  std::condition_variable changed;
  std::string id;
};

struct Outcome {
  std::vector<double> losses;
  std::string error;
};

// What a process does beside training: a fault, if it is its turn.
using Sabotage =
    std::function<void(std::int32_t process, std::int64_t step, Communicator&, Device&)>;

// `ended`: a process has its outcome, and is not torn down yet.
std::vector<Outcome> train_with_nccl(
    Prepared& p, double timeout_s, const Sabotage& sabotage = nullptr, std::int32_t absent = -1,
    const std::function<void()>& ended = [] {}) {
  const Mesh mesh(p.plan);
  const GroupInstances groups(p.schedule, mesh);
  std::vector<Outcome> outcomes(static_cast<std::size_t>(mesh.ranks()));
  Shared shared;
  std::vector<std::thread> processes;
  for (std::int32_t r = 0; r < mesh.ranks(); ++r) {
    processes.emplace_back([&, r] {
      Outcome& out = outcomes[static_cast<std::size_t>(r)];
      Result<Backend> backend = cuda::make_backend(cuda_options(p, timeout_s));
      NcclOptions options{.process = r,
                          .processes = mesh.ranks(),
                          .groups = &groups,
                          .edges = transfer_edges(p.schedule, mesh),
                          .timeout_s = timeout_s};
      options.share = [&](const std::string& mine) -> Result<std::string> {
        std::unique_lock lock(shared.mutex);
        if (r == 0) {
          shared.id = mine;
          shared.changed.notify_all();
        }
        shared.changed.wait(lock, [&] { return !shared.id.empty(); });
        return shared.id;
      };
      Result<std::unique_ptr<Communicator>> nccl =
          cuda::make_nccl(*backend.value().device, options);
      if (!nccl) {
        out.error = nccl.error().message;
        return;
      }
      const auto made = Interpreter::create({p.scenario.model, p.plan}, p.schedule, backend.value(),
                                            {.communicator = nccl.value().get()});
      if (!made) {
        out.error = made.error().message;
        return;
      }
      Interpreter& process = *made.value();
      process.initialise(initial_values(p.scenario.model, p.scenario.train.seed));
      const Result<Data> data =
          Data::open("synthetic", p.scenario.model.vocabulary, p.scenario.train.seed);
      for (std::int64_t step = 0; step < p.scenario.train.steps; ++step) {
        if (sabotage) sabotage(r, step, *nccl.value(), *backend.value().device);
        if (r == absent && step == 1) return;  // dead
        load_batch(process, p.plan, data.value(), step * p.plan.global_batch);
        const auto ran = process.run({.step = step,
                                      .learning_rate = p.scenario.train.learning_rate,
                                      .train = p.scenario.train});
        if (!ran) {
          out.error = ran.error().message;
          break;
        }
        out.losses.push_back(ran.value().loss);
      }
      ended();
    });
  }
  for (std::thread& process : processes) process.join();
  return outcomes;
}

// The double sums in the order of the members, so that even here the bits are those of one process.
TEST(NcclDouble, TrainsWithTheBitsOfOneProcess) {
  for (const Keys& keys :
       {Keys{"data_parallel=2"}, Keys{"tensor_parallel=2", "pipeline_parallel=2"},
        Keys{"data_parallel=4", "zero_stage=3"},
        Keys{"pipeline_parallel=2", "data_parallel=2", "zero_stage=1", "schedule=zb_h1"},
        Keys{"context_parallel=4"}, Keys{"context_parallel=2", "tensor_parallel=2"}}) {
    Prepared p = prepare(Family::Gpt2, keys);
    const std::vector<Outcome> there = train_with_nccl(p, 120);
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
      p, 120, [&](std::int32_t process, std::int64_t step, Communicator& nccl, Device&) {
        if (process != 1 || step != 1) return;
        // One collective too many on the dp communicator: the partner's next one does not match.
        const Mesh mesh(p.plan);
        const GroupInstances groups(p.schedule, mesh);
        const auto place = groups.of[static_cast<std::size_t>(groups.group(GroupKind::Data))][1];
        const std::vector<Contribution> brought{{}, {array, array}};
        const std::vector<Lane> lanes{{}, {1, Stream::Dp}};
        nccl.collective({.kind = OpKind::Broadcast,
                         .elements = 64,
                         .instance = place.instance,
                         .ranks = groups.ranks[static_cast<std::size_t>(place.instance)],
                         .contributions = brought,
                         .lanes = lanes},
                        [](const Result<>&) {});
      });
  cudaFree(array);
  bool named = false;
  for (const Outcome& process : outcomes) {
    EXPECT_NE(process.error, "");
    named = named || (process.error.find("mismatch: rank") != std::string::npos &&
                      process.error.find("Broadcast of 64") != std::string::npos);
  }
  EXPECT_TRUE(named) << outcomes[0].error << " | " << outcomes[1].error;
}

// A rank that is gone, and a send that never comes, end in a timeout that names rank and op.
TEST(NcclDouble, NamesTheOpThatWaitsForADeadRank) {
  Prepared p = prepare(Family::Gpt2, {"pipeline_parallel=2"});
  const auto outcomes = train_with_nccl(p, 10, nullptr, 0);
  EXPECT_EQ(outcomes[0].error, "");  // it left
  EXPECT_NE(outcomes[1].error.find("rank 1 timed out in"), std::string::npos) << outcomes[1].error;
  EXPECT_NE(outcomes[1].error.find("RECV_F0"), std::string::npos) << outcomes[1].error;
}

// Its stream never gets to its work: its partner's timeout names the op, and so does its own.
TEST(NcclDouble, NamesAStuckRank) {
  Prepared p = prepare(Family::Gpt2, {"data_parallel=2"});
  std::mutex mutex;
  std::condition_variable changed;
  int ended = 0;
  const auto outcomes = train_with_nccl(
      p, 10,
      [&](std::int32_t process, std::int64_t step, Communicator&, Device& device) {
        if (process != 1 || step != 1) return;
        auto& streams = dynamic_cast<cuda::StreamSource&>(device);
        cuda_double::enqueue(streams.stream({1, Stream::Compute}), [&] {
          std::unique_lock lock(mutex);
          changed.wait(lock, [&] { return ended == 2; });
        });
      },
      -1,
      [&] {
        const std::scoped_lock lock(mutex);
        ++ended;
        changed.notify_all();
      });
  EXPECT_NE(outcomes[0].error.find("rank 0 timed out in"), std::string::npos) << outcomes[0].error;
  EXPECT_NE(outcomes[1].error.find("rank 1 timed out in"), std::string::npos) << outcomes[1].error;
}

TEST(CudaDouble, SaysThatThereIsNoDevice) {
  cuda_double::set_devices(0);
  const auto made = cuda::make_backend({});
  cuda_double::set_devices(1);
  ASSERT_FALSE(made);
  EXPECT_NE(made.error().message.find("no CUDA device"), std::string::npos);
}

}  // namespace
}  // namespace rehearse::exec
