// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "schedules/ir/bucket_words.h"
#include "schedules/ir/schedule.h"
#include "schedules/ir/text.h"
#include "schedules/scenario/mesh.h"

namespace rehearse {
namespace {

TEST(Op, IsWrittenInTorchsNotation) {
  Op op = compute_op(OpKind::Forward, {3}, {1});
  EXPECT_EQ(to_text(op), "3F1");
  op.segment_begin = 0;
  op.segment_end = 2;
  EXPECT_EQ(to_text(op), "3F1[0:2]");
  EXPECT_EQ(
      to_text(
          Op{.kind = OpKind::Send, .payload = Payload::Gradient, .stage = {2}, .microbatch = {0}}),
      "2SEND_B0");
}

TEST(BucketLegend, ExplainsEachKindOfNameOnce) {
  EXPECT_EQ(bucket_legend({}), "");
  EXPECT_EQ(bucket_legend({"L6", "L31", "A", "B"}),
            "buckets of parameters: A several parts of the model at once, L31 layer 31");
  EXPECT_EQ(
      bucket_legend({"E", "H", "T", "X2", "X4"}),
      "buckets of parameters: E the embedding, H the head, T the table of embedding and head, "
      "X2 experts of layer 2");
}

// rank = tp + 2 dp + 4 pp for the order tp-cp-ep-dp-pp with t = d = p = 2.
TEST(Mesh, RankIsTheMixedRadixOfItsCoordinates) {
  Plan plan;
  plan.tensor_parallel = plan.data_parallel = plan.pipeline_parallel = 2;
  plan.rank_order = {Axis::Tensor, Axis::Context, Axis::Expert, Axis::Data, Axis::Pipeline};
  const Mesh mesh(plan);
  EXPECT_EQ(mesh.ranks(), 8);
  EXPECT_EQ(mesh.rank({.tensor = 1, .data = 0, .pipeline = 1}), Rank{5});
  EXPECT_EQ(mesh.coordinates({6}), (Coordinates{.tensor = 0, .data = 1, .pipeline = 1}));
  EXPECT_EQ(mesh.group(Axis::Pipeline, {6}), (std::vector<Rank>{{2}, {6}}));
}

}  // namespace
}  // namespace rehearse
