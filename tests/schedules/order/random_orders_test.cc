// SPDX-License-Identifier: Apache-2.0
// What holds for every legal order, on thousands of random ones.
#include <gtest/gtest.h>

#include "schedules/order/place_recompute.h"
#include "schedules/order/registry.h"
#include "schedules/proof/deadlock.h"
#include "schedules/proof/validate.h"
#include "schedules/transfers/add_transfers.h"
#include "schedules/transfers/link_transfers.h"
#include "tests/schedules/order/random_order.h"
#include "tests/schedules/order/scattered_recompute.h"
#include "tests/schedules/proof/rendezvous.h"

namespace rehearse {
namespace {

constexpr std::int32_t kOrders = 10'000;

std::string program(const Schedule& schedule) {
  std::string text;
  for (RankClass row{0}; row.value < schedule.num_rows(); ++row.value) {
    text += row_to_text(schedule, row) + "\n";
  }
  return text;
}

// Random positive durations, so that finish times are not those of a known schedule.
std::vector<Nanoseconds> random_finish(const Schedule& l0, fixture::RandomOrder& random) {
  std::vector<Nanoseconds> duration(l0.ops.size());
  for (Nanoseconds& d : duration) d = {random.between(1, 9)};
  return prove_no_deadlock(l0, StreamModel::One,
                           {.per_op = duration, .transfer = {random.between(0, 3)}})
      .finish;
}

// Lowered by any policy but the naive one, a legal order runs to its end in every stream model.
TEST(RandomOrders, LoweredOnesNeverHang) {
  fixture::RandomOrder random(1);
  for (std::int32_t k = 0; k < kOrders; ++k) {
    const Schedule l0 = random.next();
    const std::vector<Nanoseconds> finish = random_finish(l0, random);
    for (const TransferPolicyInfo& policy : kTransferPolicies) {
      if (policy.policy == TransferPolicy::Naive) continue;
      const Schedule lowered = add_transfers(l0, finish, policy.policy);
      if (k % 16 == 0) {  // the pass writes what a reader of its text would find out
        const Schedule linked = link_transfers(lowered);
        ASSERT_EQ(linked.ops, lowered.ops) << program(lowered);
        ASSERT_EQ(linked.waits, lowered.waits) << program(lowered);
        ASSERT_EQ(linked.wait_begin, lowered.wait_begin);
      }
      for (const StreamModelInfo& model : kStreamModels) {
        const DeadlockProof proof = prove_no_deadlock(lowered, model.model);
        ASSERT_TRUE(proof.complete) << policy.name << " " << model.name << "\n"
                                    << program(lowered) << cycle_in_one_line(lowered, proof);
      }
      const Validation validation = validate(lowered, {.compute_order = &l0});
      ASSERT_TRUE(validation.sound()) << validation.violations.front().message << "\n"
                                      << program(lowered);
      // One of the models is played out, another one for each order.
      const StreamModel played = kStreamModels[static_cast<std::size_t>(k) % 6].model;
      ASSERT_TRUE(fixture::Rendezvous(lowered, played).run()) << program(lowered);
    }
  }
}

// Recomputation anywhere between forward and backward asks nobody: nothing hangs by it, and the
// order that is left without it is the one that was there.
TEST(RandomOrders, WithRecomputationScatteredAreSoundAndNeverHang) {
  fixture::RandomOrder random(4);
  for (std::int32_t k = 0; k < kOrders / 10; ++k) {
    const Schedule plain = random.next();
    const Schedule l0 = with_scattered_recompute(plain, static_cast<std::uint64_t>(k), 60);
    const Validation alone = validate(l0);
    ASSERT_TRUE(alone.sound()) << alone.violations.front().message << "\n" << program(l0);
    const Schedule lowered =
        add_transfers(l0, random_finish(l0, random), TransferPolicy::TimeSorted);
    const Validation whole = validate(lowered, {.compute_order = &l0});
    ASSERT_TRUE(whole.sound()) << whole.violations.front().message << "\n" << program(lowered);
    ASSERT_EQ(link_transfers(lowered).waits, lowered.waits) << program(lowered);
    Schedule without = l0;
    std::erase_if(without.ops, [](const Op& op) { return op.kind == OpKind::Recompute; });
    ASSERT_EQ(without.ops, plain.ops);
    if (l0.ops.size() == plain.ops.size()) continue;
    const Validation lacks = validate(lowered, {.compute_order = &plain});
    ASSERT_FALSE(lacks.sound());
    ASSERT_EQ(lacks.violations.front().rule, "V15");
  }
}

// In the times that it is placed for, no order takes longer by it, and memory holds one R of a rank
// at a time. 1F1B with R = F hides one on the way back through every position but the last.
TEST(RandomOrders, WithRecomputationPlacedTakeNoLonger) {
  fixture::RandomOrder random(5);
  std::int32_t placed = 0, shorter = 0;
  for (std::int32_t k = 0; k < kOrders / 10; ++k) {
    const Schedule plain = random.next();
    ComputeTimes times{.transfer = {random.between(0, 3)}};
    times.stages.clear();
    for (std::int32_t s = 0; s < plain.placement.stages(); ++s) {
      StageTimes& stage = times.stages.emplace_back();
      stage.forward = {random.between(1, 9)};
      stage.recompute = {random.between(0, 9)};
      stage.input_gradient = stage.recompute + Nanoseconds{random.between(1, 9)};
      stage.weight_gradient = {random.between(1, 9)};
      stage.backward = stage.input_gradient + stage.weight_gradient;
    }
    const Schedule made = place_recompute(plain, times);
    ASSERT_TRUE(validate(made).sound()) << program(made);
    const std::int64_t before = time_compute(plain, times).value().makespan.value;
    const std::int64_t after = time_compute(made, times).value().makespan.value;
    ASSERT_LE(after, before) << program(made);
    placed += made.ops.size() > plain.ops.size() ? 1 : 0;
    shorter += after < before ? 1 : 0;
    for (std::size_t i = 0; i + 1 < made.ops.size(); ++i) {
      if (made.ops[i].kind != OpKind::Recompute) continue;
      ASSERT_TRUE(is_backward(made.ops[i + 1].kind));
      ASSERT_EQ(made.ops[i + 1].microbatch, made.ops[i].microbatch);
    }
  }
  EXPECT_GT(placed, kOrders / 20);
  EXPECT_GT(shorter, kOrders / 40);
}

TEST(PlacedRecomputation, TakesOneOfEachPositionButTheLastFromTheWayBack) {
  const std::int32_t p = 4, m = 8;
  const Schedule order = generate("1f1b", {.positions = p, .microbatches = m}).value();
  const ComputeTimes times{.stages = {{.forward = {1},
                                       .input_gradient = {2},
                                       .weight_gradient = {1},
                                       .backward = {3},
                                       .recompute = {1}}}};  // B = R + I + W
  EXPECT_EQ(time_compute(order, times).value().makespan.value, (m + p - 1) * 4);
  const Schedule made = place_recompute(order, times);
  EXPECT_EQ(time_compute(made, times).value().makespan.value, (m + p - 1) * 4 - (p - 1));
  for (const Op& op : made.program(RankClass{p - 1})) EXPECT_NE(op.kind, OpKind::Recompute);
}

// The naive lowering is caught wherever it really hangs, and nowhere else.
TEST(RandomOrders, NaiveOnesAreCaughtWhereTheyHangAndNowhereElse) {
  fixture::RandomOrder random(2);
  std::array<std::int32_t, kStreamModels.size()> hang{};
  for (std::int32_t k = 0; k < kOrders; ++k) {
    const Schedule l0 = random.next();
    const Schedule lowered = add_transfers(l0, random_finish(l0, random), TransferPolicy::Naive);
    for (std::size_t m = 0; m < kStreamModels.size(); ++m) {
      const bool ran = fixture::Rendezvous(lowered, kStreamModels[m].model).run();
      const DeadlockProof proof = prove_no_deadlock(lowered, kStreamModels[m].model);
      ASSERT_EQ(proof.complete, ran) << kStreamModels[m].name << "\n" << program(lowered);
      ASSERT_EQ(proof.cycle.empty(), ran);
      hang[m] += ran ? 0 : 1;
    }
  }
  // Both outcomes occur in plenty on one stream: the comparison is not empty.
  EXPECT_GT(hang[0], kOrders / 2);
  EXPECT_LT(hang[0], kOrders);
}

// A cycle is a proof only if every step of it is true, and each leads to the next.
TEST(RandomOrders, EveryStepOfACycleIsTrue) {
  fixture::RandomOrder random(3);
  std::int32_t steps = 0;
  for (std::int32_t k = 0; k < 1000; ++k) {
    const Schedule l0 = random.next();
    const Schedule lowered = add_transfers(l0, random_finish(l0, random), TransferPolicy::Naive);
    const auto op = [&](OpId id) -> const Op& { return lowered.ops[id.index()]; };
    for (const StreamModelInfo& model : kStreamModels) {
      const DeadlockProof proof = prove_no_deadlock(lowered, model.model);
      for (std::size_t i = 0; i < proof.cycle.size(); ++i, ++steps) {
        const CycleStep& step = proof.cycle[i];
        ASSERT_EQ(step.other, proof.cycle[(i + 1) % proof.cycle.size()].op);
        ASSERT_LT(proof.finish[step.op.index()].value, 0);
        switch (step.reason) {
          case WaitReason::Order:
            ASSERT_EQ(lowered.row_of(step.op), lowered.row_of(step.other));
            ASSERT_LT(step.other, step.op);
            break;
          case WaitReason::Data: {
            const auto waits = lowered.waits_of(step.op);
            ASSERT_NE(std::ranges::find(waits, step.other), waits.end());
            break;
          }
          case WaitReason::Partner:
            ASSERT_EQ(op(step.op).match, op(step.other).match);
            ASSERT_NE(op(step.op).kind, op(step.other).kind);
            break;
          case WaitReason::Group:
            ASSERT_EQ(lowered.row_of(step.op), lowered.row_of(step.other));
            break;
        }
      }
    }
  }
  EXPECT_GT(steps, 1000);
}

}  // namespace
}  // namespace rehearse
