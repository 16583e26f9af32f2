// SPDX-License-Identifier: Apache-2.0
// A rule is tested by breaking a good schedule in exactly one place: it must name the place.
#include "schedules/proof/validate.h"
#include "schedules/scenario/plan_shape.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "schedules/formats/csv.h"
#include "schedules/formats/schedule_json.h"
#include "schedules/ir/text.h"
#include "schedules/order/registry.h"
#include "schedules/passes/lower.h"
#include "schedules/timing/compute_timing.h"
#include "schedules/transfers/add_transfers.h"
#include "tests/schedules/formats/fixtures.h"
#include "tests/schedules/ir/example_case.h"

namespace rehearse {
namespace {

Schedule order(std::string_view name, ScheduleShape shape) {
  return generate(name, shape).value();
}
Schedule transfers_of(const Schedule& l0, TransferPolicy policy = TransferPolicy::TimeSorted) {
  return add_transfers(l0, time_compute(l0, {}).value().end, policy);
}
Schedule csv(std::string_view text) {
  return parse_csv(text, "test.csv").value();
}

struct Lowered {
  Schedule order, full;
};
// The example of docs/ir.md (2 positions, 2 virtual stages, tp 2, dp 2, m 2).
Lowered example(std::int32_t zero_stage, std::int32_t microbatches = 2) {
  const Plan plan = example_plan(zero_stage, ComputeType::Bf16, microbatches);
  Schedule l0 = generate("interleaved_1f1b", shape_of(plan).value()).value();
  Schedule full = lower(l0, {example_model(), plan}, {.estimates = Estimates{}}).value();
  return {std::move(l0), std::move(full)};
}

// "V4: message" of every violation.
std::vector<std::string> violations(const Schedule& schedule, const ValidateOptions& options = {}) {
  std::vector<std::string> lines;
  for (const Violation& violation : validate(schedule, options).violations) {
    lines.push_back(std::string(violation.rule) + ": " + violation.message);
  }
  return lines;
}
using Lines = std::vector<std::string>;

// Some breaks are seen by several rules: this one must be among them.
void expect_among(const std::vector<std::string>& lines, const std::string& wanted) {
  EXPECT_NE(std::ranges::find(lines, wanted), lines.end()) << wanted << "\nis not among\n"
                                                           << ::testing::PrintToString(lines);
}

std::int32_t find(const Schedule& schedule, const std::string& text, std::int32_t row = 0) {
  for (std::size_t i = schedule.first_op({row}); i < schedule.first_op({row + 1}); ++i) {
    const auto id = static_cast<std::int32_t>(i);
    if (to_text(schedule, {id}) == text) return id;
  }
  ADD_FAILURE() << "no " << text;
  return 0;
}
Op& at(Schedule& schedule, const std::string& text, std::int32_t row = 0) {
  return schedule.ops[static_cast<std::size_t>(find(schedule, text, row))];
}
// The operands of an op, to change.
std::span<Operand> operands(Schedule& schedule, std::int32_t id) {
  const auto op = static_cast<std::size_t>(id);
  const auto begin = static_cast<std::size_t>(schedule.operand_begin[op]);
  return std::span{schedule.operands}.subspan(
      begin, static_cast<std::size_t>(schedule.operand_begin[op + 1]) - begin);
}
void drop_wait(Schedule& schedule, std::size_t wait) {
  schedule.waits.erase(schedule.waits.begin() + static_cast<std::ptrdiff_t>(wait));
  schedule.wait_is_reuse.erase(schedule.wait_is_reuse.begin() + static_cast<std::ptrdiff_t>(wait));
  for (std::int32_t& begin : schedule.wait_begin) {
    begin -= begin > static_cast<std::int32_t>(wait) ? 1 : 0;
  }
}

// --- good ones ---------------------------------------------------------------

TEST(Validate, EveryFixtureIsSoundInEveryModel) {
  for (const std::string& path : fixture::json_files("tests/data/schedules")) {
    const Schedule schedule = read_schedule_json(path).value().schedule;
    for (const StreamModelInfo& model : kStreamModels) {
      EXPECT_EQ(violations(schedule, {.streams = model.model}), Lines{}) << path;
    }
  }
}

TEST(Validate, EverySchedulesLoweringIsSoundUnderEveryPolicyAndModel) {
  for (const ScheduleInfo& info : schedule_table()) {
    for (const std::int32_t p : {1, 2, 4, 6}) {
      const Result<Schedule> l0 = generate(info.name, {.positions = p, .microbatches = 24});
      if (!l0) continue;  // "none" has one stage
      EXPECT_EQ(violations(l0.value()), Lines{});
      for (const TransferPolicyInfo& policy : kTransferPolicies) {
        if (policy.policy == TransferPolicy::Naive) continue;
        const Schedule full = transfers_of(l0.value(), policy.policy);
        for (const StreamModelInfo& model : kStreamModels) {
          EXPECT_EQ(violations(full, {.streams = model.model, .compute_order = &l0.value()}),
                    Lines{})
              << info.name << " " << policy.name << " " << model.name;
        }
      }
    }
  }
}

// What lower() makes of the example, in every stage of ZeRO and order of stages.
TEST(Validate, FullLoweringsAreSoundAndEveryRuleHasSomethingToLookAt) {
  for (const std::int32_t zero_stage : {0, 1, 2, 3}) {
    for (const char* name :
         {"interleaved_1f1b", "gpipe", "zb_h1", "zb_v", "chimera", "dualpipe", "dualpipev"}) {
      Plan plan = example_plan(zero_stage, ComputeType::Bf16, 8);
      plan.schedule = name;
      const ChunkRule chunks = find_schedule(name)->chunks;
      if (chunks == ChunkRule::One || chunks == ChunkRule::Bidirectional) {
        plan.virtual_stages = 1;
        plan.stage_layers = {2, 2};
      }
      if (chunks != ChunkRule::Many) plan.microbatch_group_size = 0;
      const Schedule l0 = generate(name, shape_of(plan).value()).value();
      const Schedule full = lower(l0, {example_model(), plan}).value();
      const std::vector<Bytes> enough(2, Bytes{1 << 30});
      const ValidateOptions options{.compute_order = &l0, .capacity = enough};
      EXPECT_EQ(violations(full, options), Lines{}) << name << " zero " << zero_stage;
      const Validation validation = validate(full, options);
      for (std::size_t r = 0; r < kRules.size(); ++r) {
        const bool gathers = kRules[r].name != "V9" || zero_stage == 3;
        const bool pairs = kRules[r].name != "V12" || find_schedule(name)->least_rounds == 2;
        EXPECT_EQ(validation.applied[r], gathers && pairs) << name << " " << kRules[r].name;
      }
    }
  }
}

// --- V1 ----------------------------------------------------------------------

TEST(Form, AMicrobatchOutOfRangeIsNamed) {
  EXPECT_EQ(violations(read_schedule_json("tests/data/schedules/negative/"
                                          "torch-2.8.0-1f1b-get_pipeline_order.p4.m8.json")
                           .value()
                           .schedule),
            (Lines{"V1: 3F8 on rank 3: micro-batch 8 is out of range: there are 8 (0 ... 7)",
                   "V2: 3F0 is missing: it belongs on rank 3",
                   "V3: 3B0 on rank 3 runs before its forward 3F0, which is never run"}));
}

TEST(Form, AStageOutOfRangeIsNamedInTextOpsToo) {
  expect_among(violations(csv("0F0,0B0,9REDUCE_GRAD\n")),
               "V1: 9REDUCE_GRAD on rank 0: stage 9 is out of range: there are 1 (0 ... 0)");
}

TEST(Form, AnIndexThatLeadsNowhereStopsAllOtherRules) {
  Schedule schedule = transfers_of(order("1f1b", {.positions = 2, .microbatches = 2}));
  schedule.waits[0] = {999};
  const Validation validation = validate(schedule);
  ASSERT_EQ(validation.violations.size(), 1U);
  EXPECT_EQ(validation.violations[0].message, "a wait names no op, or an operand no value");
  EXPECT_FALSE(validation.applied[1]);
}

TEST(Form, AWaitForTheOwnStreamIsNamed) {
  Schedule schedule = transfers_of(order("1f1b", {.positions = 2, .microbatches = 2}));
  const std::int32_t send = find(schedule, "0SEND_F1");
  schedule.waits[static_cast<std::size_t>(schedule.wait_begin[static_cast<std::size_t>(send)])] = {
      find(schedule, "0SEND_F0")};
  expect_among(violations(schedule),
               "V1: 0SEND_F1 on rank 0 waits for op 1, which is on its own stream: order says it");
}

// --- V2, V3 ------------------------------------------------------------------

TEST(Completeness, AMissingBackwardIsNamed) {
  EXPECT_EQ(violations(csv("0F0,0F1,0B0,0B1\n1F0,1B0,1F1\n")),
            (Lines{
                "V2: 1B1 is missing: it belongs on rank 1",
                // 0B1 waits for it, which no cycle explains: V6 has nothing to add
            }));
}

TEST(Completeness, AnOpThatRunsTwiceIsNamed) {
  EXPECT_EQ(violations(csv("0F0,0F1,0B0,0F1,0B1\n1F0,1B0,1F1,1B1\n")),
            Lines{"V2: 0F1 on rank 0 is run twice"});
}

TEST(Completeness, AMissingWeightGradientIsNamed) {
  EXPECT_EQ(violations(csv("0F0,0I0,0W0\n1F0,1I0\n")),
            Lines{"V2: 1W0 is missing: it belongs on rank 1"});
}

TEST(Completeness, ABackwardInBothFormsIsNamed) {
  EXPECT_EQ(violations(csv("0F0,0F1,0B0,0W0,0B1\n")),
            (Lines{"V2: 0W0 on rank 0: its micro-batch has a whole backward (B) and a split one "
                   "(I, W): one of them"}));
}

TEST(Completeness, ForwardsAloneAreComplete) {
  EXPECT_EQ(violations(csv("0F0,0F1\n1F0,1F1\n")), Lines{});
}

TEST(Order, ABackwardBeforeItsForwardIsNamed) {
  expect_among(violations(csv("0F0,0B1,0B0,0F1\n")),
               "V3: 0B1 on rank 0 runs before its forward 0F1");
}

TEST(Order, ALateInputGradientIsNamed) {
  expect_among(violations(csv("0F0,0W0,0I0\n")),
               "V3: 0W0 on rank 0 runs before its input gradient");
}

TEST(Order, SlicesOutOfOrderAreNamed) {
  EXPECT_EQ(violations(csv("0F0.0,0F0.1,0B0.0,0B0.1\n")),
            (Lines{"V3: 0B0.0 on rank 0: slices of a forward ascend, of a backward they descend"}));
}

TEST(Order, PartsOutOfOrderAreNamed) {
  EXPECT_EQ(violations(csv("0F0[0],0F0[1],0B0[1],0B0[0]\n")), Lines{});
  EXPECT_EQ(violations(csv("0F0[0],0F0[1],0B0[0],0B0[1]\n")),
            (Lines{"V2: 0B0[1] on rank 0 is run twice",
                   "V3: 0B0[0] on rank 0: parts of a forward ascend from segment 0, of a backward "
                   "they descend"}));
}

TEST(Order, RecomputationStandsBetweenItsForwardAndItsBackward) {
  EXPECT_EQ(violations(csv("0F0,0F1,0R0,0B0,0B1\n")), Lines{});  // 0B1 computes again by itself
  EXPECT_EQ(violations(csv("0F0,0F1,0R1,0R0,0I0,0I1,0W0,0W1\n")), Lines{});
  expect_among(violations(csv("0R0,0F0,0B0\n")), "V3: 0R0 on rank 0 runs before its forward 0F0");
  EXPECT_EQ(violations(csv("0F0,0I0,0R0,0W0\n")),
            (Lines{"V3: 0R0 on rank 0 runs after the backward that it is for, 0I0"}));
  EXPECT_EQ(violations(csv("0F0,0R0,0R0,0B0\n")), (Lines{"V2: 0R0 on rank 0 is run twice"}));
  EXPECT_EQ(violations(csv("0F0,0F1,0R0\n")), (Lines{"V2: 0B0 is missing: it belongs on rank 0",
                                                     "V2: 0B1 is missing: it belongs on rank 0"}));
}

TEST(Order, RecomputationOfAPartIsOfAllItsParts) {
  EXPECT_EQ(violations(csv("0F0[0],0F0[1],0R0[0],0R0[1],0B0[1],0B0[0]\n")), Lines{});
  EXPECT_EQ(violations(csv("0F0[0],0F0[1],0R0[0],0B0[1],0B0[0]\n")),
            (Lines{"V2: 0R0 is missing in part: it belongs on rank 0"}));
  expect_among(violations(csv("0F0[0],0F0[1],0R0[1],0R0[0],0B0[1],0B0[0]\n")),
               "V3: 0R0[1] on rank 0: parts of an R ascend from segment 0");
}

TEST(Order, AnOpBeforeTheRecvThatFeedsItIsNamed) {
  EXPECT_EQ(violations(csv("0F0,0SEND_F0,0RECV_B0,0B0\n1F0,1RECV_F0,1B0,1SEND_B0\n")),
            (Lines{"V3: 1F0 on rank 1 is listed before 1RECV_F0, which brings its input"}));
}

// Stages 1 and 2 lie on rank 1: nothing is sent between them, the order alone must be right.
TEST(Order, AnOpBeforeItsProducerOnTheSameRankIsNamed) {
  const Lines lines =
      violations(csv("0F0,0SEND_F0,3RECV_F0,3F0,3B0,3SEND_B0,0RECV_B0,0B0\n"
                     "1RECV_F0,2F0,1F0,2SEND_F0,2RECV_B0,2B0,1B0,1SEND_B0\n"));
  EXPECT_EQ(lines, (Lines{"V3: 2F0 on rank 1 is listed before 1F0, which makes its input",
                          "V6: it hangs with one in-order transfer stream per rank: 2F0 on rank 1 "
                          "-> 1F0 on rank 1 -> 2F0 on rank 1"}));
}

// --- V4, V6 ------------------------------------------------------------------

TEST(Transfers, ASendThatIsMissingLeavesItsRecvAlone) {
  EXPECT_EQ(violations(csv("0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n")),
            (Lines{"V4: 1RECV_F0 on rank 1 is never sent: rank 0 has no such SEND",
                   "V6: 1RECV_F0 on rank 1 waits for ever: it has no partner"}));
}

TEST(Transfers, BothEndsMissingAreNamedAtTheirConsumer) {
  EXPECT_EQ(
      violations(csv("0F0,0RECV_B0,0B0\n1F0,1B0,1SEND_B0\n")),
      (Lines{"V4: nothing brings 1F0 on rank 1 its input: 0SEND_F0 and 1RECV_F0 are missing"}));
}

// The k-th SEND meets the k-th RECV: swap two and the wrong micro-batch arrives.
TEST(Transfers, AChannelThatIsNotFirstInFirstOutIsNamed) {
  const Schedule schedule =
      csv("0F0,0F1,0SEND_F1,0SEND_F0,0RECV_B0,0B0,0RECV_B1,0B1\n"
          "1RECV_F0,1RECV_F1,1F0,1F1,1B0,1SEND_B0,1B1,1SEND_B1\n");
  expect_among(violations(schedule),
               "V4: channel rank 0 -> rank 1: 0SEND_F1 is sent before 0SEND_F0, but received after "
               "it: list both in the same order on both ranks");
}

TEST(Transfers, ATransferThatStandsTwiceIsNamed) {
  expect_among(violations(csv("0F0,0SEND_F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n")),
               "V4: 0SEND_F0 on rank 0 stands twice");
}

TEST(Transfers, ATransferToTheSameRankIsNamed) {
  expect_among(violations(csv("0F0,0SEND_F0>r1,1F0,1B0,0B0\n,\n")),
               "V4: 0SEND_F0 on rank 0: stage 1 lies on the same rank, nothing is to be sent");
}

TEST(Transfers, AWrongPeerIsNamed) {
  expect_among(violations(csv("0F0,0SEND_F0>r2,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n2F1\n")),
               "V4: 0SEND_F0 on rank 0 names rank 2: stage 1 lies on rank 1");
}

TEST(Transfers, BytesThatDifferAreNamed) {
  Schedule full = example(1).full;
  const std::int32_t recv = find(full, "1RECV_F0", 1);
  full.values[operands(full, recv)[0].value.index()].bytes = {4096};
  expect_among(violations(full),
               "V4: 0SEND_F0 on row 0 sends 2048 bytes, 1RECV_F0 on row 1 expects 4096");
}

TEST(Deadlock, TheCycleIsTheMessage) {
  const Schedule l0 = order("1f1b", {.positions = 2, .microbatches = 2});
  EXPECT_EQ(violations(transfers_of(l0, TransferPolicy::Naive)),
            (Lines{"V6: it hangs with one in-order transfer stream per rank: 0SEND_F1 on rank 0 -> "
                   "1RECV_F1 on rank 1 -> 1SEND_B0 on rank 1 -> 0RECV_B0 on rank 0 -> 0SEND_F1 on "
                   "rank 0"}));
}

// 1F1B that begins with a backward's forward too late: the compute order itself waits in a circle.
TEST(Deadlock, AComputeOrderCanHangToo) {
  EXPECT_EQ(
      violations(csv("0F0,0B0,0F1,0B1\n1F1,1F0,1B0,1B1\n")),
      (Lines{"V6: it hangs with one in-order transfer stream per rank: 0B0 on rank 0 -> 1B0 on "
             "rank 1 -> 1F1 on rank 1 -> 0F1 on rank 0 -> 0B0 on rank 0"}));
}

// --- V5 ----------------------------------------------------------------------

Schedule parameter_server() {
  Plan plan = example_plan(0);
  plan.tensor_parallel = plan.pipeline_parallel = 1;
  plan.sequence_parallel = false;
  plan.virtual_stages = 1;
  plan.stage_layers = {4};
  plan.microbatch_group_size = 0;
  plan.schedule = "none";
  plan.data_parallel_algorithm = DataParallelAlgorithm::ParameterServer;
  return lower(generate("none", shape_of(plan).value()).value(), {example_model(), plan}).value();
}

TEST(Collectives, AMemberThatListsAnotherCollectiveIsNamed) {
  Schedule full = example(1).full;
  const std::int32_t id = find(full, "ALL_REDUCE T", 1);
  full.ops[static_cast<std::size_t>(id)].kind = OpKind::ReduceScatter;
  expect_among(violations(full),
               "V5: REDUCE_SCATTER T on row 1 meets ALL_REDUCE T on row 0: members list the same "
               "collective of the same group");
}

TEST(Collectives, AMemberThatStaysAwayIsNamed) {
  Schedule full = example(1).full;
  at(full, "ALL_REDUCE T", 1).match = {full.num_ops() - 1};
  expect_among(violations(full),
               "V5: ALL_REDUCE T on row 0 on group embed is listed by 1 of its 2 ranks");
}

TEST(Collectives, MembersInAnotherOrderAreNamed) {
  Schedule full = parameter_server();
  EXPECT_EQ(violations(full), Lines{});
  std::vector<std::int32_t> reduces;
  for (std::int32_t i = full.row_begin[1]; i < full.row_begin[2]; ++i) {
    if (full.ops[static_cast<std::size_t>(i)].kind == OpKind::Broadcast) reduces.push_back(i);
  }
  ASSERT_GE(reduces.size(), 2U);
  std::swap(full.ops[static_cast<std::size_t>(reduces[0])].match,
            full.ops[static_cast<std::size_t>(reduces[1])].match);
  const std::vector<std::string> lines = violations(full);
  EXPECT_TRUE(std::ranges::any_of(lines, [](const std::string& line) {
    return line.starts_with("V5: BROADCAST") && line.ends_with("group dp needs one order");
  })) << ::testing::PrintToString(lines);
}

TEST(Gradients, OutputsThatNoLossHasSeenAreNamed) {
  Schedule full = parameter_server();
  at(full, "0LOSS0", 0).kind = OpKind::Add;
  expect_among(violations(full),
               "V10: 0SCATTER_B0 on row 0 hands back outputs as they came: no LOSS has made their "
               "gradients");
}

// --- V7, V8, V11 -------------------------------------------------------------

TEST(Lives, AnOpThatDoesNotWaitForItsInputIsNamed) {
  Schedule schedule = transfers_of(order("1f1b", {.positions = 2, .microbatches = 2}));
  drop_wait(schedule, static_cast<std::size_t>(
                          schedule.wait_begin[static_cast<std::size_t>(find(schedule, "0B0"))]));
  EXPECT_EQ(violations(schedule),
            Lines{"V7: 0B0 on rank 0 does not wait for 0RECV_B0, whose result it uses"});
}

TEST(Lives, AValueThatIsReadOnAnotherStreamWithoutAWaitIsNamed) {
  Schedule full = example(1).full;  // 0: 5 0F0 | wait 0 3 (tokens, P.L0)
  drop_wait(full, static_cast<std::size_t>(full.wait_begin[5]) + 1);
  expect_among(violations(full),
               "V7: 0F0 on row 0 does not wait for ALL_GATHER L0 on row 0, which has written P.L0");
}

TEST(Lives, AUseAfterTheLastOneIsNamed) {
  Schedule full = example(1).full;
  operands(full, find(full, "0F1[1]"))[0].last = true;  // x0.1/1, which 0B1[1] still reads
  expect_among(violations(full),
               "V7: 0B1[1] on row 0 uses x0.1/1 after its last use by 0F1[1] on row 0");
}

TEST(Lives, AValueThatIsNeverFreedIsNamed) {
  Schedule full = example(1).full;
  const std::int32_t send = find(full, "0SEND_F0");
  operands(full, send)[0].last = false;
  EXPECT_EQ(violations(full),
            (Lines{"V7: x0.0 is never freed: its last use, 0SEND_F0 on row 0, does "
                   "not say so"}));
}

TEST(Lives, AStaleVersionIsNamed) {
  Schedule full = example(1).full;
  const std::int32_t step = find(full, "OPTIMIZER_STEP L2");
  operands(full, step)[0].version = 0;  // G.L2 of before the reductions
  const std::vector<std::string> lines = violations(full);
  ASSERT_EQ(lines.size(), 1U) << ::testing::PrintToString(lines);
  EXPECT_TRUE(lines[0].starts_with("V7: OPTIMIZER_STEP L2 on row 0 names version 0 of G.L2: "));
}

TEST(Lives, AUseBeforeTheDefinitionIsNamed) {
  Schedule full = example(1).full;
  const std::int32_t second = find(full, "2F1");
  operands(full, find(full, "2F0"))[0].value = operands(full, second)[0].value;  // x1.1 for x1.0
  const std::vector<std::string> lines = violations(full);
  EXPECT_TRUE(std::ranges::any_of(lines, [](const std::string& line) {
    return line.starts_with("V7: 2F0 on row 0 uses x1.1 before ");
  })) << ::testing::PrintToString(lines);
}

TEST(Arena, MemoryThatIsGivenOnTooEarlyIsNamed) {
  Schedule full = example(3).full;  // 24 2B1 waits for 22* REDUCE_SCATTER g.L2.0
  const auto reuse = std::ranges::find(full.wait_is_reuse, 1) - full.wait_is_reuse.begin();
  ASSERT_LT(static_cast<std::size_t>(reuse), full.waits.size());
  drop_wait(full, static_cast<std::size_t>(reuse));
  const std::vector<std::string> lines = violations(full);
  EXPECT_TRUE(std::ranges::any_of(lines, [](const std::string& line) {
    return line.starts_with("V8: ") &&
           line.ends_with(
               "takes memory of g.L2.0, and 2B1 on row 0 does not wait for its use by "
               "REDUCE_SCATTER L2 on row 0");
  })) << ::testing::PrintToString(lines);
}

TEST(Arena, TwoValuesInOnePlaceAtOneTimeAreNamed) {
  Schedule full = example(1).full;
  const ValueId x = operands(full, find(full, "0SEND_F0"))[0].value;
  full.values[x.index()].offset = {0};  // where the optimizer state of L2 lies
  EXPECT_EQ(violations(full),
            (Lines{"V8: x0.0 on row 0 takes memory of S.L2, which is alive all along"}));
}

// The page's peak of position 0 is 811,520 bytes, in 0B0.
TEST(Memory, APeakAboveTheCapacityNamesItsWitness) {
  const Schedule full = example(1).full;
  const std::vector<Bytes> capacity{{811'519}, {790'528}};
  EXPECT_EQ(violations(full, {.capacity = capacity}),
            (Lines{"V11: row 0 needs 811520 bytes, at 0B0 on row 0: it has 811519 bytes"}));
}

// --- V9, V10 -----------------------------------------------------------------

TEST(Gathers, ComputeOnShardedParametersIsNamed) {
  EXPECT_EQ(violations(csv("0UNSHARD,0F0,0B0,0RESHARD\n1UNSHARD,1F0,1RESHARD,1B0\n")),
            (Lines{"V9: 1B0 on rank 1 computes on sharded parameters: UNSHARD its stage first"}));
}

TEST(Gathers, ASecondGatherIsNamed) {
  EXPECT_EQ(violations(csv("0UNSHARD,0F0,0UNSHARD,0B0,0RESHARD\n")),
            (Lines{"V9: 0UNSHARD on rank 0: the stage is gathered already"}));
}

TEST(Gathers, AGatherThatIsStillInUseIsNamed) {
  Schedule full = example(3).full;
  // 21 gathers L0 again; the first gather's last use is 9. Let the first one live on.
  const std::int32_t second = find(full, "UNSHARD L0") + 1;
  std::int32_t again = -1;
  for (std::int32_t i = second; i < full.row_begin[1]; ++i) {
    if (to_text(full, {i}) == "UNSHARD L0") again = i;
  }
  const ValueId first = operands(full, find(full, "UNSHARD L0"))[1].value;
  full.values[first.index()].last_use = {again + 1};
  expect_among(violations(full),
               "V9: UNSHARD L0 on row 0 gathers F.L0#2 while F.L0#1 is still in use");
}

TEST(Gradients, ALateWeightGradientIsNamed) {
  EXPECT_EQ(
      violations(csv("0F0,0F1,0I0,0W0,0I1,0REDUCE_GRAD,0W1\n")),
      (Lines{"V10: 0W1 on rank 0 adds to a gradient that 0REDUCE_GRAD has used: it is late"}));
}

TEST(Gradients, AMicrobatchThatIsLeftOutOfTheSumIsNamed) {
  Schedule full = example(1).full;
  const std::int32_t id = find(full, "2B1");
  for (Operand& operand : operands(full, id)) {
    if (full.values[operand.value.index()].kind == ValueKind::Gradient) {
      operand.access = Access::Read;  // reads G.L2 and adds nothing
    }
  }
  expect_among(
      violations(full),
      "V10: bucket L2 on row 0 lacks micro-batch 1 of stage 2, unlike that of 2B0 on row 0");
}

TEST(Gradients, ASumThatIsNotReducedIsNamed) {
  Schedule full = example(1).full;
  at(full, "REDUCE_SCATTER L2").group = full.group(GroupKind::Tensor);
  expect_among(violations(full),
               "V10: OPTIMIZER_STEP L2 on row 0 uses G.L2, which has not been reduced over dp");
}

TEST(Gradients, ATiedSumThatIsNotExchangedIsNamed) {
  Schedule full = example(1).full;
  at(full, "ALL_REDUCE T").group = full.group(GroupKind::World);
  expect_among(violations(full),
               "V10: OPTIMIZER_STEP T on row 0 uses G.T, which has not been added to that of the "
               "other use (group embed)");
}

// --- V12 to V15 --------------------------------------------------------------

TEST(Pairs, OpsOfOneMicrobatchCannotOverlap) {
  expect_among(
      violations(csv("(0F0;0B0)OVERLAP_F_B\n")),
      "V12: (0F0;0B0)OVERLAP_F_B on rank 0: 0B0 depends on 0F0, they cannot run at the same "
      "time");
}

TEST(PlacementRule, AnOpOnAnotherRankIsNamed) {
  expect_among(violations(csv("0F0,0F1,0B0,0B1,1B1\n1F0,1B0,1F1\n")),
               "V13: 1B1 on rank 0: stage 1 lies on rank 1");
}

TEST(Folding, ReplicasThatNobodyStandsForAreNamed) {
  Schedule full = parameter_server();
  full.rows[1].data_begin = 2;
  expect_among(violations(full),
               "V14: row 1 stands for data coordinates 2 to 2 of position 0, where 1 is next");
}

TEST(Lowering, AnOpThatChangedItsPlaceIsNamed) {
  Lowered both = example(1);
  EXPECT_EQ(violations(both.full, {.compute_order = &both.order}), Lines{});
  const std::int32_t a = find(both.full, "2F0"), b = find(both.full, "2F1");
  std::swap(both.order.ops[2], both.order.ops[3]);
  ASSERT_LT(a, b);
  expect_among(violations(both.full, {.compute_order = &both.order}),
               "V15: 2F0 on row 0 stands where the compute order has 2F1");
}

TEST(Lowering, AnOpThatIsLostIsNamed) {
  Lowered both = example(1);
  Op extra = both.order.ops[7];
  extra.microbatch = {0};
  both.order.ops.insert(both.order.ops.begin() + 8, extra);
  for (std::size_t r = 1; r < both.order.row_begin.size(); ++r) ++both.order.row_begin[r];
  expect_among(violations(both.full, {.compute_order = &both.order}),
               "V15: row 0 lacks 0B0 of the compute order");
}

}  // namespace
}  // namespace rehearse
