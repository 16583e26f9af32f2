// SPDX-License-Identifier: Apache-2.0
// Between throttled processes an exchange takes its messages' way more, to the nanosecond, and the
// links between the processes are shared.
#include "sim/network/crossing_cost.h"

#include "sim/network/collective_cost.h"
#include "sim/network/transfer_cost.h"
#include "tests/sim/network/network_fixture.h"

namespace rehearse::sim {
namespace {

// A CPU whose ranks are dealt to two processes, over links of 0.5 B/ns and 1 us.
std::unique_ptr<Machine> two_processes(bool throttled) {
  auto made = machine("dgx-a100-80gb");
  made->cluster.workers = made->cluster.processes = 2;
  if (throttled) made->cluster.throttle = {.bytes_per_ns = 0.5, .latency_ns = 1000};
  return made;
}

TEST(CrossingCost, ATransferTakesItsBytesOfTheLinkAndTheLatency) {
  for (const std::int32_t columns : {1, 2}) {  // ranks that send side by side share the link
    const Plan plan = make_plan({.t = columns, .p = 2});
    const auto slow = two_processes(true), fast = two_processes(false);
    const Network throttled = make_network(*slow, plan), free = make_network(*fast, plan);
    const TransferCost with = transfer_cost({50'000}, throttled.path({0}, {1}), throttled);
    const TransferCost without = transfer_cost({50'000}, free.path({0}, {1}), free);
    EXPECT_EQ(with.crossing.value, 1000 + columns * 100'000);
    EXPECT_EQ(with.time, without.time + with.crossing);
    EXPECT_EQ(without.crossing.value, 0);
    const Demand& link = with.send.back();  // process 0 to 1
    EXPECT_EQ(link.resource.value, static_cast<std::int32_t>(throttled.links().size()) + 1);
    EXPECT_NEAR(link.share * static_cast<double>(with.time.value), columns * 100'000, 1e-3);
  }
}

TEST(CrossingCost, ACollectiveTakesWhatItsBusiestLinkCarries) {
  // Four ranks, two of a process: of an all-gather of 40,000 B each process sends its half.
  const Plan plan = make_plan({.t = 4});
  const auto slow = two_processes(true), fast = two_processes(false);
  const Network throttled = make_network(*slow, plan), free = make_network(*fast, plan);
  const auto gather = [](const Network& network) {
    return collective_cost(OpKind::AllGather, {40'000}, network.group({0}, Axis::Tensor), network);
  };
  EXPECT_EQ(gather(throttled).crossing.value, 1000 + 40'000);
  EXPECT_EQ(gather(throttled).time, gather(free).time + gather(throttled).crossing);
  // The ring goes on to the next rank: one message each way.
  EXPECT_EQ(ring_shift_cost({30'000}, throttled.group({0}, Axis::Tensor), throttled).crossing.value,
            1000 + 60'000);
}

TEST(CrossingCost, NothingCrossesInsideAProcess) {
  const Plan plan = make_plan({.t = 2, .p = 2});
  const auto slow = two_processes(true);
  const Network network = make_network(*slow, plan);
  const CollectiveCost inside =
      collective_cost(OpKind::AllReduce, {1 << 20}, network.group({0}, Axis::Tensor), network);
  EXPECT_EQ(inside.crossing.value, 0);
  EXPECT_GT(transfer_cost({8}, network.path({0}, {1}), network).crossing.value, 0);
}

}  // namespace
}  // namespace rehearse::sim
