// SPDX-License-Identifier: Apache-2.0
// A row for every rank: in every layout that the executor runs the unfolded schedule is sound,
// every rank does what its class does, and meets whom the executor lets it meet.
#include "schedules/ranks/unfold.h"

#include <map>
#include <set>

#include "exec/step/exchanges/group_instances.h"
#include "schedules/proof/validate.h"
#include "schedules/scenario/mesh.h"
#include "tests/exec/step/layouts.h"

namespace rehearse::exec {
namespace {

class Unfold : public testing::TestWithParam<Cell> {
 protected:
  void SetUp() override {
    Result<Scenario> scenario = layout_scenario(GetParam().family, GetParam().plan);
    ASSERT_TRUE(scenario) << scenario.error().message;
    plan_ = scenario.value().plan;
    Result<Schedule> schedule = lower_for_run(scenario.value().model, plan_);
    ASSERT_TRUE(schedule) << schedule.error().message;
    folded_ = std::move(schedule).value();
    all_ = unfold(folded_, plan_);
    class_of_ = rows_of_ranks(plan_, folded_);
  }
  Plan plan_;
  Schedule folded_, all_;
  std::vector<RankClass> class_of_;
};

TEST_P(Unfold, IsSound) {
  const Validation found = validate(all_);
  for (const Violation& violation : found.violations)
    ADD_FAILURE() << violation.rule << ": " << violation.message;
  EXPECT_EQ(all_.num_rows(), plan_.gpus());
  EXPECT_EQ(all_.num_ops(), ops_of_ranks(folded_, class_of_));
}

// Folded again it is what it was: every rank's program, waits and values are its class's.
TEST_P(Unfold, EveryRankDoesWhatItsClassDoes) {
  for (std::int32_t r = 0; r < all_.num_rows(); ++r) {
    const RankClass row = class_of_[static_cast<std::size_t>(r)];
    const std::size_t first = all_.first_op({r}), from = folded_.first_op(row);
    ASSERT_EQ(all_.program({r}).size(), folded_.program(row).size());
    EXPECT_EQ(all_.position_of({r}), folded_.position_of(row));
    EXPECT_EQ(all_.arena_bytes[static_cast<std::size_t>(r)], folded_.arena_bytes[row.index()]);
    for (std::size_t i = 0; i < all_.program({r}).size(); ++i) {
      const OpId mine{static_cast<std::int32_t>(first + i)},
          its{static_cast<std::int32_t>(from + i)};
      Op op = all_.ops[mine.index()];
      EXPECT_EQ(static_cast<bool>(op.match), static_cast<bool>(folded_.ops[its.index()].match));
      op.match = folded_.ops[its.index()].match;
      ASSERT_EQ(op, folded_.ops[its.index()]) << "rank " << r << ", op " << i;
      const auto waits = all_.waits_of(mine), before = folded_.waits_of(its);
      ASSERT_EQ(waits.size(), before.size());
      for (std::size_t w = 0; w < waits.size(); ++w) {
        EXPECT_EQ(waits[w].index() - first, before[w].index() - from);
      }
      const auto operands = all_.operands_of(mine), as = folded_.operands_of(its);
      ASSERT_EQ(operands.size(), as.size());
      for (std::size_t k = 0; k < operands.size(); ++k) {
        EXPECT_EQ(operands[k].version, as[k].version);
        const Value &value = all_.values[operands[k].value.index()],
                    &like = folded_.values[as[k].value.index()];
        EXPECT_EQ(value.row, RankClass{r});
        EXPECT_EQ(value.kind, like.kind);
        EXPECT_EQ(value.offset, like.offset);
        if (like.define) {
          EXPECT_EQ(value.define.index() - first, like.define.index() - from);
        }
      }
    }
  }
}

// Who meets: of a transfer the two ranks that differ in their position alone, of a collective the
// members of one instance of its group, all of them, each once; and meetings that were one match in
// the folded schedule are as many as there are columns or instances.
TEST_P(Unfold, RanksMeetAsTheExecutorLetsThem) {
  const Mesh mesh(plan_);
  const GroupInstances groups(folded_, mesh);
  std::map<std::int32_t, std::vector<std::int32_t>> ranks_of;  // by match
  std::map<std::int32_t, const Op*> op_of;
  for (std::int32_t r = 0; r < all_.num_rows(); ++r) {
    for (const Op& op : all_.program({r})) {
      if (!op.match) continue;
      ranks_of[op.match.value].push_back(r);
      const Op*& known = op_of[op.match.value];
      if (known == nullptr) known = &op;
      EXPECT_EQ(known->group, op.group);
    }
  }
  ASSERT_EQ(ranks_of.empty(), plan_.gpus() == 1);
  EXPECT_TRUE(ranks_of.empty() ||
              ranks_of.rbegin()->first + 1 == static_cast<std::int32_t>(ranks_of.size()))
      << "numbers of matches have holes";
  for (const auto& [match, ranks] : ranks_of) {
    const Op& op = *op_of[match];
    if (traits(op.kind).op_class == OpClass::Collective) {
      const auto& place = groups.of[op.group.index()][static_cast<std::size_t>(ranks[0])];
      std::vector<std::int32_t> members = groups.ranks[static_cast<std::size_t>(place.instance)];
      std::ranges::sort(members);
      EXPECT_EQ(ranks, members) << folded_.group_of(op).name();
      continue;
    }
    ASSERT_EQ(ranks.size(), 2U);
    Coordinates one = mesh.coordinates({ranks[0]}), other = mesh.coordinates({ranks[1]});
    EXPECT_NE(one.pipeline, other.pipeline);
    one.pipeline = other.pipeline = 0;
    EXPECT_EQ(one, other);
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, Unfold, testing::ValuesIn(kLayouts),
                         [](const auto& cell) { return std::string(cell.param.name); });

// The validator sees one member of a tensor-parallel collective that is missing.
TEST(UnfoldedTensorParallel, AMissingMemberIsFound) {
  const Result<Scenario> scenario =
      layout_scenario(Gpt2, {"tensor_parallel=2", "sequence_parallel=true"});
  ASSERT_TRUE(scenario);
  Plan plan = scenario.value().plan;
  const Result<Schedule> folded = lower_for_run(scenario.value().model, plan);
  ASSERT_TRUE(folded);
  Schedule all = unfold(folded.value(), plan);
  ASSERT_TRUE(validate(all).sound());
  const auto lonely =
      std::ranges::find_if(all.ops, [&](const Op& op) { return all.is_on(op, GroupKind::Tensor); });
  ASSERT_NE(lonely, all.ops.end());
  const auto past = std::ranges::max_element(all.ops, {}, &Op::match)->match.value + 1;
  lonely->match = {past};
  const Validation found = validate(all);
  ASSERT_FALSE(found.sound());
  EXPECT_EQ(found.violations[0].rule, "V5");
  EXPECT_NE(found.violations[0].message.find("on group tp is listed by 1 of its 2 ranks"),
            std::string::npos)
      << found.violations[0].message;
}

}  // namespace
}  // namespace rehearse::exec
