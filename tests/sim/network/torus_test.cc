// SPDX-License-Identifier: Apache-2.0
// Paths on a torus, and what collectives and transfers take on it. B is what a link carries one
// way, S the whole array, h the latency of a link; closed forms stand above each test.
#include "sim/network/torus.h"

#include <cmath>
#include <numeric>
#include <random>
#include <set>

#include "sim/engine/max_min.h"
#include "sim/network/collective_cost.h"
#include "sim/network/transfer_cost.h"
#include "tests/sim/network/network_fixture.h"

namespace rehearse::sim {
namespace {

constexpr double kB = 100e9, kH = 2e-6, kS = 1e9;
constexpr Bytes kBytes{1'000'000'000};

std::vector<TorusAxis> equal_axes(const std::vector<std::int32_t>& sizes) {
  std::vector<TorusAxis> axes;
  for (const std::int32_t size : sizes) axes.push_back({size, {kB}, false});
  return axes;
}

// A node whose GPUs stand on a torus, and whose links reach all of B.
std::unique_ptr<Machine> torus_machine(const std::vector<TorusAxis>& axes) {
  auto made = machine("aws-trn2-48xlarge");
  made->cluster.scale_up.axes = axes;
  made->cluster.scale_up.hop_latency_us = kH * 1e6;
  made->cluster.scale_up.achievable_fraction = 1;
  made->cluster.gpus_per_node = Torus(axes).num_chips();
  made->cluster.nics.count = made->cluster.gpus_per_node;
  return made;
}

double seconds(OpKind kind, const Network& network, Axis axis) {
  return static_cast<double>(
             collective_cost(kind, kBytes, network.group({0}, axis), network).time.value) *
         1e-9;
}

double ring_sum(const TorusGroup& group) {
  double sum = 0;
  for (const TorusLoad& load : group.loads) sum += load.ring;
  return sum;
}

// Links between two chips, the shorter way round every axis.
std::int32_t distance(const std::vector<TorusAxis>& axes, std::int32_t a, std::int32_t b) {
  std::int32_t sum = 0;
  for (const TorusAxis& axis : axes) {
    const std::int32_t apart = std::abs(a % axis.size - b % axis.size);
    sum += axis.open ? apart : std::min(apart, axis.size - apart);
    a /= axis.size;
    b /= axis.size;
  }
  return sum;
}

TEST(Torus, RoutesAreAsShortAsTheTorusAllows) {
  std::vector<TorusAxis> grid = equal_axes({5, 2, 4});
  grid[0].open = true;
  for (const std::vector<TorusAxis>& axes : {equal_axes({4, 4}), equal_axes({4, 4, 4}), grid}) {
    const Torus torus(axes);
    for (std::int32_t a = 0; a < torus.num_chips(); ++a) {
      for (std::int32_t b = 0; b < torus.num_chips(); ++b) {
        const std::vector<std::int32_t> route = torus.route(a, b);
        EXPECT_EQ(static_cast<std::int32_t>(route.size()), distance(axes, a, b));
        // Along the first axis first, and each link begins where the one before it ended.
        for (std::size_t i = 1; i < route.size(); ++i) {
          EXPECT_LE(torus.axis_of(route[i - 1]), torus.axis_of(route[i]));
        }
        if (!route.empty()) {
          EXPECT_EQ(torus.chip_of(route.front()), a);
        }
      }
    }
  }
}

// Whatever the group, a ring's turn passes a link to each next member, and an all-to-all the
// distance of every two: (1/n) sum of distances. A block's links to the next are neighbours': n in
// all, n - 1 of n of which is what dimension-wise rings put on the links.
TEST(Torus, BytesOnLinksAreBytesTimesDistance) {
  std::mt19937 random(7);
  for (std::int32_t trial = 0; trial < 300; ++trial) {
    const std::vector<TorusAxis> axes = trial % 3 == 0   ? equal_axes({4, 4})
                                        : trial % 3 == 1 ? equal_axes({4, 4, 4})
                                                         : equal_axes({6, 5});
    const Torus torus(axes);
    std::set<std::int32_t> chosen;
    const std::size_t n = 2 + random() % 8;
    while (chosen.size() < n) {
      chosen.insert(static_cast<std::int32_t>(random()) & 0xffff);
      std::set<std::int32_t> inside;
      for (const std::int32_t chip : chosen) inside.insert(chip % torus.num_chips());
      chosen = inside;
    }
    const std::vector<std::int32_t> members(chosen.begin(), chosen.end());
    const auto ranks = static_cast<std::int32_t>(n);
    const TorusGroup group = torus.group(members, ranks);
    double pairs = 0, next = 0, expected_pairs = 0, expected_next = 0;
    for (const TorusLoad& load : group.loads) {
      pairs += load.pairwise;
      next += load.next;
    }
    for (std::size_t i = 0; i < n; ++i) {
      expected_next += distance(axes, members[i], members[(i + 1) % n]);
      for (const std::int32_t other : members) {
        expected_pairs += static_cast<double>(distance(axes, members[i], other)) / ranks;
      }
    }
    EXPECT_NEAR(pairs, expected_pairs, 1e-9);
    EXPECT_NEAR(next, expected_next, 1e-9);
    const bool block = !torus.block_of(members).empty();
    EXPECT_NEAR(ring_sum(group), block ? ring_sum(group) : expected_next, 1e-9);
  }
}

// A row of 4 is a ring of neighbours; half the data goes each way: 3/4 S, twice, at 2 B. All four
// rows do so at once, each on its own links. 2 x 3 steps.
TEST(Torus, ARowIsARing) {
  const auto node = torus_machine(equal_axes({4, 4}));
  const Network network = make_network(*node, make_plan({.t = 4, .d = 4}));
  EXPECT_NEAR(seconds(OpKind::AllReduce, network, Axis::Tensor), .75 * kS / kB + 6 * kH, 1e-8);
  EXPECT_NEAR(seconds(OpKind::AllGather, network, Axis::Tensor), .75 * kS / (2 * kB) + 3 * kH,
              1e-8);
  // A column (stride 4) is one too, and shares no link with the rows.
  EXPECT_NEAR(seconds(OpKind::AllReduce, network, Axis::Data), .75 * kS / kB + 6 * kH, 1e-8);
  for (const LinkUse& row : network.group({0}, Axis::Tensor).links) {
    for (const LinkUse& column : network.group({0}, Axis::Data).links) {
      EXPECT_FALSE(row.ring > 0 && column.ring > 0 && row.resource == column.resource);
    }
  }
}

// The whole k x k torus: (n-1)/n S around, over the 2 d links of a chip; k - 1 steps an axis.
TEST(Torus, TheWholeTorusUsesEveryLink) {
  const auto square = torus_machine(equal_axes({4, 4}));
  const Network flat = make_network(*square, make_plan({.d = 16}));
  EXPECT_NEAR(seconds(OpKind::ReduceScatter, flat, Axis::Data), 15. / 16 * kS / (4 * kB) + 6 * kH,
              1e-8);
  EXPECT_NEAR(seconds(OpKind::AllReduce, flat, Axis::Data), 15. / 8 * kS / (4 * kB) + 12 * kH,
              1e-8);
  const auto cube = torus_machine(equal_axes({4, 4, 4}));
  const Network deep = make_network(*cube, make_plan({.d = 64}));
  EXPECT_NEAR(seconds(OpKind::AllGather, deep, Axis::Data), 63. / 64 * kS / (6 * kB) + 9 * kH,
              1e-8);
  // A node of one row: its 4 (6) directions are one resource each, all equally loaded.
  EXPECT_EQ(flat.group({0}, Axis::Data).links.size(), 4u);
  for (const LinkUse& use : deep.group({0}, Axis::Data).links) {
    EXPECT_NEAR(use.ring, 1 / (6 * kB), 1e-18);
  }
}

// Every byte that a member sends around the rings of a block passes one link: the shares along the
// axes sum to 1, whatever the axes are. Here 4 x 4 of B and a third axis of B / 2: its rings carry
// half, so a fifth of the data begins there. Along it 1/5 3/4 + 2/5 (3/16 + 3/64) = 0.24375 of S,
// of 63/64 in all.
TEST(Torus, ASlowerAxisBeginsLess) {
  std::vector<TorusAxis> axes = equal_axes({4, 4, 4});
  axes[2].bandwidth_per_link = {kB / 2};
  std::vector<std::int32_t> all(64);
  std::iota(all.begin(), all.end(), 0);
  const Torus torus(axes);
  const TorusGroup group = torus.group(all, 64);
  EXPECT_NEAR(ring_sum(group), 64, 1e-9);
  double along = 0;
  for (const TorusLoad& load : group.loads) along += torus.axis_of(load.link) == 2 ? load.ring : 0;
  EXPECT_NEAR(along, .24375 * 64 / 63 * 64, 1e-9);
}

// A ring through every second chip of eight, and its sibling through the others: each passes all
// eight links, so a link carries two rings. Twice the time of four neighbours; a step passes 2
// links.
TEST(Torus, ARingThatDoesNotEmbedSharesItsLinks) {
  const auto ring = torus_machine(equal_axes({8}));
  const Network strided = make_network(*ring, make_plan({.t = 2, .d = 4}));
  EXPECT_NEAR(seconds(OpKind::AllGather, strided, Axis::Data), .75 * kS / kB + 6 * kH, 1e-8);
  // Four neighbours of eight are no circle: the way back takes the other direction of the links.
  const Network line = make_network(*ring, make_plan({.t = 4, .d = 2}));
  EXPECT_NEAR(seconds(OpKind::AllGather, line, Axis::Tensor), .75 * kS / kB + 9 * kH, 1e-8);
  // All eight are: half goes each way.
  const Network whole = make_network(*ring, make_plan({.t = 8}));
  EXPECT_NEAR(seconds(OpKind::AllGather, whole, Axis::Tensor), 7. / 8 * kS / (2 * kB) + 7 * kH,
              1e-8);
}

// Without the link that closes it a row sends and returns on the same links.
TEST(Torus, AnOpenRowTakesTwiceAsLong) {
  std::vector<TorusAxis> axes = equal_axes({4, 4});
  axes[0].open = true;
  const auto grid = torus_machine(axes);
  const Network network = make_network(*grid, make_plan({.t = 4, .d = 4}));
  EXPECT_NEAR(seconds(OpKind::AllGather, network, Axis::Tensor), .75 * kS / kB + 9 * kH, 1e-8);
  EXPECT_NEAR(seconds(OpKind::AllGather, network, Axis::Data), .75 * kS / (2 * kB) + 3 * kH, 1e-8);
}

// Half of the chips send half of their buffers to the other half: n S / 4 over the 2 n / k links of
// the cut, so k S / (8 B). Dimension-ordered routes reach that bound where k is a multiple of 4.
TEST(Torus, AllToAllIsBoundByTheBisection) {
  for (const std::vector<std::int32_t>& sizes :
       {std::vector{4, 4}, std::vector{4, 4, 4}, std::vector{8, 8}, std::vector{8, 4}}) {
    const auto node = torus_machine(equal_axes(sizes));
    const std::int32_t n = node->cluster.gpus_per_node, k = sizes.front();
    const Network network = make_network(*node, make_plan({.d = n}));
    std::int32_t reach = 0;
    for (const std::int32_t size : sizes) reach += size / 2;
    EXPECT_NEAR(seconds(OpKind::AllToAll, network, Axis::Data), k * kS / (8 * kB) + reach * kH,
                1e-8);
  }
}

// Eight positions of one GPU on a ring of eight. Position 0 to 3 passes three links, 1 to 2 the
// middle one of them: alone each takes S / B, together each has half of that link.
TEST(Torus, TransfersShareTheLinksOnTheirWay) {
  const auto ring = torus_machine(equal_axes({8}));
  const Network network = make_network(*ring, make_plan({.p = 8}));
  const TransferCost far = transfer_cost(kBytes, network.path({0}, {3}), network);
  const TransferCost near = transfer_cost(kBytes, network.path({1}, {2}), network);
  const TransferCost back = transfer_cost(kBytes, network.path({3}, {0}), network);
  EXPECT_NEAR(static_cast<double>(far.time.value) * 1e-9, kS / kB + 3 * kH, 1e-8);
  EXPECT_NEAR(static_cast<double>(near.time.value) * 1e-9, kS / kB + kH, 1e-8);
  EXPECT_EQ(far.link, LinkKind::Torus);
  ASSERT_EQ(far.send.size(), 3u);
  EXPECT_TRUE(far.recv.empty());
  SharedResources shared(network.num_resources(), 3);
  shared.add(0, far.send, 1);
  shared.add(1, near.send, 1);
  shared.add(2, back.send, 1);  // the other direction
  shared.settle();
  EXPECT_NEAR(shared.rate(0), .5, 1e-3);
  EXPECT_NEAR(shared.rate(1), .5, 1e-3);
  EXPECT_EQ(shared.rate(2), 1);
}

// What a rank sends to the next of a row goes one way round: no half goes the other.
TEST(Torus, AShiftGoesOneWay) {
  const auto node = torus_machine(equal_axes({4, 4}));
  const Network network = make_network(*node, make_plan({.c = 4, .d = 4}));
  const CollectiveCost shift = ring_shift_cost(kBytes, network.group({0}, Axis::Context), network);
  EXPECT_NEAR(static_cast<double>(shift.time.value) * 1e-9, kS / kB + kH, 1e-8);
}

// What is equal is one resource: of four positions of a row each, the rows' links along the first
// axis; of sixteen positions nothing.
TEST(Torus, EqualLinksAreOneResource) {
  const Torus torus(equal_axes({4, 4}));
  const auto distinct = [&](const std::vector<std::int32_t>& content) {
    const std::vector<std::int32_t> equal = torus.equal_links(content);
    return std::set<std::int32_t>(equal.begin(), equal.end()).size();
  };
  std::vector<std::int32_t> alike(16, 0), rows(16), all(16);
  for (std::size_t chip = 0; chip < 16; ++chip) {
    rows[chip] = static_cast<std::int32_t>(chip / 4);
    all[chip] = static_cast<std::int32_t>(chip);
  }
  EXPECT_EQ(distinct(alike), 4u);
  EXPECT_EQ(distinct(rows), 16u);
  EXPECT_EQ(distinct(all), 64u);
}

// Two nodes: in each a ring through its members, between them what each NIC carries. With 32 ranks
// and a NIC for each, the links of the torus take as long as those of one node: S 31/32 / 4 B.
TEST(Torus, AGroupOfSeveralNodesPassesThroughTheTorusOfEach) {
  const auto node = torus_machine(equal_axes({4, 4}));
  const Network network = make_network(*node, make_plan({.d = 32}));
  const GroupShape group = network.group({0}, Axis::Data);
  EXPECT_EQ(group.nodes, 2);
  EXPECT_NEAR(use_of(group.links, LinkKind::Torus).ring, 1 / (4 * kB), 1e-18);
  EXPECT_NEAR(use_of(group.links, LinkKind::Nic).ring, 1 / (16 * 25e9 * .955), 1e-18);
}

}  // namespace
}  // namespace rehearse::sim
