// SPDX-License-Identifier: Apache-2.0
// Each pass of the lowering keeps what its file promises.
#include <gtest/gtest.h>

#include <map>

#include "tests/schedules/passes/pass_case.h"

namespace rehearse {
namespace {

// The rows of a draft after all passes, woven.
struct Woven : PassCase {
  explicit Woven(const Plan& of) : PassCase(of) {
    for (std::int32_t r = 0; r < 2; ++r) {
      RowDraft made = row(r, kAllPasses);
      weave(made);
    }
  }
  // Ops of the programs, row after row.
  const DraftOp& op(std::size_t i) const { return draft.ops[draft.program[i].index()]; }
  std::span<const Operand> operands(std::size_t i) { return draft.operands_of(op(i)); }
  const Value& value(const Operand& operand) const {
    return draft.schedule.values[operand.value.index()];
  }
};

TEST(Passes, BehindEachTheValidatorMissesOnlyWhatLaterOnesBring) {
  using Rules = std::set<std::string_view>;
  for (std::int32_t zero = 0; zero <= 3; ++zero) {
    const auto behind = [&](Pass last) {
      return broken(PassCase(example_plan(zero)).program(passes_until(last)));
    };
    const Rules gathers = zero == 3 ? Rules{"V9"} : Rules{};
    Rules missing{"V4", "V10"};  // transfers; gradients that nobody reduces or uses
    missing.merge(Rules(gathers));
    EXPECT_EQ(behind(compute_parts), missing);
    missing.erase("V4");
    EXPECT_EQ(behind(place_transfers), missing);
    missing.erase("V9");
    EXPECT_EQ(behind(shard_parameters), missing);
    EXPECT_EQ(behind(sync_gradients), missing);
    EXPECT_EQ(behind(end_step), Rules{});
    EXPECT_EQ(broken(PassCase(example_plan(zero)).program(passes_without({shard_parameters}))),
              gathers);
  }
}

// Tensors of a bucket lie one behind another, those that are partial over tp in its leading range.
TEST(MakeBuckets, TensorsFillTheirBucketsWithoutAGap) {
  PassCase of(example_plan(1));
  const Schedule& s = of.draft.schedule;
  std::vector<std::map<std::int64_t, std::int64_t>> ends(s.buckets.size());  // by offset
  for (const BucketTensor& at : s.tensors) {
    const Bucket& bucket = s.buckets[at.bucket.index()];
    const SegmentInfo& segment = s.segments[at.stage.index()][static_cast<std::size_t>(at.segment)];
    const SegmentKind kind = bucket.tied ? SegmentKind::Embedding : segment.kind;
    const ParameterTensor what = segment_parameters(
        {of.model, of.plan}, kind, segment.layer)[static_cast<std::size_t>(at.tensor)];
    EXPECT_TRUE(ends[at.bucket.index()].emplace(at.offset, at.offset + what.elements).second);
    EXPECT_EQ(at.offset < bucket.partial, what.partial);
  }
  for (std::size_t b = 0; b < s.buckets.size(); ++b) {
    EXPECT_EQ(static_cast<std::int32_t>(ends[b].size()), s.buckets[b].tensors);
    std::int64_t filled = 0;
    for (const auto& [begin, end] : ends[b]) {
      EXPECT_EQ(begin, filled);
      filled = end;
    }
    EXPECT_EQ(filled, s.buckets[b].elements);
  }
}

TEST(SplitParts, PartsCoverAStageOnceAndBackwardsRunThemInReverse) {
  for (std::int32_t zero = 0; zero <= 3; ++zero) {
    PassCase of(example_plan(zero));
    for (std::int32_t r = 0; r < 2; ++r) {
      const RowDraft row = of.row(r, {split_parts});
      std::map<std::size_t, std::vector<std::size_t>> forward, backward;  // first segments, by slot
      for (const Part& part : row.parts) {
        const bool f = part.op.kind == OpKind::Forward;
        auto& begins = (f ? forward : backward)[row.slot(part.op)];
        begins.push_back(row.begin_of(part));
        EXPECT_LT(row.begin_of(part), row.end_of(part));
      }
      for (auto& [slot, begins] : forward) {
        EXPECT_EQ(begins.front(), 0U);
        EXPECT_TRUE(std::is_sorted(begins.begin(), begins.end()));
        std::reverse(begins.begin(), begins.end());
      }
      EXPECT_EQ(forward, backward);
    }
  }
}

// A gradient is touched once by every part that adds to it, and by none behind the part that makes
// it ready: over the row, as many touches as contributions.
TEST(ComputeParts, AGradientIsReadyBehindItsLastContribution) {
  for (std::int32_t zero = 0; zero <= 3; ++zero) {
    PassCase of(example_plan(zero));
    RowDraft row = of.row(0, passes_until(compute_parts));
    std::size_t contributions = 0, touches = 0;
    for (const Part& part : row.parts) contributions += row.work(part).adds.size();
    std::map<ValueId, std::size_t> last;  // part that touches a gradient last
    for (std::size_t part = 0; part < row.parts.size(); ++part) {
      for (const Operand& operand : row.operands_of(row.compute_op(part))) {
        if (row.of(operand.value).kind != ValueKind::Gradient) continue;
        last[operand.value] = part;
        ++touches;
      }
    }
    EXPECT_EQ(touches, contributions);
    EXPECT_EQ(last.size(), row.ready.size());
    for (const ReadyGradient& ready : row.ready) EXPECT_EQ(last.at(ready.gradient), ready.part);
  }
}

TEST(PlaceTransfers, WhatNoOpOfTheRowMakesIsReceivedOnce) {
  PassCase of(example_plan(1));
  for (std::int32_t r = 0; r < 2; ++r) {
    RowDraft row = of.row(r, passes_until(place_transfers));
    std::map<ValueId, int> computed, received, read;
    for (auto i = static_cast<std::int32_t>(row.first_op); i <= row.last_op().value; ++i) {
      const OpKind kind = row.ops[static_cast<std::size_t>(i)].op.kind;
      for (const Operand& operand : row.operands_of({i})) {
        const ValueKind what = row.of(operand.value).kind;
        if (what != ValueKind::Activation && what != ValueKind::ActivationGradient) continue;
        auto& by = operand.access == Access::Read ? read
                   : kind == OpKind::Recv         ? received
                                                  : computed;
        ++by[operand.value];
      }
    }
    EXPECT_EQ(received.size(), 6U);  // 2 micro-batches: stages 0|1|2|3 alternate, 3 hand-overs here
    for (const auto& [value, times] : read) EXPECT_EQ(computed[value] + received[value], 1);
  }
}

TEST(ShardParameters, APartReadsWhatTheLastGatherOfTheBucketBroughtIt) {
  Woven of(example_plan(3));
  std::map<BucketId, ValueId> gathered;
  std::size_t reads = 0;
  for (std::size_t i = 0; i < of.draft.program.size(); ++i) {
    const OpKind kind = of.op(i).op.kind;
    for (const Operand& operand : of.operands(i)) {
      const Value& value = of.value(operand);
      if (kind == OpKind::Unshard && operand.access == Access::Write) {
        gathered[value.bucket] = operand.value;
      }
      if (!is_compute(kind)) continue;
      EXPECT_NE(value.kind, ValueKind::ParameterShard);
      if (value.kind != ValueKind::FullParameter) continue;
      EXPECT_EQ(gathered[value.bucket], operand.value);
      ++reads;
    }
  }
  EXPECT_GT(reads, 0U);
}

// 2 replicas: ZeRO-0 and 1 keep whole gradients of 4 bytes an element, ZeRO-2 and 3 halves.
TEST(SyncGradients, EveryBucketHasOneGradientOrThisRanksShardOfIt) {
  for (std::int32_t zero = 0; zero <= 3; ++zero) {
    PassCase of(example_plan(zero));
    RowDraft row = of.row(0, passes_until(sync_gradients));
    for (std::size_t b = 0; b < row.s.buckets.size(); ++b) {
      const Bucket& bucket = row.s.buckets[b];
      ASSERT_EQ(static_cast<bool>(row.gradient[b]), bucket.position == row.position);
      if (!row.gradient[b]) continue;
      EXPECT_EQ(row.of(row.gradient[b]).shard, zero >= 2);
      EXPECT_EQ(row.of(row.gradient[b]).bytes.value, bucket.padded * (zero >= 2 ? 2 : 4));
    }
  }
}

TEST(Offload, WhatLeftTheDeviceIsNotTouchedThereAgain) {
  Plan plan = example_plan(1);
  plan.offload.activations = true;
  plan.prefetch = 0;
  Woven of(plan);
  std::set<ValueId> left;
  std::size_t fetched = 0;
  for (std::size_t i = 0; i < of.draft.program.size(); ++i) {
    const Op& op = of.op(i).op;
    for (const Operand& operand : of.operands(i)) {
      EXPECT_FALSE(left.contains(operand.value));
    }
    if (op.kind == OpKind::Fetch && op.stage) ++fetched;
    if (op.kind != OpKind::Offload || !op.stage) continue;
    const auto pairs = of.operands(i);
    for (std::size_t k = 0; k < pairs.size(); k += 2) left.insert(pairs[k].value);
  }
  EXPECT_GT(fetched, 0U);
  EXPECT_GE(left.size(), fetched);
}

TEST(EndStep, EveryBucketIsUpdatedOnceBehindTheNorm) {
  Woven of(example_plan(1));
  std::map<BucketId, int> updates;
  bool normed = false;
  for (std::size_t i = 0; i < of.draft.program.size(); ++i) {
    const Op& op = of.op(i).op;
    if (static_cast<std::int32_t>(i) == of.draft.row_begin[1]) normed = false;
    normed = normed || op.kind == OpKind::GradNorm;
    if (op.kind != OpKind::OptimizerStep) continue;
    EXPECT_TRUE(normed);
    ++updates[op.bucket];
  }
  EXPECT_EQ(updates.size(), of.draft.schedule.buckets.size());
  for (const auto& [bucket, times] : updates) EXPECT_EQ(times, 1);
}

// Values are numbered as they are touched first: behind an op, those seen are the first ones.
TEST(Weave, ValuesAreNumberedAsTheProgramTouchesThem) {
  Woven of(example_plan(2));
  std::set<ValueId> seen;
  for (std::size_t v = 0; v < of.draft.schedule.values.size(); ++v) {
    if (of.draft.schedule.values[v].persistent) seen.insert({static_cast<std::int32_t>(v)});
  }
  std::int32_t next = 0;
  for (std::size_t i = 0; i < of.draft.program.size(); ++i) {
    for (const Operand& operand : of.operands(i)) seen.insert(operand.value);
    while (seen.contains({next})) ++next;
    for (const Operand& operand : of.operands(i)) EXPECT_LT(operand.value.value, next);
  }
  EXPECT_EQ(next, static_cast<std::int32_t>(of.draft.schedule.values.size()));
}

}  // namespace
}  // namespace rehearse
