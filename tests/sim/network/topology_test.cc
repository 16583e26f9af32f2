// SPDX-License-Identifier: Apache-2.0
// Groups on nodes: shapes by hand for known layouts, and against a brute-force count for random
// ones.
#include "sim/network/topology.h"

#include <map>
#include <random>
#include <set>

#include "tests/sim/network/network_fixture.h"

namespace rehearse::sim {
namespace {

constexpr double kHdr = 25e9 * .95;  // one HDR NIC, what collectives reach

TEST(Topology, GivesEachDataParallelGroupOfTensorParallelEightItsRail) {
  const auto dgx = machine("dgx-a100-80gb");
  const Network network = make_network(*dgx, make_plan({.t = 8, .p = 8, .d = 16}));
  EXPECT_EQ(network.num_nodes(), 128);
  const GroupShape tensor = network.group({0}, Axis::Tensor);
  EXPECT_EQ(tensor.ranks, 8);
  EXPECT_EQ(tensor.nodes, 1);
  EXPECT_EQ(use_of(tensor.links, LinkKind::Nic).resource, ResourceId{});
  const GroupShape data = network.group({0}, Axis::Data);
  EXPECT_EQ(data.ranks, 16);
  EXPECT_EQ(data.nodes, 16);
  EXPECT_EQ(data.ranks_per_node, 1);
  EXPECT_EQ(data.siblings, 8);  // eight rings at once, each on its own NIC
  EXPECT_NEAR(data.nics, 1, 1e-12);
  EXPECT_NEAR(use_of(data.links, LinkKind::Nic).ring, 1 / kHdr, 1e-18);
}

TEST(Topology, LetsOneRingUseAllNicsOfANode) {
  const auto dgx = machine("dgx-a100-80gb");
  const Network network = make_network(*dgx, make_plan({.d = 16}));
  const GroupShape data = network.group({0}, Axis::Data);
  EXPECT_EQ(data.nodes, 2);
  EXPECT_EQ(data.ranks_per_node, 8);
  EXPECT_EQ(data.siblings, 1);
  EXPECT_NEAR(data.nics, 8, 1e-12);
  EXPECT_NEAR(use_of(data.links, LinkKind::Nic).ring, 1 / (8 * kHdr), 1e-18);
  // All-to-all: the 8 members of a node send 8/16 of their buffers out, over 8 NICs.
  EXPECT_NEAR(use_of(data.links, LinkKind::Nic).pairwise, .5 / kHdr, 1e-18);
}

TEST(Topology, HalvesANicThatTwoGroupsShare) {
  // 4 NICs for 8 GPUs, tensor parallel 8: the rings of GPUs 0 and 1 share NIC 0.
  const auto four = machine("a100-80gb-4x-hdr200");
  const GroupShape data = make_network(*four, make_plan({.t = 8, .d = 4})).group({0}, Axis::Data);
  EXPECT_NEAR(data.nics, .5, 1e-12);
  // One NIC for 8 GPUs: an eighth.
  const auto a2 = machine("gcp-a2-highgpu-8g");
  EXPECT_NEAR(make_network(*a2, make_plan({.t = 8, .d = 4})).group({0}, Axis::Data).nics, .125,
              1e-12);
  // 32 NICs for 8 GPUs: four each.
  const auto p5 = machine("aws-p5-48xlarge");
  EXPECT_NEAR(make_network(*p5, make_plan({.t = 8, .d = 4})).group({0}, Axis::Data).nics, 4, 1e-12);
}

TEST(Topology, SharesAResourceBetweenRowsOnlyWhereTheyShareTheLink) {
  // One NIC per node of 8 GPUs, four positions on each node: one resource for all.
  const auto a2 = machine("gcp-a2-highgpu-8g");
  const Network one = make_network(*a2, make_plan({.t = 2, .p = 4, .d = 2}, kDataOutside));
  const LinkUse first = use_of(one.group({0}, Axis::Data).links, LinkKind::Nic);
  EXPECT_EQ(first.resource, use_of(one.group({3}, Axis::Data).links, LinkKind::Nic).resource);
  // A NIC per GPU: every position has its own.
  const auto dgx = machine("dgx-a100-80gb");
  const Network own = make_network(*dgx, make_plan({.t = 2, .p = 4, .d = 2}, kDataOutside));
  EXPECT_NE(use_of(own.group({0}, Axis::Data).links, LinkKind::Nic).resource,
            use_of(own.group({3}, Axis::Data).links, LinkKind::Nic).resource);
  // A NIC for two GPUs, two positions of one GPU each below it.
  const auto four = machine("a100-80gb-4x-hdr200");
  const Network pairs = make_network(*four, make_plan({.p = 2, .d = 8}, kPipelineInside));
  EXPECT_EQ(use_of(pairs.group({0}, Axis::Data).links, LinkKind::Nic).resource,
            use_of(pairs.group({1}, Axis::Data).links, LinkKind::Nic).resource);
}

TEST(Topology, NeverNeedsMoreResourcesForMoreReplicas) {
  const auto dgx = machine("selene-a100-80gb");
  const Network small = make_network(*dgx, make_plan({.t = 8, .p = 8, .d = 2}));
  const Network large = make_network(*dgx, make_plan({.t = 8, .p = 8, .d = 256}));  // 16,384 GPUs
  EXPECT_EQ(small.num_resources(), large.num_resources());
}

TEST(Topology, TellsNeighboursInANodeFromNeighboursAcrossNodes) {
  const auto dgx = machine("dgx-a100-80gb");
  // Positions are blocks of 4 ranks: 0 and 1 on node 0, 2 and 3 on node 1.
  const Network network = make_network(*dgx, make_plan({.t = 2, .p = 4, .d = 2}));
  const Path inside = network.path({0}, {1});
  EXPECT_FALSE(inside.between_nodes);
  EXPECT_EQ(inside.link, LinkKind::Port);
  const Path across = network.path({1}, {2});
  EXPECT_TRUE(across.between_nodes);
  EXPECT_EQ(across.link, LinkKind::Nic);
  EXPECT_NEAR(across.seconds_per_byte, 1 / (25e9 * .9), 1e-18);  // its own NIC, one pair
  EXPECT_TRUE(network.path({2}, {2}).same_device);
  // What leaves node 0 and what enters node 1 are different resources.
  EXPECT_NE(across.out.front().resource, across.in.front().resource);
  // Forth and back do not share: out and in of a NIC are two resources.
  const Path back = network.path({2}, {1});
  for (const LinkUse& forth : across.out) {
    for (const LinkUse& returning : back.in) EXPECT_NE(forth.resource, returning.resource);
  }
}

TEST(Topology, GivesAPairOfAMeshOneLinkAndAllOfThemAllLinks) {
  const auto mi300x = machine("mi300x-8");
  const double two = make_network(*mi300x, make_plan({.t = 2})).ring_bandwidth(2);
  const double eight = make_network(*mi300x, make_plan({.t = 8})).ring_bandwidth(8);
  EXPECT_NEAR(eight / two, 448.0 / 64, 1e-12);
  EXPECT_NEAR(two, 64e9 * mi300x->model.constants.scale_up_fraction, 1);
  const auto redstone = machine("hgx-a100-4gpu-40gb");  // 4 links of 25 GB/s per pair
  const Network four = make_network(*redstone, make_plan({.t = 4}));
  EXPECT_NEAR(four.ring_bandwidth(4) / four.ring_bandwidth(2), 3, 1e-12);
}

TEST(Topology, KnowsThatTheCubeMeshIsNotMonotonic) {
  // vTrain: 22.6, 46, 87.5, 37.3, 47, 87.4, 135.8 GB/s for 2 to 8 GPUs of a DGX-1.
  const auto dgx1 = machine("dgx1-v100-32gb");
  const Network network = make_network(*dgx1, make_plan({.t = 8}));
  EXPECT_GT(network.ring_bandwidth(4), 2 * network.ring_bandwidth(5));
  EXPECT_NEAR(network.ring_bandwidth(8) / 1e9, 135.8, .1);
}

TEST(Topology, LetsInterleavedRingsShareTheLinkBetweenSockets) {
  // SimuMax: on 8 PCIe GPUs, four pairs across the sockets reach 4 GB/s each and two rings of four
  // 7.65, though one such pair or ring alone reaches 20.
  const auto pcie = machine("pcie-a100-80gb-8");
  const GroupShape pairs = make_network(*pcie, make_plan({.t = 4, .d = 2})).group({0}, Axis::Data);
  EXPECT_NEAR(1e-9 / use_of(pairs.links, LinkKind::Socket).ring, 4, .4);
  const GroupShape fours = make_network(*pcie, make_plan({.t = 2, .d = 4})).group({0}, Axis::Data);
  EXPECT_NEAR(1e-9 / use_of(fours.links, LinkKind::Socket).ring, 7.65, .4);
  const GroupShape near = make_network(*pcie, make_plan({.t = 2})).group({0}, Axis::Tensor);
  EXPECT_EQ(use_of(near.links, LinkKind::Socket).resource, ResourceId{});
}

TEST(Topology, SlowsWhatCrossesAnOversubscribedLeaf) {
  // 64 ports, 3:1: 48 down, so 6 nodes of 8 NICs below a leaf; a third of their rate goes up.
  auto dgx = machine("dgx-h100");
  Fabric fabric;
  fabric.leaf_ports = 64;
  fabric.oversubscription_leaf_to_spine = 3;
  dgx->cluster.fabric = fabric;
  const Network network = make_network(*dgx, make_plan({.t = 8, .p = 2, .d = 6}));
  // All 48 ranks of position 0 send to position 1 on the next leaf: three times the NIC's time.
  const Path path = network.path({0}, {1});
  EXPECT_EQ(path.link, LinkKind::Leaf);
  EXPECT_NEAR(path.seconds_per_byte, 3 / (50e9 * .95), 1e-18);
  // Below one leaf nothing goes up.
  const GroupShape below = network.group({0}, Axis::Data);
  EXPECT_EQ(use_of(below.links, LinkKind::Leaf).resource, ResourceId{});
  // Eight rings over two leaves cross it once each way: 8 of 16 NIC rates.
  const Network wide = make_network(*dgx, make_plan({.t = 8, .d = 12}));
  const LinkUse up = use_of(wide.group({0}, Axis::Data).links, LinkKind::Leaf);
  EXPECT_NEAR(up.ring, 8 / (48 * 50e9 * .95 / 3), 1e-18);
}

TEST(Topology, MarksWhatCrossesDataCentres) {
  auto dgx = machine("dgx-h100");
  Fabric fabric;
  fabric.pod_gpus = 16;
  fabric.oversubscription_aggregation_to_core = 100;
  fabric.between_pods_latency_us = 5000;
  dgx->cluster.fabric = fabric;
  // Two data centres of two nodes: pipelines inside, data parallel between them.
  const Network network = make_network(*dgx, make_plan({.t = 8, .p = 2, .d = 2}, kDataOutside));
  EXPECT_FALSE(network.path({0}, {1}).crosses_pod);
  const GroupShape data = network.group({0}, Axis::Data);
  EXPECT_EQ(data.pods, 2);
  EXPECT_NEAR(use_of(data.links, LinkKind::Pod).ring, 8 / (16 * 50e9 * .95 / 100), 1e-15);
}

TEST(Topology, FindsGroupsOfASchedule) {
  const auto dgx = machine("dgx-a100-80gb");
  const Network network = make_network(*dgx, make_plan({.t = 2, .p = 2, .c = 2, .d = 4}));
  Schedule schedule;
  const std::vector<RankClass> both{{0}, {1}};
  schedule.placement = loop_placement(2, 1);
  schedule.groups = {{GroupKind::Tensor, 2, both},   {GroupKind::Data, 8, both},
                     {GroupKind::Pipeline, 2, both}, {GroupKind::Embedding, 2, both},
                     {GroupKind::World, 32, both},   {GroupKind::Context, 2, both},
                     {GroupKind::Mirror, 2, both}};
  const std::int32_t ranks[] = {2, 8, 2, 2, 32, 2, 2};
  const std::int32_t nodes[] = {1, 2, 2, 2, 4, 1, 2};
  for (std::int32_t g = 0; g < 7; ++g) {
    const GroupShape shape = network.group({0}, schedule, {g});
    EXPECT_EQ(shape.ranks, ranks[g]) << g;
    EXPECT_EQ(shape.nodes, nodes[g]) << g;
  }
}

// 32 replicas on four nodes, ZeRO over eight: shards inside a node, each of their eight ranks with
// its equals on the four nodes; all eight such groups leave a node, on a rail each.
TEST(Topology, ShardGroupsLieInsideAndReplicatesAcrossNodes) {
  const auto dgx = machine("dgx-a100-80gb");
  Plan plan = make_plan({.d = 32});
  plan.shard_group = 8;
  const Network network = make_network(*dgx, plan);
  const auto group = [&](ReplicaPart part) {
    return network.group(
        {0}, {.tensor = false, .context = true, .data = true, .part = part, .positions = {}});
  };
  const GroupShape shards = group(ReplicaPart::Neighbours), equals = group(ReplicaPart::Across);
  EXPECT_EQ(shards.ranks, 8);
  EXPECT_EQ(shards.nodes, 1);
  EXPECT_EQ(shards.siblings, 1);
  EXPECT_EQ(equals.ranks, 4);
  EXPECT_EQ(equals.nodes, 4);
  EXPECT_EQ(equals.siblings, 8);
  EXPECT_EQ(equals.nics, 1);
}

// 32 ranks share a sequence on four nodes: eight of a node exchange heads, and each is in a ring of
// four across the nodes, on a rail of its own. Replicas beside them change neither.
TEST(Topology, HeadsAreExchangedInsideAndRingsGoAcrossNodes) {
  const auto dgx = machine("dgx-a100-80gb");
  for (const std::int32_t replicas : {1, 3}) {
    Plan plan = make_plan({.c = 32, .d = replicas});
    plan.head_exchange_group = 8;
    const Network network = make_network(*dgx, plan);
    const GroupShape heads = network.group({0}, Axis::ContextHeads);
    const GroupShape ring = network.group({0}, Axis::ContextRing);
    EXPECT_EQ(heads.ranks, 8);
    EXPECT_EQ(heads.nodes, 1);
    EXPECT_EQ(ring.ranks, 4);
    EXPECT_EQ(ring.nodes, 4);
    EXPECT_EQ(ring.siblings, 8);
    EXPECT_EQ(ring.nics, 1);
  }
}

// Two positions of eight GPUs with one NIC for all: tensor-parallel ranks send at once, replicas
// take turns.
TEST(Topology, ReplicasThatShareANicTakeTurns) {
  const auto dgx = machine("dgx-a100-80gb");
  dgx->cluster.nics.count = 1;
  const double alone =
      make_network(*dgx, make_plan({.t = 1, .p = 2, .d = 8})).path({0}, {1}).seconds_per_byte;
  const double together =
      make_network(*dgx, make_plan({.t = 8, .p = 2})).path({0}, {1}).seconds_per_byte;
  EXPECT_NEAR(together / alone, 8, 1e-9);
}

TEST(Topology, MovesABodysDemandsToTheRowThatRunsIt) {
  const auto dgx = machine("dgx-a100-80gb");
  const Network network = make_network(*dgx, make_plan({.t = 2, .p = 4, .d = 2}, kDataOutside));
  for (const Axis axis : {Axis::Tensor, Axis::Data}) {
    const GroupShape first = network.group({0}, axis), third = network.group({2}, axis);
    std::vector<Demand> demands;
    for (const LinkUse& use : first.links) demands.push_back({use.resource, .25});
    const std::vector<Demand> moved = moved_to(network.counterparts({0}, {2}), demands);
    ASSERT_EQ(moved.size(), third.links.size());
    for (std::size_t i = 0; i < moved.size(); ++i) {
      EXPECT_EQ(moved[i].resource, third.links[i].resource);
      EXPECT_NE(moved[i].resource, demands[i].resource);
      EXPECT_EQ(moved[i].share, .25);
    }
  }
}

TEST(Topology, SharesAPcieSwitchBetweenTheCopiesOfItsGpus) {
  const auto dgx = machine("dgx-a100-80gb");  // 2 GPUs below a switch
  const Path whole = make_network(*dgx, make_plan({.t = 8})).to_host({0});
  const Path alone = make_network(*dgx, make_plan({})).to_host({0});
  EXPECT_NEAR(whole.seconds_per_byte / alone.seconds_per_byte, 2, 1e-12);
  EXPECT_EQ(whole.link, LinkKind::Pcie);
}

// The most loaded NIC port of a row's group, counted without any of the network's code: all ranks,
// all instances, every port.
double brute_force_nic_load(const Cluster& cluster, const Plan& plan, Position position,
                            Axis axis) {
  const Mesh mesh(plan);
  const std::int32_t g = cluster.gpus_per_node, ports = std::min(cluster.nics.count, g);
  std::map<std::int32_t, double> load;
  std::set<std::vector<std::int32_t>> instances;
  for (std::int32_t rank = 0; rank < mesh.ranks(); ++rank) {
    if (mesh.coordinates({rank}).pipeline != position.value) continue;
    std::vector<std::int32_t> members;
    for (const Rank member : mesh.group(axis, {rank})) members.push_back(member.value);
    instances.insert(members);
  }
  for (const std::vector<std::int32_t>& members : instances) {
    std::map<std::int32_t, std::set<std::int32_t>> ports_of_node;
    for (const std::int32_t r : members) {
      ports_of_node[r / g].insert(r / g * ports + r % g / (g / ports));
    }
    if (ports_of_node.size() < 2) continue;
    for (const auto& [node, used] : ports_of_node) {
      for (const std::int32_t port : used) load[port] += 1.0 / static_cast<double>(used.size());
    }
  }
  double most = 0;
  for (const auto& [port, value] : load) most = std::max(most, value);
  return most;
}

TEST(Topology, CountsTheLoadOfNicsAsAnUnfoldedCountDoes) {
  std::mt19937 random(7);
  const auto pick = [&](std::initializer_list<std::int32_t> from) {
    return *(from.begin() + static_cast<std::ptrdiff_t>(random() % from.size()));
  };
  const std::vector<std::unique_ptr<Machine>> machines = [] {
    std::vector<std::unique_ptr<Machine>> made;
    for (const char* id : {"dgx-a100-80gb", "a100-80gb-4x-hdr200", "gcp-a2-highgpu-8g",
                           "gcp-a2-megagpu-16g", "aws-p5-48xlarge"}) {
      made.push_back(machine(id));
    }
    return made;
  }();
  const std::vector<std::vector<Axis>> orders{kDefaultOrder, kDataOutside, kPipelineInside};
  int loaded = 0;
  for (int trial = 0; trial < 300; ++trial) {
    const Machine& m = *machines[random() % machines.size()];
    const Plan plan = make_plan({.t = pick({1, 2, 3, 4, 8}),
                                 .p = pick({1, 2, 3, 4}),
                                 .c = pick({1, 2}),
                                 .d = pick({1, 2, 3, 5, 8})},
                                orders[random() % orders.size()]);
    const Network network = make_network(m, plan);
    const double port = m.cluster.nics.bandwidth_each.value * m.cluster.nics.count /
                        std::min(m.cluster.nics.count, m.cluster.gpus_per_node) *
                        m.model.nic.achievable_fraction;
    for (std::int32_t p = 0; p < plan.pipeline_parallel; ++p) {
      for (const Axis axis : {Axis::Tensor, Axis::Context, Axis::Data}) {
        const GroupShape shape = network.group({p}, axis);
        double ours = 0;
        for (const LinkUse& use : shape.links) {
          ASSERT_LT(use.resource.value, network.num_resources());
          if (use.kind == LinkKind::Nic) ours = std::max(ours, use.ring * port);
        }
        const double counted = brute_force_nic_load(m.cluster, plan, {p}, axis);
        ASSERT_NEAR(ours, counted, 1e-9) << trial << " position " << p;
        loaded += counted > 0 ? 1 : 0;
      }
    }
  }
  EXPECT_GT(loaded, 300);  // the layouts really used NICs
}

}  // namespace
}  // namespace rehearse::sim
