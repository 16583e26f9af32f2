// SPDX-License-Identifier: Apache-2.0
#include "schedules/formats/csv.h"

#include <gtest/gtest.h>

#include "schedules/ir/text.h"
#include "schedules/order/registry.h"
#include "schedules/proof/deadlock.h"
#include "schedules/timing/compute_timing.h"
#include "schedules/transfers/add_transfers.h"

namespace rehearse {
namespace {

// What torch's `_dump_csv` writes for Schedule1F1B on 2 ranks, idle slots and \r\n included.
constexpr const char* kTorch =
    "0F0,0F1,,0B0,0B1\r\n"
    ",1F0,1B0,1F1,1B1\r\n";

TEST(Csv, ReadsTorchsComputeOnlyForm) {
  const Schedule schedule = parse_csv(kTorch, "own.csv").value();
  EXPECT_EQ(schedule.level, Level::Compute);
  EXPECT_EQ(schedule.microbatches, 2);
  EXPECT_EQ(schedule.placement, loop_placement(2, 1));
  EXPECT_EQ(row_to_text(schedule, {1}), "1F0 1B0 1F1 1B1");
}

TEST(Csv, InfersWhereStagesLieFromWhoRunsThem) {
  const Schedule v = parse_csv("0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0\n", "v.csv").value();
  EXPECT_EQ(v.placement, v_placement(2));
  const Schedule both = parse_csv("0F0,1F1,1B1,0B0\n0F1,1F0,1B0,0B1\n", "chimera.csv").value();
  EXPECT_EQ(both.placement, bidirectional_placement(2, 1));
}

TEST(Csv, AcceptsQuotesBlanksAndTheMarkOfSpreadsheets) {
  const Schedule schedule =
      parse_csv("\xEF\xBB\xBF\"0F0\", 0F1 ,\"(0F2;0B0)OVERLAP_F_B\"\n", "x.csv").value();
  EXPECT_EQ(row_to_text(schedule, {0}), "0F0 0F1 (0F2;0B0)OVERLAP_F_B");
}

class CsvRoundTrip : public ::testing::TestWithParam<std::string_view> {};

TEST_P(CsvRoundTrip, BothFormsReadBackAsTheSameSchedule) {
  Schedule order = generate(GetParam(), {.positions = 4, .microbatches = 8}).value();
  const Schedule full = add_transfers(order, time_compute(order, {}).value().end);
  for (const Schedule* schedule : {&std::as_const(order), &full}) {
    const Schedule back = parse_csv(to_csv(*schedule).value(), "x.csv").value();
    EXPECT_EQ(content_hash(back), content_hash(*schedule));
    EXPECT_EQ(back.placement, schedule->placement);
    EXPECT_EQ(back.waits, schedule->waits);
  }
}
std::vector<std::string_view> names() {
  std::vector<std::string_view> names;
  for (const ScheduleInfo& info : schedule_table()) {
    if (info.name != "none") names.push_back(info.name);
  }
  return names;
}
INSTANTIATE_TEST_SUITE_P(All, CsvRoundTrip, ::testing::ValuesIn(names()),
                         [](const auto& test) { return "schedule_" + std::string(test.param); });

TEST(Csv, BrokenFilesAreOneLineWithRowAndCell) {
  for (const auto& [text, error] : std::initializer_list<std::pair<const char*, const char*>>{
           {"", "x.csv: there is no op"},
           {",,,\n", "x.csv: there is no op"},
           {"0F0,0B0\n1F0,1B0x\n", "x.csv:2: cell 2: column 4: unexpected \"x\""},
           {"0F0,0B0\n\n1F0,1B0\n", "x.csv:2: an empty line: every line is the row of a rank"},
           {"0F0,\"0B0\n", "x.csv:1: cell 2: a quote is not closed, or text follows it"},
           {"0F0,\"0B0\"x\n", "x.csv:1: cell 2: a quote is not closed, or text follows it"},
           {"0F0;0B0\n", "x.csv:1: cell 1: column 4: unexpected \";0B0\""},
           {"rank,op\n0,0F0\n",
            "x.csv:1: cell 1: column 1: expected a stage number, found \"rank\""},
           {"0F0,0B0,\n1F0,,1B0,oops\n",
            "x.csv:2: cell 4: column 1: expected a stage number, found \"oops\""},
           {"90000000F0\n",
            "x.csv: stage 90000000 in a file of 1 ops: numbers count from 0 without gaps"},
           {"0F0,0F90000000\n",
            "x.csv: micro-batch 90000000 in a file of 2 ops: numbers count from 0 without gaps"},
       }) {
    const Result<Schedule> schedule = parse_csv(text, "x.csv");
    ASSERT_FALSE(schedule) << text;
    EXPECT_EQ(schedule.error().message, error);
  }
}

TEST(Csv, AnOpWithoutAWordInCsvIsRefusedByTheWriter) {
  Schedule schedule = parse_csv("0F0,0B0\n", "x.csv").value();
  schedule.buckets.push_back({.name = "L0"});
  schedule.ops.push_back({.kind = OpKind::AllReduce, .stream = Stream::Dp, .bucket = {0}});
  ++schedule.row_begin.back();
  EXPECT_EQ(to_csv(schedule).error().message, "ALL_REDUCE L0: CSV has no word for it; use JSON");
}

}  // namespace
}  // namespace rehearse
