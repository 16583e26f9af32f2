// The bodies of docs/ir.md's example, to the byte: h 64, 4 heads, f 256, s 32, V 256, t 2 with
// sequence parallelism, selective recomputation.
#include <gtest/gtest.h>

#include "schedules/body_rehearse.h"
#include "tests/schedules/example_case.h"

namespace rehearse {
namespace {

Body body(SegmentKind segment, Direction direction, ComputeType type,
          RecomputeMode recompute = RecomputeMode::Selective) {
  static const Transformer model = example_model();
  static Plan plan;
  plan = example_plan(1, type);
  plan.recompute = recompute;
  return make_rehearse_body(
      {.segment = segment, .direction = direction, .model = &model, .plan = &plan});
}

struct Expected {
  SegmentKind segment;
  Direction direction;
  std::int64_t slab_i[2], slab_w[2], workspace[2];  // bf16, fp32
  std::size_t nodes;
};

TEST(RehearseBody, HasTheSlabsAndWorkspacesOfTheExample) {
  const Expected rows[] = {
      {SegmentKind::Layer, Direction::Forward, {16896, 33280}, {12288, 24576}, {6144, 12288}, 14},
      {SegmentKind::Layer, Direction::Backward, {16896, 33280}, {12288, 24576}, {16640, 33024}, 19},
      {SegmentKind::Head, Direction::Forward, {2304, 4352}, {0, 0}, {20992, 33280}, 15},
      {SegmentKind::Head, Direction::Backward, {2304, 4352}, {0, 0}, {0, 0}, 1},
      {SegmentKind::Embedding, Direction::Forward, {0, 0}, {0, 0}, {4096, 8192}, 3},
      {SegmentKind::Embedding, Direction::Backward, {0, 0}, {0, 0}, {4352, 8448}, 4},
  };
  for (const Expected& row : rows) {
    for (int type = 0; type < 2; ++type) {
      const Body b =
          body(row.segment, row.direction, type == 0 ? ComputeType::Bf16 : ComputeType::Fp32);
      EXPECT_EQ(b.saved_for_input, row.slab_i[type]);
      EXPECT_EQ(b.saved_for_weight, row.slab_w[type]);
      EXPECT_EQ(b.workspace, row.workspace[type]);
      EXPECT_EQ(b.nodes.size(), row.nodes);
    }
  }
}

TEST(RehearseBody, CountsTheFlopsOfTheExample) {
  EXPECT_EQ(body(SegmentKind::Layer, Direction::Forward, ComputeType::Bf16).flops(),
            1572864 + 65536);
  EXPECT_EQ(body(SegmentKind::Layer, Direction::Backward, ComputeType::Bf16).flops(),
            3145728 + 163840 + 65536);
  EXPECT_EQ(body(SegmentKind::Head, Direction::Forward, ComputeType::Bf16).flops(), 1572864);
}

// I leaves du, dx1, dqkv and the recomputed o: 8,192 + 2,048 + 6,144 + 2,048.
TEST(RehearseBody, LeavesForTheWeightGradientWhatOnlyTheInputGradientComputed) {
  const Body i = body(SegmentKind::Layer, Direction::InputGradient, ComputeType::Bf16);
  const Body w = body(SegmentKind::Layer, Direction::WeightGradient, ComputeType::Bf16);
  const Body b = body(SegmentKind::Layer, Direction::Backward, ComputeType::Bf16);
  EXPECT_EQ(i.left_for_weight, 18432);
  EXPECT_EQ(w.left_for_weight, 18432);
  EXPECT_EQ(i.flops() + w.flops(), b.flops());
  EXPECT_FALSE(w.reads_parameters);
  EXPECT_TRUE(i.reads_parameters);
}

TEST(RehearseBody, KeepsTheAttentionOutputWithoutRecomputation) {
  const Body f =
      body(SegmentKind::Layer, Direction::Forward, ComputeType::Bf16, RecomputeMode::None);
  EXPECT_EQ(f.saved_for_input + f.saved_for_weight, 16896 + 12288 + 2048 + 256);  // + o + lse
  const Body full =
      body(SegmentKind::Layer, Direction::Forward, ComputeType::Bf16, RecomputeMode::Full);
  EXPECT_EQ(full.saved_for_input + full.saved_for_weight, 0);
}

}  // namespace
}  // namespace rehearse
