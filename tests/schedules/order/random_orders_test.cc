// SPDX-License-Identifier: Apache-2.0
// What holds for every legal order, on thousands of random ones.
#include <gtest/gtest.h>

#include "schedules/proof/deadlock.h"
#include "schedules/proof/validate.h"
#include "schedules/transfers/add_transfers.h"
#include "schedules/transfers/link_transfers.h"
#include "tests/schedules/order/random_order.h"
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
std::vector<Nanoseconds> random_finish(const Schedule& l0, testing::RandomOrder& random) {
  std::vector<Nanoseconds> duration(l0.ops.size());
  for (Nanoseconds& d : duration) d = {random.between(1, 9)};
  return prove_no_deadlock(l0, StreamModel::One,
                           {.per_op = duration, .transfer = {random.between(0, 3)}})
      .finish;
}

// Lowered by any policy but the naive one, a legal order runs to its end in every stream model.
TEST(RandomOrders, LoweredOnesNeverHang) {
  testing::RandomOrder random(1);
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
      ASSERT_TRUE(testing::Rendezvous(lowered, played).run()) << program(lowered);
    }
  }
}

// The naive lowering is caught wherever it really hangs, and nowhere else.
TEST(RandomOrders, NaiveOnesAreCaughtWhereTheyHangAndNowhereElse) {
  testing::RandomOrder random(2);
  std::array<std::int32_t, kStreamModels.size()> hang{};
  for (std::int32_t k = 0; k < kOrders; ++k) {
    const Schedule l0 = random.next();
    const Schedule lowered = add_transfers(l0, random_finish(l0, random), TransferPolicy::Naive);
    for (std::size_t m = 0; m < kStreamModels.size(); ++m) {
      const bool ran = testing::Rendezvous(lowered, kStreamModels[m].model).run();
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
  testing::RandomOrder random(3);
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
