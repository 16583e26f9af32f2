// SPDX-License-Identifier: Apache-2.0
// Transfers over NCCL: a communicator per edge, a track per direction and side, receives that are
// posted when they may be needed.
#include <cstdlib>

#include "exec/step/transfer_tracks.h"
#include "tests/cuda_double/processes.h"
#include "tests/exec/step/forwarding_device.h"

namespace rehearse::exec {
namespace {

// In all of these stages send and receive on both sides, and arrays of one are another's later.
const std::vector<Keys> kPipelines{
    {"pipeline_parallel=4", "schedule=1f1b"},
    {"pipeline_parallel=2", "schedule=interleaved_1f1b", "virtual_stages=2"},
    {"pipeline_parallel=4", "schedule=zb_h1", "recompute=full"},
    {"pipeline_parallel=2", "schedule=zb_v"},
    {"pipeline_parallel=4", "schedule=dualpipe"},
    {"pipeline_parallel=2", "schedule=seq_1f1b", "sequence_slices=2"}};

TEST(TransferTracks, NothingIsUnorderedAndTheBitsAreThoseOfOneProcess) {
  for (const Keys& keys : kPipelines) {
    Prepared p = prepare(Family::Gpt2, keys);
    cuda_double::shake(7, 40);
    const std::vector<Outcome> there = train_with_nccl(p, {});
    cuda_double::shake(0, 0);
    const Trained here = train_layout(Family::Gpt2, keys);
    for (const Outcome& process : there) {
      ASSERT_EQ(process.error, "") << keys[1];
      EXPECT_EQ(process.losses, here.losses) << keys[1];
    }
    EXPECT_EQ(cuda_double::unordered(), "") << keys[1];
  }
}

// Only the schedule's own waits, which rely on one lane in order.
class InNoOrder final : public ForwardingDevice {
 public:
  InNoOrder(std::unique_ptr<Device> inner, const Schedule& schedule)
      : ForwardingDevice(std::move(inner)), schedule_(schedule) {}
  void begin_behind(Lane, OpId) override {}
  void begin(Lane lane, OpId op, std::span<const OpId>) override {
    ForwardingDevice::begin(lane, op, schedule_.waits_of(op));
  }

 private:
  const Schedule& schedule_;
};

TEST(TransferTracks, WithoutTheirWaitsSomethingIsUnordered) {
  int found = 0;
  for (const Keys& keys : kPipelines) {
    Prepared p = prepare(Family::Gpt2, keys);
    cuda_double::idle(true);
    train_with_nccl(p, {.wrap = [&p](std::unique_ptr<Device> device) -> std::unique_ptr<Device> {
                      return std::make_unique<InNoOrder>(std::move(device), p.schedule);
                    }});
    cuda_double::idle(false);
    found += cuda_double::unordered().empty() ? 0 : 1;
  }
  EXPECT_GT(found, 0);
}

// A receive waits for the beginning of the compute op before it, and a send for no receive but one
// whose array it reads.
TEST(TransferTracks, ReceivesArePostedByNeedAndHoldUpNoSend) {
  const Prepared p = prepare(Family::Gpt2, {"pipeline_parallel=4", "schedule=1f1b"});
  const Schedule& s = p.schedule;
  int receives = 0;
  for (std::int32_t row = 0; row < s.num_rows(); ++row) {
    const TransferTracks tracks(s, {row});
    OpId computing;
    for (std::int32_t i = s.row_begin[static_cast<std::size_t>(row)];
         i < s.row_begin[static_cast<std::size_t>(row) + 1]; ++i) {
      const Op& op = s.ops[static_cast<std::size_t>(i)];
      if (op.stream == Stream::Compute) computing = {i};
      if (op.kind == OpKind::Recv) {
        EXPECT_EQ(tracks.behind({i}), computing);
        ++receives;
      }
      if (op.kind != OpKind::Send) continue;
      EXPECT_FALSE(tracks.behind({i}));
      for (const OpId wait : tracks.waits({i})) {
        const auto reads = [&](OpId id) {
          const Value& value = s.values[s.operands_of(id)[0].value.index()];
          return std::pair(value.offset.value, value.offset.value + value.bytes.value);
        };
        if (s.ops[wait.index()].kind != OpKind::Recv) continue;
        EXPECT_LT(reads(wait).first, reads({i}).second);
        EXPECT_LT(reads({i}).first, reads(wait).second);
      }
    }
  }
  EXPECT_GT(receives, 0);
}

// What NCCL connects it takes memory for, and a host that connects in a step is late.
TEST(NcclDouble, ConnectsBeforeTheFirstStep) {
  for (const Keys& keys :
       {Keys{"data_parallel=2", "data_parallel_algorithm=parameter_server", "global_batch=2"},
        Keys{"data_parallel=2", "zero_stage=3", "global_batch=2"},
        Keys{"context_parallel=2", "global_batch=1"},
        Keys{"context_parallel=2", "context_parallel_algorithm=all_to_all", "global_batch=1"},
        Keys{"tensor_parallel=2", "sequence_parallel=true", "overlap.tensor_parallel=true",
             "global_batch=1"},
        Keys{"pipeline_parallel=2", "schedule=zb_h1", "global_batch=2"}}) {
    Prepared p = prepare(Family::Gpt2, keys);
    p.scenario.train.steps = 2;
    std::vector<int> connected;  // of process 0, before each step
    const std::vector<Outcome> outcomes = train_with_nccl(
        p, {.sabotage = [&](std::int32_t process, std::int64_t, Communicator&, Device&) {
          if (process == 0) connected.push_back(cuda_double::connections());
        }});
    for (const Outcome& process : outcomes) EXPECT_EQ(process.error, "");
    ASSERT_EQ(connected.size(), 2u);
    EXPECT_EQ(cuda_double::calls_in_threads(), 0);
    EXPECT_GT(connected.front(), 0);
    EXPECT_EQ(connected.front(), connected.back()) << testing::PrintToString(keys);
  }
}

TEST(CudaDouble, CommunicationGoesBeforeComputation) {
  Result<Backend> made = cuda::make_backend({});
  ASSERT_TRUE(made.value().device->allocate(0, 1));
  auto& source = dynamic_cast<cuda::StreamSource&>(*made.value().device);
  int least = 0, greatest = 0;
  cudaDeviceGetStreamPriorityRange(&least, &greatest);
  for (const auto& [stream, expected] : {std::pair{Stream::Compute, least},
                                         {Stream::P2p, greatest},
                                         {Stream::Dp, greatest},
                                         {Stream::H2d, greatest},
                                         {Stream::D2h, greatest}}) {
    int priority = -99;
    cudaStreamGetPriority(source.stream({0, stream}), &priority);
    EXPECT_EQ(priority, expected) << static_cast<int>(stream);
  }
}

TEST(CudaDouble, SetsWhatTheEnvironmentLeavesOpen) {
  for (const auto& [name, value] :
       {std::pair{"CUDA_DEVICE_MAX_CONNECTIONS", "32"}, {"NCCL_LAUNCH_ORDER_IMPLICIT", "1"}}) {
    unsetenv(name);
    cuda::set_environment();
    EXPECT_STREQ(std::getenv(name), value);
    setenv(name, "7", 1);
    cuda::set_environment();
    EXPECT_STREQ(std::getenv(name), "7");
  }
}

// A copy of what is not pinned is staged when cudaMemcpy returns: whoever reads it next, on a
// stream that does not block, comes behind it all the same.
TEST(CudaDouble, WhatIsWrittenIsThere) {
  Result<Backend> made = cuda::make_backend({});
  Device& device = *made.value().device;
  const Result<std::byte*> to = device.allocate(0, 64);
  ASSERT_TRUE(to);
  const std::vector<std::byte> from(64);
  auto& source = dynamic_cast<cuda::StreamSource&>(device);
  const auto kernel = [&] {
    cuda_double::enqueue(source.stream({0, Stream::Compute}),
                         cuda_double::Touched("kernel").reads(to.value(), 64), [] {});
    const std::string found = cuda_double::unordered();
    cudaDeviceSynchronize();
    return found;
  };
  ASSERT_EQ(kernel(), "");
  device.write(to.value(), from.data(), 64);
  EXPECT_EQ(kernel(), "");
  cudaMemcpy(to.value(), from.data(), 64, cudaMemcpyDefault);
  EXPECT_NE(kernel(), "");
}

}  // namespace
}  // namespace rehearse::exec
