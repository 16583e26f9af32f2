// SPDX-License-Identifier: Apache-2.0
// An optimizer is a row: what a made-up one holds in memory and in checkpoints, and where its
// arrays lie, follows from its row alone. docs/add_an_optimizer.md is the page; that all commands
// go by the rows, optimizer_command and command_grid_test say.
#include <gtest/gtest.h>

#include "exec/checkpoint/moment_list.h"
#include "exec/weights/stored_bucket.h"
#include "schedules/scenario/keys/plan_rows.h"
#include "schedules/scenario/memory/optimizer_state.h"

namespace rehearse::exec {
namespace {

// One moment in fp32, by AdamW's loop; another in 8 bit, for predictions alone.
constexpr OptimizerRow kOneMoment{.name = "one_moment",
                                  .moments = {"mean."},
                                  .counted = 1,
                                  .spared_bytes = 8,
                                  .rule = UpdateRule::AdamW};
constexpr OptimizerRow kSmall{.name = "small", .form = MomentForm::EightBit, .spared_bytes = 12};
constexpr std::int64_t kElements = 1000;
using Bytes = std::vector<std::int64_t>;

TEST(MadeUpOptimizer, HoldsInMemoryWhatItsRowSays) {
  EXPECT_EQ(counted_bytes(kOneMoment), 4);
  // bf16 with a master copy: 8 bytes of state, of which the moment has 4; in fp32 it has all 4.
  const Precision bf16{.optimizer = 4 + counted_bytes(kOneMoment)};
  EXPECT_EQ(master_bytes(bf16), 4);
  EXPECT_EQ(moment_bytes(kOneMoment, bf16, kElements, 0), (Bytes{4 * kElements}));
  const Precision fp32{.parameters = 4, .optimizer = counted_bytes(kOneMoment)};
  EXPECT_EQ(moment_bytes(kOneMoment, fp32, kElements, 0), (Bytes{4 * kElements}));
  // A scale of 4 bytes for each block of 256, of which 1000 have 4.
  EXPECT_EQ(moment_bytes(kSmall, bf16, kElements, 0), (Bytes{kElements + 16, kElements + 16}));
}

TEST(MadeUpOptimizer, HasItsMomentsInCheckpoints) {
  const std::vector<TensorInfo> weights{{.name = "wte.weight", .shape = {8, 4}},
                                        {.name = "ln_f.weight", .shape = {4}}};
  const std::vector<TensorInfo> moments = moment_list(weights, kOneMoment);
  ASSERT_EQ(moments.size(), 2u);
  EXPECT_EQ(moments[0].name, "mean.wte.weight");
  EXPECT_EQ(moments[0].shape, weights[0].shape);
  EXPECT_EQ(moments[1].name, "mean.ln_f.weight");
  EXPECT_TRUE(moment_list(weights, kSmall).empty());  // `run` does not perform it
}

TEST(MadeUpOptimizer, HasItsArraysOneBehindTheOther) {
  EXPECT_TRUE(kOneMoment.run());
  EXPECT_FALSE(kSmall.run());
  std::vector<float> state(2 * kElements);
  const StateArrays both = state_arrays(state.data(), 8 * kElements, kElements, kOneMoment);
  EXPECT_EQ(both.master, state.data());
  EXPECT_EQ(both.moments[0], state.data() + kElements);
  EXPECT_EQ(both.moments[1], nullptr);
  const StateArrays alone = state_arrays(state.data(), 4 * kElements, kElements, kOneMoment);
  EXPECT_EQ(alone.master, nullptr);
  EXPECT_EQ(alone.moments[0], state.data());
}

// A row with a rule is what `run` performs, by the plan's key too; a run has checkpoints.
TEST(MadeUpOptimizer, IsPerformedWhereItsRowHasARule) {
  const std::string_view performed = plan_row(&Plan::optimizer).run.runs;
  for (const OptimizerRow& row : kOptimizers) {
    EXPECT_EQ(performed.find(json_quoted(row.name)) != std::string_view::npos, row.run())
        << row.name;
    EXPECT_EQ(!row.moments[0].empty(), row.run()) << row.name;
  }
}

}  // namespace
}  // namespace rehearse::exec
