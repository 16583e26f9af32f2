// SPDX-License-Identifier: Apache-2.0
// A network that leaves out replicas says of every group, path and link what one says that looks at
// every rank: of random plans on every shipped cluster, equal to the last bit.
#include <algorithm>
#include <filesystem>

#include "tests/random_scenario.h"
#include "tests/sim/network/network_fixture.h"

namespace rehearse::sim {
namespace {

std::vector<std::string> shipped_clusters() {
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator("scenarios/clusters")) {
    if (file.path().extension() == ".json") names.push_back(file.path().stem());
  }
  std::ranges::sort(names);
  return names;
}

Plan random_plan(Chance& chance) {
  std::vector<Axis> order = kDefaultOrder;
  for (std::size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1],
              order[static_cast<std::size_t>(chance.below(static_cast<std::int64_t>(i)))]);
  }
  Plan plan = make_plan({.t = chance.of({1, 2, 3, 4, 8}),
                         .p = chance.of({1, 2, 3, 4}),
                         .c = chance.of({1, 1, 2, 4}),
                         .d = static_cast<std::int32_t>(1 + chance.below(240))},
                        chance.percent(30) ? order : kDefaultOrder);
  const std::int32_t in_position =
      plan.tensor_parallel * plan.context_parallel * plan.data_parallel;
  const std::int32_t expert = chance.of({1, 2, 4, 6, 8, 16}), expert_tensor = chance.of({1, 1, 2});
  if (in_position % (expert * expert_tensor) == 0) {
    plan.expert_parallel = expert;
    plan.expert_tensor_parallel = expert_tensor;
  } else {
    plan.expert_tensor_parallel = plan.tensor_parallel;
  }
  const std::int32_t shards = chance.of({2, 4, 8, 12});
  if (chance.percent(40) && plan.replicas() % shards == 0) plan.shard_group = shards;
  return plan;
}

std::string words(const Plan& plan) {
  std::string text =
      "t " + std::to_string(plan.tensor_parallel) + " c " + std::to_string(plan.context_parallel) +
      " d " + std::to_string(plan.data_parallel) + " p " + std::to_string(plan.pipeline_parallel) +
      " e " + std::to_string(plan.expert_parallel) + " q " +
      std::to_string(plan.expert_tensor_parallel) + " shards " + std::to_string(plan.shard_group) +
      " order";
  for (const Axis axis : plan.rank_order) text += " " + std::to_string(static_cast<int>(axis));
  return text;
}

std::string words(const GroupShape& shape) {
  std::string text = "ranks " + std::to_string(shape.ranks) + " nodes " +
                     std::to_string(shape.nodes) + " on a node " +
                     std::to_string(shape.ranks_per_node) + " siblings " +
                     std::to_string(shape.siblings) + " nics " + std::to_string(shape.nics) +
                     " pods " + std::to_string(shape.pods);
  for (const LinkUse& use : shape.links) {
    text += " [" + std::to_string(use.resource.value) + " " + std::string(name_of(use.kind)) + " " +
            std::to_string(use.ring * 1e12) + " " + std::to_string(use.pairwise * 1e12) + "]";
  }
  return text;
}

TEST(LeftOutReplicas, ChangeNothingThatANetworkSays) {
  Chance chance(11);
  std::int32_t shorter = 0;
  const std::vector<std::string> clusters = shipped_clusters();
  for (const std::string& id : clusters) {
    const auto here = machine(id);
    if (here->cluster.processes > 1) continue;
    for (std::int32_t i = 0; i < 10; ++i) {
      const Plan plan = random_plan(chance);
      const Network whole(here->cluster, here->model, plan, {}, /*all_replicas=*/true);
      const Network some(here->cluster, here->model, plan, {});
      SCOPED_TRACE(id + ": " + words(plan));
      shorter += some.replicas_left_out() > 0 ? 1 : 0;
      ASSERT_EQ(some.num_nodes(), whole.num_nodes());
      ASSERT_EQ(some.num_resources(), whole.num_resources());
      for (std::int32_t k = 0; k < whole.num_resources(); ++k) {
        const auto at = static_cast<std::size_t>(k);
        EXPECT_EQ(some.links()[at].kind, whole.links()[at].kind);
        EXPECT_EQ(some.links()[at].capacity.value, whole.links()[at].capacity.value);
      }
      for (std::int32_t row = 0; row < whole.num_rows(); ++row) {
        const auto alike = [&](const GroupShape& a, const GroupShape& b, const std::string& what) {
          EXPECT_TRUE(a == b) << what << " of row " << row << "\n" << words(a) << "\n" << words(b);
        };
        for (const Axis axis : {Axis::Tensor, Axis::Context, Axis::Data, Axis::Pipeline,
                                Axis::Expert, Axis::ExpertTensor, Axis::ExpertBlock}) {
          alike(some.group({row}, axis), whole.group({row}, axis),
                "axis " + std::to_string(static_cast<int>(axis)));
        }
        for (std::size_t k = 0; k < kNumGroupKinds; ++k) {
          GroupAxes axes = axes_of(static_cast<GroupKind>(k));
          alike(some.group({row}, axes), whole.group({row}, axes), "kind " + std::to_string(k));
          axes.positions = {{0}, {plan.pipeline_parallel - 1}};  // as the shared table's
          if (plan.pipeline_parallel == 1) continue;
          alike(some.group({row}, axes), whole.group({row}, axes),
                "kind " + std::to_string(k) + " at both ends");
        }
        for (std::int32_t to = 0; to < whole.num_rows(); ++to) {
          const Path a = some.path({row}, {to}), b = whole.path({row}, {to});
          EXPECT_EQ(a.out, b.out);
          EXPECT_EQ(a.in, b.in);
          EXPECT_EQ(a.seconds_per_byte, b.seconds_per_byte);
          EXPECT_EQ(a.link, b.link);
          EXPECT_EQ(a.between_nodes, b.between_nodes);
          EXPECT_EQ(a.crosses_pod, b.crosses_pod);
        }
        EXPECT_EQ(some.to_host({row}).out, whole.to_host({row}).out);
      }
    }
  }
  EXPECT_GT(shorter, static_cast<std::int32_t>(clusters.size()));
}

}  // namespace
}  // namespace rehearse::sim
