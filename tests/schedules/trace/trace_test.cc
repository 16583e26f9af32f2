// SPDX-License-Identifier: Apache-2.0
#include "schedules/trace/trace.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <iterator>

#include "schedules/ir/text.h"
#include "tests/viz/picture/pipeline_fixture.h"

namespace rehearse {
namespace {

using viz::fixture::one_f_one_b;
using viz::fixture::one_f_one_b_trace;

std::string temporary(const char* name) {
  return testing::TempDir() + name + std::to_string(getpid());
}

std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void put(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// All optional columns filled, so that every section is in the file.
Trace full_trace() {
  Trace trace = one_f_one_b_trace(2, 3, {}, {.title = "two positions", .caption = "F=1 B=2"});
  const auto n = static_cast<std::size_t>(trace.num_ops());
  trace.strings.push_back("rail 0");
  trace.cost_level = std::vector<std::uint8_t>(n, 2);
  trace.expected_start_ns = std::vector<std::int64_t>(n, 7);
  trace.communicating_ns = std::vector<std::int64_t>(n, 1);
  trace.idle_begin = std::vector<std::int64_t>{0, 1, 2};
  trace.idle = std::vector<IdleSpan>{
      {.begin = 3000, .end = 3100, .op = {2}, .cause = IdleCause::Communication},
      {.begin = 0, .end = 1100, .op = {9}, .cause = IdleCause::Warmup}};
  trace.memory_parts = {"parameters", "activations"};
  trace.memory_begin = std::vector<std::int64_t>{0, 2, 3};
  trace.memory_time = std::vector<std::int64_t>{0, 500, 0};
  trace.memory_bytes = std::vector<std::int64_t>{10, 0, 10, 5, 10, 1};
  trace.links = std::vector<TraceLink>{
      {.name = static_cast<TraceString>(trace.strings.size()) - 1, .bytes_per_second = 25}};
  trace.link_begin = std::vector<std::int64_t>{0, 2};
  trace.link_samples =
      std::vector<LinkSample>{{.time = 0, .load_ppm = 0}, {.time = 10, .load_ppm = 1'000'000}};
  trace.row_class = std::vector<std::int32_t>{1, 0};
  return trace;
}

TEST(Trace, NamesAreRegeneratedFromTheColumns) {
  const auto timed = one_f_one_b(2, 2);
  const Trace trace = make_trace(timed.schedule, timed.start, timed.end);
  ASSERT_EQ(trace.num_ops(), timed.schedule.num_ops());
  for (OpId id{0}; id.value < trace.num_ops(); ++id.value) {
    EXPECT_EQ(op_name(trace, id), to_text(timed.schedule, id));
    EXPECT_EQ(trace.row_of(id), timed.schedule.row_of(id));
  }
  EXPECT_EQ(row_name(trace, {1}), "position 1");
}

TEST(Trace, NamesOverlapsWithBothMicrobatches) {
  Schedule schedule;
  schedule.children = {compute_op(OpKind::Forward, {0}, {3}),
                       compute_op(OpKind::Backward, {7}, {1})};
  schedule.ops = {Op{.kind = OpKind::Overlap, .child = 0}};
  schedule.end_row();
  const std::vector<Nanoseconds> start{{0}}, end{{5}};
  EXPECT_EQ(op_name(make_trace(schedule, start, end), {0}), "(0F3;7B1)OVERLAP_F_B");
}

TEST(Trace, TakesTwentyEightBytesPerOp) {
  const Trace trace = one_f_one_b_trace(4, 2000, {}, {.waits = false});
  const std::string path = temporary("size.trace");
  ASSERT_TRUE(write_trace(trace, path));
  const double per_op = static_cast<double>(bytes_of(path).size()) / trace.num_ops();
  EXPECT_GE(per_op, 28.0);
  EXPECT_LT(per_op, 28.2);
  std::remove(path.c_str());
}

TEST(Trace, OpsOfOneStreamThatOverlapGetLanesOfTheirOwn) {
  Schedule schedule;
  for (int i = 0; i < 3; ++i) {
    schedule.ops.push_back({.kind = OpKind::Send, .stream = Stream::P2p});
  }
  schedule.end_row();
  const std::vector<Nanoseconds> start{{0}, {5}, {10}}, end{{10}, {15}, {20}};
  const Trace trace = make_trace(schedule, start, end);
  ASSERT_EQ(trace.slots, 3);  // compute, p2p, p2p 2
  EXPECT_EQ(trace.lane_of({0}), 1);
  EXPECT_EQ(trace.lane_of({1}), 2);
  EXPECT_EQ(trace.lane_of({2}), 1);
  EXPECT_EQ(lane_name(trace, 2), "p2p 2");
}

TEST(TraceFile, ReadsBackWhatWasWritten) {
  const Trace trace = full_trace();
  const std::string path = temporary("round.trace"), again = temporary("again.trace");
  ASSERT_TRUE(write_trace(trace, path));
  EXPECT_TRUE(is_trace_file(path));
  const Result<Trace> read = read_trace(path);
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_TRUE(write_trace(read.value(), again));
  EXPECT_EQ(bytes_of(path), bytes_of(again));
  EXPECT_EQ(read.value().title, "two positions");
  EXPECT_EQ(read.value().schedule_hash, trace.schedule_hash);
  EXPECT_EQ(read.value().memory_parts, trace.memory_parts);
  EXPECT_TRUE(std::ranges::equal(read.value().idle, trace.idle));
  EXPECT_TRUE(std::ranges::equal(read.value().waits, trace.waits));
  EXPECT_TRUE(std::ranges::equal(read.value().row_class, trace.row_class));
  EXPECT_EQ(op_name(read.value(), {3}), op_name(trace, {3}));
  std::remove(path.c_str());
  std::remove(again.c_str());
}

std::string error_of(const std::string& path) {
  const Result<Trace> read = read_trace(path);
  return read ? std::string("read") : read.error().message.substr(path.size() + 2);
}

TEST(TraceFile, SaysWhatIsWrongInOneLine) {
  const std::string path = temporary("bad.trace");
  EXPECT_EQ(error_of(path), "cannot read: No such file or directory");
  put(path, "");
  EXPECT_EQ(error_of(path), "not a trace file");
  put(path, std::string(200, 'x'));
  EXPECT_EQ(error_of(path), "not a trace file");
  ASSERT_TRUE(write_trace(full_trace(), path));
  const std::string good = bytes_of(path);
  std::string bad = good;
  bad[8] = 9;  // version
  put(path, bad);
  EXPECT_EQ(error_of(path), "trace of version 9, this program reads version 1");
  put(path, good.substr(0, good.size() - 1));
  EXPECT_EQ(error_of(path), "the file is cut short or too long");
  std::remove(path.c_str());
}

TEST(TraceFile, RefusesTracesThatBreakTheirPromises) {
  const std::string path = temporary("lies.trace");
  const auto refuse = [&](auto spoil) {
    Trace trace = full_trace();
    spoil(trace);
    EXPECT_TRUE(write_trace(trace, path));
    return error_of(path);
  };
  EXPECT_EQ(refuse([](Trace&) {}), "read");
  EXPECT_EQ(refuse([](Trace& t) {
              std::vector<std::int64_t> end(t.end_ns.begin(), t.end_ns.end());
              end[1] = t.start_ns[1] - 1;
              t.end_ns = end;
            }),
            "op 1: ends before it starts");
  EXPECT_EQ(refuse([](Trace& t) {
              std::vector<std::int64_t> end(t.end_ns.begin(), t.end_ns.end());
              end[4] = t.end.value + 1;
              t.end_ns = end;
            }),
            "op 4: lies outside the step");
  EXPECT_EQ(refuse([](Trace& t) {
              std::vector<std::int32_t> op_class(t.op_class.begin(), t.op_class.end());
              op_class[0] = static_cast<std::int32_t>(t.classes.size());
              t.op_class = op_class;
            }),
            "an op of no class");
  EXPECT_EQ(refuse([](Trace& t) {
              t.row_begin = std::vector<std::int64_t>{0, 99999, 3};
            }),
            "row_begin 2: offset falls");
  EXPECT_EQ(refuse([](Trace& t) { t.strings.clear(); }), "link 0: no such name");
  EXPECT_EQ(refuse([](Trace& t) { t.memory_parts.pop_back(); }),
            "memory_bytes: not one number per sample and part");
  const auto waiting = [&](std::int64_t ns) {
    return refuse(
        [&](Trace& t) { t.communicating_ns = std::vector<std::int64_t>(t.start_ns.size(), ns); });
  };
  EXPECT_EQ(waiting(1), "read");
  EXPECT_EQ(waiting(-1), "op 0: waits for less than no time");
  EXPECT_EQ(waiting(std::int64_t{1} << 62), "the step's times are out of range");
  EXPECT_EQ(refuse([](Trace& t) {
              std::vector<std::int32_t> waits(t.waits.begin(), t.waits.end());
              waits[0] = t.num_ops();
              t.waits = waits;
            }),
            "a wait for no op");
  EXPECT_EQ(refuse([](Trace& t) {
              std::vector<IdleSpan> idle(t.idle.begin(), t.idle.end());
              idle[0].end = t.end.value + 1;
              t.idle = idle;
            }),
            "idle span 0: overlaps another or lies outside the step");
  const auto of_classes = [&](std::vector<std::int32_t> classes) {
    return refuse([&](Trace& t) { t.row_class = std::move(classes); });
  };
  EXPECT_EQ(of_classes({0}), "row_class: not one number for every row");
  EXPECT_EQ(of_classes({0, 2}), "a row of no class");
  EXPECT_EQ(of_classes({-1, 0}), "a row of no class");
  EXPECT_EQ(of_classes({0, 0}), "read");  // as many ops on both positions
  const auto of_experts = [&](std::vector<std::int32_t> shape, std::vector<std::int32_t> layers,
                              std::vector<std::int64_t> rows) {
    return refuse([&](Trace& t) {
      t.expert_shape = std::move(shape);
      t.expert_layers = std::move(layers);
      t.expert_steps = std::vector<std::int32_t>{4};
      t.expert_rows = std::move(rows);
    });
  };
  EXPECT_EQ(of_experts({2, 1}, {0, 3}, {1, 2, 3, 4}), "read");
  EXPECT_EQ(of_experts({2, 3}, {0, 3}, {1, 2, 3, 4}),
            "experts: their number is not one that their ranks divide");
  EXPECT_EQ(of_experts({2, 1}, {3, 0}, {1, 2, 3, 4}), "experts: layers do not ascend");
  EXPECT_EQ(of_experts({2, 1}, {0, 3}, {1, 2, 3}),
            "experts: not a number of rows for every step, layer and expert");
  EXPECT_EQ(of_experts({2, 1}, {0, 3}, {1, 2, 3, -4}), "experts: less than no rows");
  std::remove(path.c_str());
}

TEST(Trace, RowsOfOneClassHaveAsManyOps) {
  Schedule schedule;
  for (const std::size_t ops : {1U, 2U}) {
    schedule.ops.resize(schedule.ops.size() + ops, {.kind = OpKind::Forward});
    schedule.end_row();
  }
  const std::vector<Nanoseconds> start{{0}, {0}, {5}}, end{{5}, {5}, {9}};
  EXPECT_EQ(trace_fault(make_trace(schedule, start, end, {.row_class = {0, 1}})), "");
  EXPECT_EQ(trace_fault(make_trace(schedule, start, end, {.row_class = {1, 1}})),
            "row 1: has other ops than those of its class");
}

// Any byte of the head and of the texts may be anything: the reader answers, and does not crash.
TEST(TraceFile, SurvivesEveryByteOfItsTablesBeingWrong) {
  const std::string path = temporary("fuzz.trace");
  ASSERT_TRUE(write_trace(full_trace(), path));
  const std::string good = bytes_of(path);
  std::int64_t refused = 0;
  for (std::size_t i = 0; i < good.size(); i += (i < 1100 ? 1 : 7)) {
    for (const int flip : {0x80, 0xff}) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ flip);
      put(path, bad);
      const Result<Trace> read = read_trace(path);
      if (!read) {
        ++refused;
        EXPECT_EQ(read.error().message.find('\n'), std::string::npos);
        continue;
      }
      std::size_t letters = 0;  // reading every name touches every table
      for (OpId id{0}; id.value < read.value().num_ops(); ++id.value) {
        letters += op_name(read.value(), id).size();
      }
      EXPECT_GT(letters, 0u);
    }
  }
  EXPECT_GT(refused, 500);
  std::remove(path.c_str());
}

}  // namespace
}  // namespace rehearse
