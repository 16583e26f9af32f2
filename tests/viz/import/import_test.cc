// SPDX-License-Identifier: Apache-2.0
// Foreign files: what a profiler's file becomes, and what is said of a broken one.
//
// kineto_sample.json has the shape of PyTorch's profiler files (keys as in kineto's
// output_json.cpp); it was written by hand, its times are made up.
#include "viz/import/import.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/viz/picture/pipeline_fixture.h"
#include "viz/export/export.h"
#include "viz/import/import_events.h"
#include "viz/import/json_scanner.h"
#include "viz/window/describe.h"
#include "viz/window/geometry.h"
#include "viz/window/session.h"

namespace rehearse::viz {
namespace {

TEST(Kineto, DeviceEventsBecomeLanesOfTheirStreams) {
  const Result<Trace> read = load_trace("tests/data/viz/kineto_sample.json");
  ASSERT_TRUE(read) << read.error().message;
  const Trace& trace = read.value();
  EXPECT_EQ(trace.label, TraceLabel::Measured);
  ASSERT_EQ(trace.num_rows(), 1);
  EXPECT_EQ(row_name(trace, {0}), "rank 3");
  ASSERT_EQ(trace.num_lanes(), 2);  // stream 7 computes most: it is the first lane
  EXPECT_EQ(lane_name(trace, 0), "stream 7 ");
  EXPECT_EQ(lane_name(trace, 1), "stream 20 ");
  ASSERT_EQ(trace.num_ops(), 5);  // host events are left out
  // Times in ns from the first device event, from decimal microseconds of 16 digits.
  EXPECT_EQ(op_name(trace, {0}), "sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64");
  EXPECT_EQ(trace.start_ns[0], 0);
  EXPECT_EQ(trace.end_ns[0], 100'500);
  EXPECT_EQ(trace.class_of({1}).kind, OpKind::AllReduce);
  EXPECT_EQ(trace.start_ns[1], 30'000);
  EXPECT_EQ(trace.lane_of({1}), 1);
  EXPECT_EQ(trace.start_ns[2], 100'500);  // touches the op before it: the same lane
  EXPECT_EQ(trace.lane_of({2}), 0);
  EXPECT_EQ(trace.class_of({3}).kind, OpKind::Fetch);
  EXPECT_EQ(trace.class_of({4}).kind, OpKind::Send);
  EXPECT_EQ(trace.end.value, 132'125);
}

// The profiler numbers its steps, whatever kernels they run: ProfilerStep#4, on host and device.
TEST(Kineto, StepsAreCountedByTheProfilersOwnMarks) {
  const auto text = [](std::string_view marks) {
    return R"({"deviceProperties": [{"name": "x"}], "traceEvents": [)" + std::string(marks) +
           R"({"ph": "X", "cat": "kernel", "name": "flash_fwd", "pid": 0, "tid": 7,
               "ts": 0.0, "dur": 5.0}]})";
  };
  const auto mark = [](int step) {
    return fmt::format(R"({{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#{}",
                            "pid": 9, "tid": 9, "ts": {}.0, "dur": 9.0}},)",
                       step, step * 10);
  };
  const std::string path = testing::TempDir() + "steps" + std::to_string(getpid()) + ".json";
  for (const auto& [marks, steps] :
       {std::pair{std::string(), 0}, {mark(4), 1}, {mark(4) + mark(4) + mark(5), 2}}) {
    std::ofstream(path) << text(marks);
    const Result<Trace> read = load_trace(path);
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(read.value().profiled_steps, steps);
  }
  std::filesystem::remove(path);
}

// kineto_pipeline: four ranks, 1F1B, 8 micro-batches (make_kineto.py says what is in it).
TEST(Kineto, AFolderOfRanksIsOneTraceOnOneClock) {
  const Result<Trace> read = load_trace("tests/data/viz/kineto_pipeline");
  if (!read && read.error().message.find("no zlib") != std::string::npos)
    GTEST_SKIP() << "SKIPPED: built without zlib";
  ASSERT_TRUE(read) << read.error().message;
  const Trace& trace = read.value();
  EXPECT_EQ(trace.title, "kineto_pipeline");
  ASSERT_EQ(trace.num_rows(), 4);
  EXPECT_EQ(row_name(trace, {3}), "rank 3");
  EXPECT_EQ(lane_name(trace, 0), "pipeline");
  EXPECT_EQ(lane_name(trace, 1), "stream 7 ");
  EXPECT_EQ(trace.microbatches, 8);
  // Rank 1's first forward waits for rank 0's: files that begin later are not moved to time 0.
  const TraceIndex index(trace);
  const LaneItems& first = index.lane(0).items;
  const LaneItems& second = index.lane(trace.slots).items;
  ASSERT_EQ(first.count, 16);  // the ranges that torch's pipelining names, and nothing else
  EXPECT_EQ(op_name(trace, {first.op(0)}), "0F0");
  EXPECT_EQ(op_name(trace, {second.op(0)}), "1F0");
  EXPECT_EQ(second.start(0), first.end(0) + 40'000);
  // A collective's kernel: what it moves, in which group.
  int reductions = 0;
  for (OpId op{0}; op.value < trace.num_ops(); ++op.value) {
    const TraceClass& c = trace.class_of(op);
    if (c.kind != OpKind::AllReduce) continue;
    ++reductions;
    EXPECT_EQ(c.bytes, 50331648 * 2);  // BFloat16
    EXPECT_EQ(trace.text(c.group), "dp");
  }
  EXPECT_EQ(reductions, 4);
}

TEST(Kineto, AProfileLiesBesideAPredictionOpForOp) {
  Result<Trace> read = load_trace("tests/data/viz/kineto_pipeline");
  if (!read) GTEST_SKIP() << "SKIPPED: " << read.error().message;
  std::vector<Document> documents;
  documents.emplace_back(fixture::one_f_one_b_trace(
      4, 8, {.forward = 1'000'000, .backward = 2'000'000, .transfer = 40'000}));
  documents.emplace_back(std::move(read).value());
  const Session session(std::move(documents));
  EXPECT_FALSE(session.same_schedule());
  ASSERT_TRUE(session.corresponds());
  const Trace& predicted = session.at(0).trace();
  int matched = 0;
  for (OpId op{0}; op.value < predicted.num_ops(); ++op.value) {
    const OpId there = session.counterpart({0, op});
    if (!there) continue;
    ++matched;
    EXPECT_EQ(op_name(session.at(1).trace(), there), op_name(predicted, op));
    EXPECT_EQ(session.counterpart({1, there}), op);
    const std::vector<Fact> facts = describe_op(session, {0, op}, false);
    EXPECT_EQ(facts.back().name, "measured");
  }
  EXPECT_EQ(matched, 4 * 8 * 2);
  // Rank by rank, and the errors can be coloured.
  ViewState state = initial_state(session, 1280, 800);
  const Geometry at = geometry(session, state);
  EXPECT_EQ(at.rows[0].document, 0);
  EXPECT_EQ(at.rows[1].document, 1);
  EXPECT_EQ(at.rows[0].row, at.rows[1].row);
  state = reduce(session, state, {.type = Event::Type::Key, .key = Key::D, .shift = true});
  EXPECT_EQ(state.color_by, ColorBy::Difference);
}

TEST(Kineto, NamesThatAreNoPipelineOpAreNone) {
  EXPECT_TRUE(pipeline_op("PP:12W3"));
  for (const char* name : {"2F3", "PP:", "PP:F3", "PP:2F", "PP:2X3", "PP:2SEND_F3", "PP:2F3x",
                           "PP:-2F3", "PP:99999999999F3"})
    EXPECT_FALSE(pipeline_op(name)) << name;
}

TEST(Import, SaysWhatIsWrongWithAFolder) {
  const std::string folder = testing::TempDir() + "profiles" + std::to_string(getpid());
  std::filesystem::create_directory(folder);
  const auto error = [&folder] {
    const Result<Trace> read = load_trace(folder);
    return read ? std::string("read") : read.error().message.substr(folder.size());
  };
  EXPECT_EQ(error(), ": holds no .json or .json.gz");
  const auto write = [&folder](const char* name, const char* text) {
    std::ofstream(folder + "/" + name) << text;
  };
  write("a.json", R"([{"ph":"X","name":"x","pid":0,"tid":0,"ts":0,"dur":5}])");
  EXPECT_EQ(error(), "read");
  write("b.json", R"({"baseTimeNanoseconds":1760000000000000000,
                      "traceEvents":[{"ph":"X","name":"x","pid":0,"tid":0,"ts":0,"dur":5}]})");
  EXPECT_EQ(error(), ": the files are not of one run: their times are days apart");
  write("b.json", "{");
  EXPECT_EQ(error(), "/b.json: byte 1: a string was expected");
  std::filesystem::remove_all(folder);
}

TEST(Kineto, GzippedFilesReadAlike) {
  const Result<Trace> plain = load_trace("tests/data/viz/kineto_sample.json");
  const Result<Trace> packed = load_trace("tests/data/viz/kineto_sample.json.gz");
  if (!packed && packed.error().message.find("no zlib") != std::string::npos)
    GTEST_SKIP() << "SKIPPED: built without zlib";
  ASSERT_TRUE(packed) << packed.error().message;
  EXPECT_TRUE(std::ranges::equal(plain.value().start_ns, packed.value().start_ns));
  EXPECT_EQ(plain.value().strings, packed.value().strings);
}

TEST(Chrome, NestedAndPairedEventsGetLanesOfTheirOwn) {
  const Result<Trace> read = import_chrome(R"([
    {"ph":"B","name":"outer","pid":1,"tid":1,"ts":0},
    {"ph":"X","name":"inner","pid":1,"tid":1,"ts":2,"dur":3},
    {"ph":"E","pid":1,"tid":1,"ts":10},
    {"ph":"X","name":"later \u00b5\n","pid":1,"tid":1,"ts":"10","dur":1e1},
    {"ph":"X","name":"other","pid":"two","tid":5,"ts":-1,"dur":0.5}
  ])",
                                           "text");
  ASSERT_TRUE(read) << read.error().message;
  const Trace& trace = read.value();
  ASSERT_EQ(trace.num_rows(), 2);
  EXPECT_EQ(row_name(trace, {1}), "two");
  EXPECT_EQ(op_name(trace, {0}), "outer");
  EXPECT_EQ(trace.start_ns[0], 1000);  // the step begins with "other"
  EXPECT_EQ(trace.end_ns[0], 11'000);
  EXPECT_EQ(trace.class_of({0}).slot, 0);
  EXPECT_EQ(trace.class_of({1}).slot, 1);
  EXPECT_EQ(lane_name(trace, 1), "thread 1 +1");
  EXPECT_EQ(trace.class_of({2}).slot, 0);
  EXPECT_EQ(trace.end_ns[2], 21'000);
}

TEST(Import, SaysWhatIsWrongAndWhere) {
  const auto error = [](std::string_view text) {
    const Result<Trace> read = import_chrome(text, "f");
    return read ? std::string("read") : read.error().message;
  };
  EXPECT_EQ(error(""), "f: byte 0: an object was expected");
  EXPECT_EQ(error("{"), "f: byte 1: a string was expected");
  EXPECT_EQ(error("{}"),
            "f: byte 2: \"traceEvents\" is missing: no profile, and no trace; "
            "rehearse simulate SCENARIO --trace FILE makes one");
  EXPECT_EQ(error("[]"), "f: no events that take time");
  EXPECT_EQ(error("[] x"), "f: byte 3: something follows the end");
  EXPECT_EQ(error("[{\"ph\":\"X\",\"ts\":\"soon\"}]"), "f: byte 22: a number was expected");
  EXPECT_EQ(error("[{\"ph\":\"X\" \"ts\":1}]"), "f: byte 11: ',' or '}' was expected");
  EXPECT_EQ(error("[{\"ph\":\"X\",\"ts\":1e300,\"dur\":1}]"), "f: byte 21: a number is too large");
  EXPECT_EQ(error("[{\"ph\":\"X\",\"ts\":0,\"dur\":1e14}]"),
            "f: the step's times are out of range");
  EXPECT_EQ(error("[{\"name\":\"open"), "f: byte 14: a string has no end");
  EXPECT_EQ(error("{\"rehearse\":{\"slots\":1,\"rows\":[{}],\"lanes\":[{}]},\"traceEvents\":["
                  "{\"ph\":\"X\",\"pid\":7,\"tid\":0,\"ts\":0,\"args\":{\"op\":0,\"end_ns\":5,"
                  "\"kind\":\"F\"}}]}"),
            "f: op 0: no such row, or out of order");
}

TEST(Import, SaysWhatAFileIsNot) {
  const std::string path = testing::TempDir() + "foreign" + std::to_string(getpid());
  const auto error = [&path](const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
    const Result<Trace> read = load_trace(path);
    return read ? std::string("read") : read.error().message.substr(path.size() + 2);
  };
  EXPECT_EQ(error("hello"), "neither a trace of rehearse nor Chrome JSON");
  EXPECT_EQ(error(""), "neither a trace of rehearse nor Chrome JSON");
  EXPECT_EQ(error("rehtrace"), "not a trace file");
  const std::string gzip = error("\x1f\x8b broken");
  EXPECT_TRUE(gzip == "the gzip stream is broken or cut short" ||
              gzip.find("no zlib") != std::string::npos)
      << gzip;
  std::remove(path.c_str());
  EXPECT_EQ(load_trace("/nowhere").error().message, "/nowhere: no such file");
}

// Every prefix and every flipped byte of a file is answered, whatever the answer.
TEST(Import, SurvivesBrokenFiles) {
  std::ifstream in("tests/data/viz/kineto_sample.json");
  const std::string good{std::istreambuf_iterator<char>(in), {}};
  int refused = 0, taken = 0;
  const auto feed = [&](const std::string& text) {
    const Result<Trace> read = import_chrome(text, "f");
    ++(read ? taken : refused);
    EXPECT_TRUE(read || read.error().message.find('\n') == std::string::npos);
  };
  for (std::size_t i = 0; i < good.size(); i += 5) {
    feed(good.substr(0, i));
    std::string bad = good;
    bad[i] = static_cast<char>("{}[]\",:x0\\"[i % 10]);
    feed(bad);
  }
  EXPECT_GT(refused, 500);
  EXPECT_GT(taken, 50);
}

TEST(JsonScanner, ReadsDecimalTimesToTheNanosecond) {
  const auto micros = [](std::string_view text) {
    JsonScanner in(text);
    const std::int64_t time = in.micros();
    EXPECT_TRUE(in.ok()) << text;
    return time;
  };
  EXPECT_EQ(micros("0"), 0);
  EXPECT_EQ(micros("1.5"), 1500);
  EXPECT_EQ(micros("-1.5"), -1500);
  EXPECT_EQ(micros("1689153433512000.125"), 1689153433512000125);
  EXPECT_EQ(micros("1.6891534335120001e15"), 1689153433512000100);
  EXPECT_EQ(micros("12345e-4"), 1234);
  EXPECT_EQ(micros("\"7.001\""), 7001);
  EXPECT_EQ(micros("0.00000000000000000000001"), 0);
}

TEST(JsonScanner, ResolvesEscapes) {
  JsonScanner in(R"("a\"b\\\/\n\u00e9\ud83d\ude00\ud800x")");
  EXPECT_EQ(in.string(), "a\"b\\/\n\xC3\xA9\xF0\x9F\x98\x80\xEF\xBF\xBDx");
  EXPECT_TRUE(in.ok());
  JsonScanner bad(R"("\q")");
  bad.string();
  EXPECT_FALSE(bad.ok());
}

}  // namespace
}  // namespace rehearse::viz
