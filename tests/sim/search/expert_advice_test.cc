// SPDX-License-Identifier: Apache-2.0
// What a search says of experts: which of their costs limits, and whether crossing nodes pays.
#include "sim/search/expert_advice.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/sim/search/search_fixture.h"

namespace rehearse::sim {
namespace {

// 16 experts on two nodes of 8; all but the experts' keys is fixed.
std::string sixteen_experts(const std::string& more = "") {
  return scenario_of(
      R"({"model_type": "mixtral", "hidden_size": 1024, "intermediate_size": 4096,
          "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 8,
          "num_local_experts": 16, "num_experts_per_tok": 2, "vocab_size": 1024,
          "max_position_embeddings": 2048})",
      "dgx-a100-80gb", 16,
      R"({"tensor_parallel": 1, "pipeline_parallel": 1, "context_parallel": 1,
          "global_batch": 2048, "micro_batch": 2, "zero_stage": 0, "schedule": "none",
          "sequence_length": 2048, "recompute": "none")" +
          more + "}");
}
SearchResult searched(const Space& space, const Cluster& cluster) {
  return search(space, cluster, {.top = 3, .front = false}).value();
}

TEST(ExpertAdvice, a_group_crosses_nodes_where_its_ranks_do_not_lie_in_one) {
  Plan plan;
  plan.data_parallel = 16;
  const auto crosses = [&](std::int32_t e, std::int32_t q) {
    plan.tensor_parallel = q;
    plan.data_parallel = 16 / q;
    plan.expert_parallel = e;
    plan.expert_tensor_parallel = q;
    return experts_cross_nodes(plan, 8);
  };
  EXPECT_FALSE(crosses(1, 1));
  EXPECT_FALSE(crosses(8, 1));
  EXPECT_FALSE(crosses(4, 2));
  EXPECT_TRUE(crosses(16, 1));
  EXPECT_TRUE(crosses(4, 4));
}

// Tokens cross with every one of 64 micro-batches, the gradients of experts that lie on both nodes
// once per step: over slow NICs tokens stay inside. The other plan is of the other kind, fits, and
// is no faster.
TEST(ExpertAdvice, slow_nics_keep_tokens_inside_a_node) {
  const Space space = space_of(sixteen_experts());
  Cluster cluster = cluster_of(space);
  cluster.nics.bandwidth_each.value /= 100;
  const SearchResult result = searched(space, cluster);
  ASSERT_TRUE(result.experts.has_value());
  const ExpertAdvice& advice = *result.experts;
  EXPECT_FALSE(advice.crosses);
  ASSERT_TRUE(advice.other.has_value());
  EXPECT_TRUE(experts_cross_nodes(advice.other->plan, 8));
  EXPECT_GE(advice.other->step_s, result.fastest_s);
  const std::string text = expert_advice_text(advice, result.best.front());
  EXPECT_NE(text.find("crossing nodes does not pay"), std::string::npos) << text;
}

// 16 experts of 12.6 M parameters in each of 4 layers at 16 bytes: 12.9 GB over 8 ranks 1.6 GB,
// over 16 0.8. Where only that fits, memory of experts makes tokens cross.
TEST(ExpertAdvice, what_fits_across_nodes_alone_is_limited_by_memory) {
  const Space space = space_of(sixteen_experts());
  Cluster cluster = cluster_of(space);
  std::int64_t inside = 0, across = 0;
  for (const Plan& plan : all_plans(space)) {
    Prediction made = predict(with_plan(space, plan), cluster, {.timeline = false}).value();
    std::int64_t& least = experts_cross_nodes(plan, 8) ? across : inside;
    if (least == 0 || made.memory.peak_device < least) least = made.memory.peak_device;
  }
  ASSERT_LT(across, inside);
  // Between the two, without the headroom that a search keeps free.
  cluster.gpu.usable_memory_gib = static_cast<double>(across + inside) / 2 / 1073741824.0;
  const SearchResult result = searched(space, cluster);
  ASSERT_TRUE(result.experts.has_value());
  EXPECT_TRUE(result.experts->crosses);
  EXPECT_FALSE(result.experts->other.has_value());
  EXPECT_EQ(result.experts->limit, ExpertLimit::Memory);
}

// The waits are those of the report; where neither is 2 % of the step, nothing limits.
TEST(ExpertAdvice, what_limits_is_the_longer_wait) {
  FoundPlan best;
  best.step_s = 1;
  CommunicationRow row;
  row.traffic.group = GroupKind::Expert;
  row.traffic.link = LinkKind::Nic;
  row.exposed_s = 0.1;
  best.communication = {row};
  double& imbalance = best.causes_s[static_cast<std::size_t>(IdleCause::Imbalance)];
  const Cluster cluster;
  EXPECT_EQ(expert_advice(best, cluster).limit, ExpertLimit::Nic);
  imbalance = 0.2;
  EXPECT_EQ(expert_advice(best, cluster).limit, ExpertLimit::Imbalance);
  imbalance = 0.01;
  best.communication.front().exposed_s = 0.015;
  EXPECT_EQ(expert_advice(best, cluster).limit, ExpertLimit::None);
  best.communication.front().exposed_s = 0.03;
  best.communication.front().traffic.link = LinkKind::Port;
  EXPECT_EQ(expert_advice(best, cluster).limit, ExpertLimit::ScaleUp);
}

TEST(ExpertAdvice, dense_models_have_none) {
  const Space space =
      space_of(scenario_of(model_text({}), "dgx-a100-80gb", 8, R"({"global_batch": 8})"));
  EXPECT_FALSE(searched(space, cluster_of(space)).experts.has_value());
}

// What is longer by less than the text's last digit is no reason, and of experts that every rank
// has no tokens stay anywhere.
TEST(ExpertAdvice, equal_plans_are_said_to_be_equal) {
  FoundPlan best, other;
  best.plan.expert_parallel = 16;
  for (FoundPlan* plan : {&best, &other}) {
    plan->plan.global_batch = 1;
    plan->plan.sequence_length = 1;
  }
  best.step_s = 1;
  other.step_s = 1.0001;
  ExpertAdvice advice{.crosses = true};
  advice.other = other;
  const std::string equal = expert_advice_text(advice, best);
  EXPECT_NE(equal.find("where they do not travel takes as long"), std::string::npos) << equal;
  EXPECT_NE(equal.find("crossing nodes makes no difference"), std::string::npos) << equal;
  advice.other->step_s = 1.002;
  const std::string longer = expert_advice_text(advice, best);
  EXPECT_NE(longer.find("takes 0.2 % longer"), std::string::npos) << longer;
  EXPECT_NE(longer.find("crossing nodes pays"), std::string::npos) << longer;
}

}  // namespace
}  // namespace rehearse::sim
