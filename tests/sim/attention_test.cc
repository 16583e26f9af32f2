// Fused attention: rate by kernel generation and length, few tiles, what runs of the square.
#include "sim/attention_cost.h"

#include <gtest/gtest.h>

#include "tests/sim/compute_fixture.h"

namespace rehearse::sim {
namespace {

using testing::a100_node;
using testing::gpt;
using testing::kKernels;

ComputeCosts a100(AttentionKernel kernel, std::int64_t sequence) {
  return {.scalars = read_kernel_scalars(a100_node(), kKernels).value(),
          .peak_flops = 312e12,
          .memory_bytes_per_s = 2039e9,
          .sms = 108,
          .attention = kernel,
          .sequence = sequence};
}

Node core(double flops, std::int64_t tiles) {
  return {.kind = NodeKind::Attention, .flops = flops, .parallel = tiles};
}

TEST(Attention, HalfOfTheRateIsReachedAtTheLengthConstant) {
  const double at_768 = attention_cost(a100(AttentionKernel::Flash1, 768), core(1e12, 10800)).ns;
  EXPECT_NEAR(at_768, 1e12 / (312e12 * 0.36 / 2) * 1e9 + 3e3, 1);
}

TEST(Attention, TheSecondGenerationIsFasterByItsFactor) {
  const double first = attention_cost(a100(AttentionKernel::Flash1, 4096), core(1e12, 10800)).ns;
  const double second = attention_cost(a100(AttentionKernel::Flash2, 4096), core(1e12, 10800)).ns;
  EXPECT_NEAR((first - 3e3) / (second - 3e3), 0.67 / 0.36, 1e-9);
}

// 109 tiles on 108 SMs take two waves; beyond four waves nothing is lost.
TEST(Attention, FewTilesLeaveSmsIdle) {
  const ComputeCosts costs = a100(AttentionKernel::Flash2, 4096);
  const double full = attention_cost(costs, core(1e12, 108)).ns - 3e3;
  EXPECT_NEAR((attention_cost(costs, core(1e12, 109)).ns - 3e3) / full, 2 * 108.0 / 109, 1e-9);
  EXPECT_NEAR(attention_cost(costs, core(1e12, 5 * 108 + 1)).ns - 3e3, full, 1e-3);
}

const Node* find(const std::vector<Node>& nodes, NodeKind kind) {
  for (const Node& node : nodes) {
    if (node.kind == kind) return &node;
  }
  return nullptr;
}

Plan flash_plan() {
  Plan plan;
  plan.micro_batch = 2;
  plan.global_batch = 2;
  plan.sequence_length = 4096;
  plan.padded_vocabulary = 51200;
  return plan;
}

// Causal: half of 4 b s^2 a d; the backward has five products instead of two.
TEST(Attention, OnlyTheCausalHalfRuns) {
  const Transformer model = gpt(1, 4096, 32);
  const Plan plan = flash_plan();
  const Body forward = make_body({.segment = SegmentKind::Layer, .model = &model, .plan = &plan});
  const double expected = 0.5 * 4 * 2 * 4096.0 * 4096 * 4096;
  EXPECT_DOUBLE_EQ(find(forward.nodes, NodeKind::Attention)->flops, expected);
  const Body backward = make_body({.segment = SegmentKind::Layer,
                                   .direction = Direction::Backward,
                                   .model = &model,
                                   .plan = &plan});
  EXPECT_DOUBLE_EQ(find(backward.nodes, NodeKind::AttentionBackward)->flops, 2.5 * expected);
}

// With a window w below s a query sees at most w keys: w s - w^2 / 2 pairs instead of s^2 / 2.
TEST(Attention, ASlidingWindowRunsItsBandAlone) {
  Transformer model = gpt(1, 4096, 32);
  model.sliding_window = 1024;
  const Plan plan = flash_plan();
  const Body body = make_body({.segment = SegmentKind::Layer, .model = &model, .plan = &plan});
  const double pairs = 1024.0 * 4096 - 1024.0 * 1024 / 2;
  EXPECT_DOUBLE_EQ(find(body.nodes, NodeKind::Attention)->flops, 4 * 2 * pairs * 4096);
}

// Contiguous blocks (FSDP): of c ranks the last does (2c-1)/c of the mean; Megatron balances.
TEST(Attention, TheLastRankOfContiguousBlocksDoesTheMost) {
  const Transformer model = gpt(1, 4096, 32);
  Plan plan = flash_plan();
  plan.context_parallel = 4;
  const double mean = 0.5 * 4 * 2 * 4096.0 * 4096 * 4096 / 4;
  const Body balanced = make_body({.segment = SegmentKind::Layer, .model = &model, .plan = &plan});
  EXPECT_DOUBLE_EQ(find(balanced.nodes, NodeKind::Attention)->flops, mean);
  plan.runtime = Runtime::Fsdp;
  const Body blocks = make_body({.segment = SegmentKind::Layer, .model = &model, .plan = &plan});
  EXPECT_DOUBLE_EQ(find(blocks.nodes, NodeKind::Attention)->flops, mean * 7 / 4);
}

TEST(Attention, UnfusedAttentionComputesTheWholeSquare) {
  const Transformer model = gpt(1, 4096, 32);
  Plan plan = flash_plan();
  plan.flash_attention = false;
  plan.attention_kernel = AttentionKernel::Unfused;
  const Body body = make_body({.segment = SegmentKind::Layer, .model = &model, .plan = &plan});
  double flops = 0;
  for (const Node& node : body.nodes) {
    if (node.kind == NodeKind::Gemm && node.role == GemmRole::None) flops += node.flops;
  }
  EXPECT_DOUBLE_EQ(flops, 4 * 2 * 4096.0 * 4096 * 4096);
}

}  // namespace
}  // namespace rehearse::sim
