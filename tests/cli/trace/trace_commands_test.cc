// SPDX-License-Identifier: Apache-2.0
// render, export, view and compare as people run them: exit codes, files, one line of error.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/viz/picture/full_trace.h"

namespace rehearse {
namespace {

struct Outcome {
  int exit_code = -1;
  std::string out;  // both outputs together
};

Outcome run(const std::string& arguments) {
  const std::string command = std::string(REHEARSE_COMMAND) + " " + arguments + " 2>&1";
  Outcome result;
  std::FILE* pipe = popen(command.c_str(), "r");
  std::array<char, 4096> buffer{};
  while (pipe != nullptr) {
    const std::size_t size = std::fread(buffer.data(), 1, buffer.size(), pipe);
    if (size == 0) break;
    result.out.append(buffer.data(), size);
  }
  const int status = pipe == nullptr ? -1 : pclose(pipe);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return result;
}

std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class TraceCommands : public testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::path(testing::TempDir()) / ("trace_commands" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
    ASSERT_TRUE(write_trace(viz::fixture::full_trace(4, 6), file("a.trace")));
    const auto timed =
        viz::fixture::one_f_one_b(4, 6, {.forward = 1201, .backward = 2003, .transfer = 97});
    ASSERT_TRUE(write_trace(
        make_trace(timed.schedule, timed.start, timed.end, {.label = TraceLabel::Measured}),
        file("b.trace")));
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string file(const std::string& name) const { return (folder_ / name).string(); }
  void expect_refused(const std::string& arguments, const std::string& line) {
    const Outcome refused = run(arguments);
    EXPECT_EQ(refused.exit_code, 2) << arguments;
    EXPECT_EQ(refused.out, "rehearse: " + line + "\n");
  }

  std::filesystem::path folder_;
};

TEST_F(TraceCommands, RenderWritesPicturesAndText) {
  const Outcome done = run("render " + file("a.trace") + " --svg " + file("a.svg") + " --png " +
                           file("a.png") + " --text");
  EXPECT_EQ(done.exit_code, 0) << done.out;
  EXPECT_EQ(bytes_of(file("a.svg")).substr(0, 5), "<?xml");
  EXPECT_EQ(bytes_of(file("a.png")).substr(1, 3), "PNG");
  EXPECT_NE(done.out.find("bubbles: "), std::string::npos);
  run("render " + file("a.trace") + " --svg " + file("again.svg"));
  EXPECT_EQ(bytes_of(file("a.svg")), bytes_of(file("again.svg")));
}

TEST_F(TraceCommands, RenderCutsTimeAndRanks) {
  EXPECT_EQ(
      run("render " + file("a.trace") + " --svg " + file("a.svg") + " --range 2:9us --ranks 8-16")
          .exit_code,
      0);
  const std::string picture = bytes_of(file("a.svg"));
  EXPECT_NE(picture.find("rank 8 (x8)"), std::string::npos);
  EXPECT_NE(picture.find("rank 16 (x8)"), std::string::npos);
  EXPECT_EQ(picture.find("rank 24 (x8)"), std::string::npos);
  EXPECT_EQ(picture.find("rank 0 (x8)"), std::string::npos);
  EXPECT_NE(picture.find("shown: 2.00 µs to 9.00 µs"), std::string::npos);
}

// Two traces: lanes, lags and the causes that explain prints, in text and picture alike.
TEST_F(TraceCommands, RenderLaysTwoTracesSideBySide) {
  const std::string both = file("a.trace") + " " + file("b.trace");
  const Outcome done = run("render " + both + " --text --svg " + file("two.svg"));
  EXPECT_EQ(done.exit_code, 0) << done.out;
  const std::string picture = bytes_of(file("two.svg"));
  const Outcome causes = run("explain " + both + " --svg " + file("why.svg"));
  EXPECT_EQ(causes.exit_code, 0) << causes.out;
  const std::string waterfall = bytes_of(file("why.svg"));
  int compared = 0;
  for (std::size_t at = waterfall.find('>'); at != std::string::npos;
       at = waterfall.find('>', at + 1)) {
    const std::string words = waterfall.substr(at + 1, waterfall.find('<', at) - at - 1);
    const bool difference = words.size() > 3 && (words[0] == '+' || words[0] == '-');
    if (!difference) continue;
    EXPECT_NE(picture.find(">" + words + "<"), std::string::npos) << words;
    EXPECT_NE(done.out.find(words), std::string::npos) << words;
    ++compared;
  }
  EXPECT_GE(compared, 1) << waterfall;
  EXPECT_NE(done.out.find("measured: "), std::string::npos) << done.out;
  EXPECT_EQ(run("render " + both + " --align wall --png " + file("two.png")).exit_code, 0);
  const Outcome op = run("render " + both + " --align 1F2 --text");
  EXPECT_NE(op.out.find("1F2 begins together, on rank 8 (x8)"), std::string::npos) << op.out;
}

TEST_F(TraceCommands, RenderDrawsManyRanks) {
  const Outcome heat =
      run("render " + file("a.trace") + " --heat idle --text --png " + file("heat.png"));
  EXPECT_EQ(heat.exit_code, 0) << heat.out;
  EXPECT_NE(heat.out.find("rank 31 "), std::string::npos) << heat.out;
  EXPECT_EQ(bytes_of(file("heat.png")).substr(1, 3), "PNG");
  const Outcome waited =
      run("render " + file("a.trace") + " --stragglers --text --svg " + file("waited.svg"));
  EXPECT_EQ(waited.exit_code, 0) << waited.out;
  EXPECT_NE(waited.out.find("others waited"), std::string::npos) << waited.out;
}

TEST_F(TraceCommands, ExportedChromeJsonDrawsTheSamePicture) {
  EXPECT_EQ(run("export " + file("a.trace") + " --to chrome " + file("a.json")).exit_code, 0);
  EXPECT_EQ(run("render " + file("a.trace") + " --svg " + file("a.svg")).exit_code, 0);
  EXPECT_EQ(run("render " + file("a.json") + " --svg " + file("b.svg")).exit_code, 0);
  EXPECT_EQ(bytes_of(file("a.svg")), bytes_of(file("b.svg")));
  EXPECT_EQ(run("export " + file("a.json") + " --to perfetto " + file("a.pftrace")).exit_code, 0);
  EXPECT_EQ(run("export " + file("a.trace") + " --to perfetto " + file("b.pftrace")).exit_code, 0);
  EXPECT_EQ(bytes_of(file("a.pftrace")), bytes_of(file("b.pftrace")));
}

TEST_F(TraceCommands, CompareSaysWhatDiffers) {
  const Outcome same = run("compare " + file("a.trace") + " " + file("a.trace"));
  EXPECT_EQ(same.exit_code, 0);
  EXPECT_NE(same.out.find("no op differs"), std::string::npos) << same.out;
  const Outcome other = run("compare " + file("a.trace") + " " + file("b.trace"));
  EXPECT_NE(other.out.find("F x24                          24.0 us   28.8 us     +20.0 %"),
            std::string::npos)
      << other.out;
  const Outcome json = run("compare " + file("a.trace") + " " + file("b.trace") + " --json");
  EXPECT_NE(json.out.find("\"schema\": \"rehearse.comparison/1\""), std::string::npos);
}

// A run cannot time what ops wait for inside themselves: compare shows what both sides know, and
// the predicted waits beside it. What one rank holds is the plan's on both sides.
TEST_F(TraceCommands, CompareHoldsLikeAgainstLike) {
  const std::string plan = "tests/data/findings/c04_cp4_tp2.json";
  const std::string of = "run " + plan + " --device cpu --data README.md --steps 2 --trace ";
  ASSERT_EQ(run(of + file("p.trace") + " --dry-run").exit_code, 0);
  ASSERT_EQ(run(of + file("m.trace")).exit_code, 0);
  const std::string both = "compare " + file("p.trace") + " " + file("m.trace");
  const Outcome text = run(both);
  const auto has = [&](const std::string& words) {
    return text.out.find(words) != std::string::npos;
  };
  EXPECT_TRUE(has("bubbles between ops ")) << text.out;
  EXPECT_TRUE(has("waits inside ops ")) << text.out;
  EXPECT_TRUE(has("planned for rank 0 (x8) ")) << text.out;
  EXPECT_TRUE(has("of memory, by the plan of both")) << text.out;
  EXPECT_FALSE(has("memory of rank")) << text.out;
  const nlohmann::json json = nlohmann::json::parse(run(both + " --json").out);
  const auto &a = json["a"], &b = json["b"];
  EXPECT_GT(a["inside_ops_ratio"].get<double>(), 0.3);  // tp 2 x cp 4 of a tiny model
  EXPECT_NEAR(a["inside_ops_ratio"].get<double>() + a["between_ops_ratio"].get<double>(),
              a["bubble_ratio"].get<double>(), 1e-9);
  EXPECT_TRUE(b["inside_ops_ratio"].is_null());
  EXPECT_LT(a["between_ops_ratio"].get<double>(), 0.2);
  EXPECT_EQ(a["memory"], "predicted");
  EXPECT_EQ(b["memory"], "planned");
  bool sends = false;
  for (const auto& kind : json["kinds"]) sends |= kind["bytes"].is_number();
  EXPECT_TRUE(sends) << json["kinds"];
  EXPECT_NE(run("render " + file("m.trace") + " --text").out.find("waits inside ops not measured"),
            std::string::npos);
}

TEST_F(TraceCommands, ViewReplaysAScriptWithoutAWindow) {
  std::ofstream(file("script")) << "key 2\nkey C\n";
  const std::string both =
      "view " + file("a.trace") + " " + file("b.trace") + " --script " + file("script");
  EXPECT_EQ(run(both + " --svg " + file("v.svg")).exit_code, 0);
  EXPECT_NE(bytes_of(file("v.svg")).find("measured"), std::string::npos);
}

TEST_F(TraceCommands, BadInputIsOneLineAndExitTwo) {
  const std::string trace = file("a.trace");
  expect_refused("render " + trace,
                 "render: say what to make: --svg FILE, --png FILE, --html FILE or --text");
  expect_refused("render " + trace + " " + trace + " " + trace + " --text",
                 "render: one trace, or two to lay side by side");
  expect_refused("render " + trace + " " + trace + " --text --heat idle",
                 "render: two traces: not --heat, --stragglers, --experts or --color-by");
  expect_refused("render " + trace + " --text --align wall",
                 "render: --align lays two traces side by side; this is one");
  expect_refused(
      "render " + trace + " " + trace + " --text --align 9F9",
      "render: --align 9F9: neither step nor wall, and no op of that name in both traces");
  expect_refused("render " + trace + " --text --heat idle --stragglers",
                 "render: one of --heat, --stragglers and --experts");
  expect_refused("render " + trace + " --text --heat resource",
                 "render: --heat resource: " + trace + ": no idle time of that cause");
  expect_refused("render " + trace + " --text --heat excess",
                 "render: --heat excess: " + trace +
                     ": no ranks that do the same: a measured trace of several replicas has them");
  expect_refused("render " + trace + " --text --heat idle --color-by rank",
                 "render: --color-by is of ops: not with --heat or --stragglers");
  expect_refused("render " + trace + " --text --stragglers --range 0:1ms",
                 "render: --stragglers tells of whole steps: not --range or --ranks");
  expect_refused("render " + trace + " --text --report " + trace,
                 "render: --report goes with --html");
  expect_refused("render " + trace + " --html " + file("p.html") + " --range 0:1ms",
                 "render: --html draws whole traces, for a reader to look into: not with --svg, "
                 "--png, --text, --heat, --stragglers, --experts, --range, --ranks, --align, "
                 "--width, --scale, --color-by or --dark");
  expect_refused("render /nowhere --text", "/nowhere: no such file");
  expect_refused("render /dev/zero --text", "/dev/zero: is not a regular file");
  expect_refused("render " + trace + " --text --range 5",
                 "--range: \"5\" is no range of times such as 0:50ms");
  expect_refused("render " + trace + " --text --range 3:1ms",
                 "--range: \"3:1ms\" does not end after it begins");
  expect_refused("render " + trace + " --text --ranks 5-2",
                 "--ranks: \"5-2\" is no range of ranks such as 0-15");
  expect_refused("render " + trace + " --text --ranks 999",
                 "--ranks: no row of the trace begins with a rank in 999");
  expect_refused("render " + trace + " --svg /nowhere/a.svg",
                 "/nowhere/a.svg: cannot write: No such file or directory");
  expect_refused("export " + trace + " --to excel x",
                 "export: --to: excel not in {perfetto,chrome,csv}");
  std::ofstream(file("text")) << "no trace";
  expect_refused("render " + file("text") + " --text",
                 file("text") + ": neither a trace of rehearse nor Chrome JSON");
  std::string half = bytes_of(trace);
  half.resize(half.size() / 2);
  std::ofstream(file("half.trace"), std::ios::binary) << half;
  expect_refused("compare " + trace + " " + file("half.trace"),
                 file("half.trace") + ": the file is cut short or too long");
  std::ofstream(file("script")) << "key W\njump\n";
  expect_refused("view " + trace + " --script " + file("script") + " --svg x",
                 file("script") + ":2: no such event: jump");
  ASSERT_TRUE(write_trace(viz::fixture::one_f_one_b_trace(2, 2), file("c.trace")));
  const Outcome different = run("compare " + trace + " " + file("c.trace"));
  EXPECT_EQ(different.exit_code, 2);
  EXPECT_EQ(different.out.find("rehearse: " + file("c.trace") +
                               ": the two traces are of different schedules ("),
            0u);
}

}  // namespace
}  // namespace rehearse
