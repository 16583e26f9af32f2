// SPDX-License-Identifier: Apache-2.0
// A group that contains another one, over links that contain its links, is not better served: it
// takes no less time for the same bytes, and where bytes decide its bus bandwidth is no higher.
// Over all shipped clusters, kinds and sizes; what a table says of the very group is left as
// measured.
#include <algorithm>
#include <filesystem>

#include "sim/network/collective_cost.h"
#include "tests/sim/network/network_fixture.h"

namespace rehearse::sim {
namespace {

std::vector<std::string> shipped_clusters() {
  std::vector<std::string> ids;
  for (const auto& entry : std::filesystem::directory_iterator("scenarios/clusters")) {
    if (entry.path().extension() == ".json") ids.push_back(entry.path().stem().string());
  }
  std::ranges::sort(ids);
  return ids;
}

constexpr std::array kKinds{OpKind::AllReduce, OpKind::AllGather, OpKind::ReduceScatter,
                            OpKind::Broadcast, OpKind::Reduce,    OpKind::AllToAll,
                            OpKind::Gather,    OpKind::Scatter};

// So many GPUs of each of so many nodes, the first ones; the rest of each node is idle.
struct Group {
  std::int32_t per_node = 1, nodes = 1;
};

struct Priced {
  double seconds = 0, bus = 0;
  bool from_table = false;
};
Priced price(const Machine& machine, Group group, OpKind kind, std::int64_t bytes) {
  const bool whole = group.nodes == 1 || group.per_node == machine.cluster.gpus_per_node;
  const Plan plan =
      whole ? make_plan({.t = group.per_node * group.nodes})
            : make_plan({.t = group.per_node,
                         .p = machine.cluster.gpus_per_node / group.per_node,
                         .d = group.nodes},
                        {Axis::Tensor, Axis::Context, Axis::Expert, Axis::Pipeline, Axis::Data});
  const Network network = make_network(machine, plan);
  const GroupShape shape = whole ? network.group({0}, Axis::Tensor)
                                 : network.group({0}, GroupAxes{.tensor = true, .data = true});
  EXPECT_EQ(shape.ranks, group.per_node * group.nodes);
  EXPECT_EQ(shape.nodes, group.nodes);
  const CollectiveCost cost = collective_cost(kind, {bytes}, shape, network);
  return {.seconds = static_cast<double>(cost.time.value) * 1e-9,
          .bus = bus_bandwidth(kind, {bytes}, shape.ranks, cost.time).value,
          .from_table = cost.level == CostLevel::Measured || cost.level == CostLevel::Interpolated};
}

class Growth : public testing::TestWithParam<std::string> {};

// One node, whole or in part, against several: every size and kind.
TEST_P(Growth, SeveralNodesReachNoHigherBusBandwidthThanTheirPartOnOne) {
  const auto made = machine(GetParam());
  const std::int32_t gpus = made->cluster.gpus_per_node;
  int compared = 0;
  for (std::int32_t per_node = 2; per_node <= gpus; per_node *= 2) {
    if (gpus % per_node != 0) continue;
    for (const std::int32_t nodes : {2, 3, 4, 16}) {
      for (const OpKind kind : kKinds) {
        for (std::int64_t bytes = 256; bytes <= std::int64_t{1} << 34; bytes *= 8) {
          const Priced inside = price(*made, {per_node, 1}, kind, bytes);
          const Priced outside = price(*made, {per_node, nodes}, kind, bytes);
          if (outside.from_table) continue;
          ++compared;
          // A nanosecond of rounding.
          EXPECT_LE(outside.bus * (1 - 1.1e-9 / outside.seconds), inside.bus * (1 + 1e-9))
              << traits(kind).name << " of " << bytes << " bytes, " << per_node
              << " GPUs of each of " << nodes << " nodes against one";
          EXPECT_GE(outside.seconds, inside.seconds * (1 - 1e-9));
        }
      }
    }
  }
  EXPECT_TRUE(compared > 0 || gpus == 1) << GetParam();
}

// Bus bandwidth of further bytes: what is left when the fixed time of a call is taken off, which
// counts the more the fewer ranks there are. Taken from two sizes, so the root term of a fitted
// table is still in it: a few thousandths.
double further(const Machine& machine, Group group, OpKind kind, bool* from_table) {
  constexpr std::int64_t kLarge = std::int64_t{1} << 34;
  const Priced half = price(machine, group, kind, kLarge / 2);
  const Priced whole = price(machine, group, kind, kLarge);
  *from_table = half.from_table || whole.from_table;
  const double factor = bus_bandwidth_factor(kind, group.per_node * group.nodes);
  return factor * static_cast<double>(kLarge / 2) / (whole.seconds - half.seconds);
}

// More nodes against fewer.
TEST_P(Growth, MoreNodesAreNotFasterThanFewer) {
  const auto made = machine(GetParam());
  const std::int32_t gpus = made->cluster.gpus_per_node;
  for (const std::int32_t per_node : {1, gpus}) {
    for (const OpKind kind : kKinds) {
      std::int32_t before = 2;
      for (const std::int32_t nodes : {3, 4, 6, 8, 16, 32}) {
        const Group fewer{per_node, before}, more{per_node, nodes};
        for (std::int64_t bytes = 256; bytes <= std::int64_t{1} << 34; bytes *= 8) {
          const Priced small = price(*made, fewer, kind, bytes),
                       large = price(*made, more, kind, bytes);
          if (small.from_table || large.from_table) continue;
          EXPECT_GE(large.seconds * (1 + 1e-9) + 1.1e-9, small.seconds)
              << traits(kind).name << " of " << bytes << " bytes, " << nodes << " nodes of "
              << per_node;
        }
        bool measured = false, also = false;
        const double least = further(*made, fewer, kind, &measured);
        const double most = further(*made, more, kind, &also);
        if (!measured && !also) {
          EXPECT_LE(most, least * 1.005)
              << traits(kind).name << ", " << nodes << " nodes of " << per_node;
        }
        before = nodes;
      }
    }
  }
}

std::string test_name(const testing::TestParamInfo<std::string>& of) {
  std::string name = of.param;
  std::ranges::replace_if(
      name, [](char c) { return c == '-' || c == '.'; }, '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Shipped, Growth, testing::ValuesIn(shipped_clusters()), test_name);

}  // namespace
}  // namespace rehearse::sim
