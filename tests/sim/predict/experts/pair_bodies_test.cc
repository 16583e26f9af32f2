// SPDX-License-Identifier: Apache-2.0
// Bodies cut where tokens travel, and paired.
#include "sim/predict/pricing/pair_bodies.h"

#include <gtest/gtest.h>

namespace rehearse::sim {
namespace {

Node compute(NodePhase phase = NodePhase::Main) {
  return {.kernel = Kernel::Elementwise, .phase = phase};
}
Node travel() {
  return {.kernel = Kernel::AllGather, .axis = Axis::Expert};
}

struct Priced {
  Body body;
  std::vector<NodePrice> prices;
  void add(const Node& node, std::int64_t ns) {
    body.nodes.push_back(node);
    prices.push_back({.time = {ns}});
  }
  ExpertPieces cut(std::int64_t time) const { return cut_at_experts(body, prices, {time}); }
};

// attention 40, counts 1, rows 9, [tokens 30, weights 2], experts 50, [home 28], sum 10: counts are
// short and part of what computes; neighbours travel as one.
Priced forward() {
  Priced p;
  p.add(compute(), 40);
  p.add(travel(), 1);
  p.add(compute(), 9);
  p.add(travel(), 30);
  p.add(travel(), 2);
  p.add(compute(), 50);
  p.add(travel(), 28);
  p.add(compute(), 10);
  return p;
}

TEST(PairBodies, ABodyIsCutAtItsTokens) {
  const ExpertPieces cut = forward().cut(170);
  EXPECT_DOUBLE_EQ(cut.before, 50);
  EXPECT_DOUBLE_EQ(cut.to_experts, 32);
  EXPECT_DOUBLE_EQ(cut.between, 50);
  EXPECT_DOUBLE_EQ(cut.home, 28);
  EXPECT_DOUBLE_EQ(cut.after, 10);
  EXPECT_TRUE(cut.travels());
}

// A body that takes longer than its nodes (the host issues slower) computes longer, in proportion.
TEST(PairBodies, ThePiecesAddUpToTheBody) {
  const ExpertPieces cut = forward().cut(60 + 220);
  EXPECT_DOUBLE_EQ(cut.before, 100);
  EXPECT_DOUBLE_EQ(cut.between, 100);
  EXPECT_DOUBLE_EQ(cut.to_experts + cut.home, 60);
}

TEST(PairBodies, ADenseBodyIsOnePiece) {
  Priced p;
  p.add(compute(), 40);
  p.add({.kernel = Kernel::AllReduce, .axis = Axis::Tensor}, 20);
  EXPECT_FALSE(sends_tokens(p.body));
  EXPECT_TRUE(sends_tokens(forward().body));
  const ExpertPieces cut = p.cut(60);
  EXPECT_DOUBLE_EQ(cut.before, 60);
  EXPECT_FALSE(cut.travels());
}

// Weight gradients between the travels stand alone: the backward's second travel hides there.
TEST(PairBodies, WeightGradientsStandAlone) {
  Priced p;
  p.add(travel(), 30);
  p.add(compute(), 20);
  p.add(compute(NodePhase::Weight), 25);
  p.add(travel(), 30);
  p.add(compute(NodePhase::Weight), 15);
  const ExpertPieces cut = p.cut(120);
  EXPECT_DOUBLE_EQ(cut.between, 20);
  EXPECT_DOUBLE_EQ(cut.weight_gradient, 25);
  EXPECT_DOUBLE_EQ(cut.after, 15);
}

// Nothing is lost in pairing, also where one side has more bodies (an embedding, a head).
TEST(PairBodies, PairingKeepsAllTime) {
  const ExpertPieces f = forward().cut(170);
  const ExpertPieces b{
      .before = 5, .to_experts = 28, .between = 60, .weight_gradient = 50, .home = 32, .after = 90};
  const ExpertPieces head{.before = 70};
  const std::vector<ExpertPieces> forwards{f, f, head}, backwards{head, b};
  const std::vector<PairedLayers> layers = pair_up(forwards, backwards);
  EXPECT_EQ(layers.size(), 5U);
  EXPECT_DOUBLE_EQ(unpaired_time(layers), 2 * 170 + 70 + 70 + 265);
  const PairCost cost = pair_cost(layers, {});
  EXPECT_LT(cost.time, unpaired_time(layers));
  EXPECT_GE(cost.time, unpaired_time(layers) - 3 * 60);  // no more hides than travels
}

}  // namespace
}  // namespace rehearse::sim
