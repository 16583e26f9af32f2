// SPDX-License-Identifier: Apache-2.0
#include "schedules/formats/schedule_json.h"
#include "schedules/scenario/plan_shape.h"

#include <gtest/gtest.h>

#include <fstream>

#include "schedules/formats/schedule_file.h"
#include "schedules/ir/placed_recompute.h"
#include "schedules/ir/text.h"
#include "schedules/order/registry.h"
#include "schedules/passes/lower.h"
#include "schedules/proof/validate.h"
#include "schedules/timing/compute_timing.h"
#include "schedules/transfers/add_transfers.h"
#include "tests/schedules/ir/example_case.h"
#include "tests/schedules/runtime/runtime_named.h"

namespace rehearse {
namespace {

Schedule order(std::string_view name) {
  return generate(name, {.positions = 4, .microbatches = 8}).value();
}

class JsonRoundTrip : public ::testing::TestWithParam<std::string_view> {};

// The file carries the hash of what is read back: nothing was lost, nothing was added.
TEST_P(JsonRoundTrip, EveryLevelReadsBackAsTheSameSchedule) {
  const Schedule l0 = order(GetParam());
  const std::vector<Nanoseconds> finish = time_compute(l0, {}).value().end;
  std::vector<Schedule> all{l0};
  for (const TransferPolicyInfo& policy : kTransferPolicies) {
    all.push_back(add_transfers(l0, finish, policy.policy));
  }
  for (const Schedule& schedule : all) {
    const std::string text = to_schedule_json(schedule);
    const Result<ScheduleFile> file = parse_schedule_json(text, "x.json");
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_TRUE(file.value().hash_matches);
    EXPECT_EQ(file.value().declared_hash, content_hash(schedule));
    EXPECT_EQ(file.value().schedule.name, schedule.name);
    EXPECT_EQ(file.value().schedule.waits, schedule.waits);
    EXPECT_EQ(to_schedule_json(file.value().schedule), text);
  }
}
std::vector<std::string_view> names() {
  std::vector<std::string_view> names;
  for (const ScheduleInfo& info : schedule_table()) {
    if (info.name != "none") names.push_back(info.name);
  }
  return names;
}
INSTANTIATE_TEST_SUITE_P(All, JsonRoundTrip, ::testing::ValuesIn(names()),
                         [](const auto& test) { return "schedule_" + std::string(test.param); });

// A full L1, values and all: ZeRO-1 and ZeRO-3 of docs/ir.md, and an odd replica.
TEST(ScheduleJson, AFullLoweringReadsBackColumnByColumn) {
  for (const std::int32_t zero_stage : {1, 3}) {
    const Plan plan = example_plan(zero_stage);
    const Schedule l0 = generate("interleaved_1f1b", shape_of(plan).value()).value();
    const Schedule full = lower(l0, {example_model(), plan}).value();
    const std::string text = to_schedule_json(full);
    const Result<ScheduleFile> file = parse_schedule_json(text, "x.json");
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_TRUE(file.value().hash_matches);
    const Schedule& back = file.value().schedule;
    EXPECT_EQ(back.ops, full.ops);
    EXPECT_EQ(back.waits, full.waits);
    EXPECT_EQ(back.wait_is_reuse, full.wait_is_reuse);
    EXPECT_EQ(back.operand_begin, full.operand_begin);
    EXPECT_EQ(back.values.size(), full.values.size());
    EXPECT_EQ(to_schedule_json(back), text);
    EXPECT_TRUE(validate(back, {.compute_order = &l0}).sound());
  }
}

TEST(ScheduleJson, OrdersMustAgreeWithTheColumns) {
  const Plan plan = example_plan(1);
  const Schedule l0 = generate("interleaved_1f1b", shape_of(plan).value()).value();
  std::string text = to_schedule_json(lower(l0, {example_model(), plan}).value());
  const std::size_t at = text.find("\"0F0\"");
  text.replace(at, 5, "\"0F1\"");
  EXPECT_EQ(parse_schedule_json(text, "x.json").error().message,
            "x.json:9: orders[0][5]: is 0F0 in `columns`: remove `columns` to change the order by "
            "hand");
}

TEST(ScheduleJson, AnEditedFileIsReadAndSaysSo) {
  std::string text = to_schedule_json(order("1f1b"));
  const std::size_t at = text.find("\"0B0\", \"0F4\"");
  ASSERT_NE(at, std::string::npos);
  text.replace(at, 12, "\"0F4\", \"0B0\"");
  const ScheduleFile file = parse_schedule_json(text, "x.json").value();
  EXPECT_FALSE(file.hash_matches);
  EXPECT_EQ(to_text(file.schedule.ops[4]), "0F4");
}

TEST(ScheduleJson, OnlyOrdersAreNeeded) {
  const Schedule schedule =
      parse_schedule_json(R"({"orders": [["0F0", "0B0"], ["1F0", "1B0"]]})", "x.json")
          .value()
          .schedule;
  EXPECT_EQ(schedule.microbatches, 1);
  EXPECT_EQ(schedule.placement, loop_placement(2, 1));
}

TEST(ScheduleJson, IdleSlotsMayBeEmptyOrNull) {
  const Schedule schedule =
      parse_schedule_json(R"({"orders": [["0F0", "", null, "0B0"]]})", "x.json").value().schedule;
  EXPECT_EQ(row_to_text(schedule, {0}), "0F0 0B0");
}

TEST(ScheduleFile, ComputeOrderIsWhatIsLeftWithoutTransfersAndParts) {
  const ScheduleFile file =
      parse_schedule_file(
          "0F0[0],0F0[1],0SEND_F0,0RECV_B0,0B0[1],0B0[0]\n1RECV_F0,1F0,1B0,1SEND_B0\n", "x.csv")
          .value();
  const Schedule l0 = compute_order_of(file.schedule);
  EXPECT_EQ(l0.level, Level::Compute);
  EXPECT_EQ(row_to_text(l0, {0}), "0F0 0B0");
  EXPECT_EQ(row_to_text(l0, {1}), "1F0 1B0");
}

// `schedule: "file:PATH"`: the order must fit the plan, and lowers like one of ours.
TEST(ScheduleFile, APlanTakesAnOrderThatFitsIt) {
  Plan plan = example_plan(1);
  const Schedule l0 = generate("interleaved_1f1b", shape_of(plan).value()).value();
  const std::string path = ::testing::TempDir() + "own_order.json";
  std::ofstream(path) << to_schedule_json(l0);
  plan.schedule = "file:" + path;
  plan.stage_layers.clear();
  const Schedule order = order_of_file(plan, 4).value();
  EXPECT_EQ(order.ops, l0.ops);
  EXPECT_EQ(plan.stage_layers, (std::vector<std::int32_t>{1, 1, 1, 1}));
  EXPECT_TRUE(validate(lower(order, {example_model(), plan}).value()).sound());
  plan.global_batch = 8;
  EXPECT_EQ(order_of_file(plan, 4).error().message,
            "plan.schedule: " + path + ": has 2 micro-batches, micro-batches per step is 4");
  std::ofstream(path) << R"({"orders": [["0F0", "0F1", "0B1", "0B0", "0B1"], ["1F0", "1F1"]]})";
  plan.global_batch = 4;
  EXPECT_EQ(order_of_file(plan, 4).error().message,
            "plan.schedule: " + path + ": 0B1 on rank 0 is run twice");
}

// Recomputation as an op asks for a plan that computes something again. Of a framework, which
// performs no such op, it is priced.
TEST(ScheduleFile, APlanTakesAnOrderWithRecomputationWhereSomethingIsComputedAgain) {
  Plan plan = example_plan(1);  // selective
  const std::string path = ::testing::TempDir() + "apart_order.json";
  std::ofstream(path) << R"({"orders": [["0F0", "0F1", "2F0", "2F1", "2R1", "2B0", "2B1", "0R0",
                                         "0B0", "0B1"],
                                        ["1F0", "1F1", "3F0", "3B0", "3F1", "3R1", "3B1", "1B0",
                                         "1B1"]]})";
  plan.schedule = "file:" + path;
  plan.stage_layers.clear();
  const Schedule order = order_of_file(plan, 4).value();
  const Schedule lowered = lower(order, {example_model(), plan}).value();
  const Validation proof = validate(lowered, {.compute_order = &order});
  EXPECT_TRUE(proof.sound()) << proof.violations.front().message;
  Plan none = plan;
  none.recompute = {};
  EXPECT_EQ(order_of_file(none, 4).error().message,
            "plan.schedule: " + path + ": has recomputation as an op, 2R1, and recompute is none");
  plan.runtime = runtime_named("megatron");
  const Schedule priced = lower(order_of_file(plan, 4).value(), {example_model(), plan}).value();
  const Validation sound = validate(priced, {.compute_order = &order});
  EXPECT_TRUE(sound.sound()) << sound.violations.front().message;
  EXPECT_TRUE(PlacedRecompute(priced).any());
}

TEST(ScheduleJson, BrokenFilesAreOneLineWithTheirPlace) {
  for (const auto& [text, error] : std::initializer_list<std::pair<const char*, const char*>>{
           {"", "x.json: the file is empty"},
           {"{\n \"orders\": [[\"0F0\"\n", "x.json:3: not JSON: the text ends too early"},
           {"[[\"0F0\"]]", "x.json:1: a schedule file is a JSON object with `orders`"},
           {"{}", "x.json:1: orders: is missing: a list of ops for every rank"},
           {"{\"order\": []}", "x.json:1: order: unknown key; is `orders` meant?"},
           {"{\"orders\": []}", "x.json:1: orders: must be a list with a list for every rank"},
           {"{\"orders\": [[]]}", "x.json:1: orders: there is no op"},
           {"{\"orders\": \"0F0\"}", "x.json:1: orders: must be a list with a list for every rank"},
           {"{\n\"orders\": [\n\"0F0\"]}",
            "x.json:3: orders[0]: must be a list of ops, such as \"0F0\""},
           {"{\n\"orders\": [\n[\"0F0\",\n3]]}",
            "x.json:4: orders[0][1]: must be an op, such as \"0F0\""},
           {"{\n\"orders\": [\n[\"0F0\"],\n[\"1F0\", \"1B0!\"]]}",
            "x.json:4: orders[1][1]: column 4: unexpected \"!\""},
           {"{\n\"version\": \"2.0\",\n\"orders\": [[\"0F0\"]]}",
            "x.json:2: version: \"2.0\" is not a version that is known here (1.x)"},
           {"{\"format\": \"chakra\", \"orders\": [[\"0F0\"]]}",
            "x.json:1: format: \"chakra\" is not \"rehearse.schedule\""},
           {"{\"microbatches\": 0, \"orders\": [[\"0F0\"]]}",
            "x.json:1: microbatches: must be a whole number from 1 to 99999999"},
           {"{\"slices\": 1000, \"orders\": [[\"0F0\"]]}",
            "x.json:1: slices: must be a whole number from 1 to 127"},
           {"{\"microbatches\": 99999999, \"orders\": [[\"0F0\"]]}",
            "x.json:1: orders: 1 stages and 99999999 micro-batches need at least 99999999 ops: the "
            "file has 1"},
           {"{\"p\": 3, \"orders\": [[\"0F0\"]]}", "x.json:1: p: 3 ranks, but `orders` has 1"},
           {"{\"stage_to_rank\": [0, 1], \"orders\": [[\"0F0\"]]}",
            "x.json:1: stage_to_rank[1]: must be a rank from 0 to 0"},
           {"{\"stage_to_rank\": [0], \"num_stages\": 2, \"orders\": [[\"0F0\"]]}",
            "x.json:1: num_stages: is not the number of stages that are placed, 1"},
           {"{\"placements\": [{\"microbatches\": [1, 2], \"stage_to_rank\": [0]}], \"orders\": "
            "[[\"0F0\"]]}",
            "x.json:1: placements[0].microbatches: must be [first, last]; the first placement "
            "begins with 0"},
           {"{\"orders\": [[\"0F0\"]], \"orders\": []}",
            "x.json:1: orders: the key stands twice in one object"},
       }) {
    const Result<ScheduleFile> file = parse_schedule_file(text, "x.json");
    const Result<ScheduleFile> json = text[0] == '[' ? parse_schedule_json(text, "x.json") : file;
    ASSERT_FALSE(json) << text;
    EXPECT_EQ(json.error().message, error);
  }
}

}  // namespace
}  // namespace rehearse
