// SPDX-License-Identifier: Apache-2.0
// `rehearse schedule` as people run it: formats, figures, exit codes, one line per error.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

namespace rehearse {
namespace {

using nlohmann::json;

struct Outcome {
  int exit_code = -1;
  std::string out;
};
Outcome run(const std::string& arguments, const std::string& redirect = "2>/dev/null") {
  const std::string command =
      std::string(REHEARSE_COMMAND) + " schedule " + arguments + " " + redirect;
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
json report(const std::string& arguments) {
  const Outcome outcome = run(arguments + " --format json");
  EXPECT_EQ(outcome.exit_code, 0) << arguments;
  return json::parse(outcome.out, nullptr, false);
}

// docs/schedules.md: 1F1B p=4 m=8: T=33, busy 24, peaks 4, 3, 2, 1.
TEST(ScheduleCommand, ReportsTheFiguresUnderTheirNames) {
  const json r = report("--schedule 1F1B --stages 4 --microbatches 8");
  EXPECT_EQ(
      r.at("orders").at(3).dump(),
      R"(["3F0","3B0","3F1","3B1","3F2","3B2","3F3","3B3","3F4","3B4","3F5","3B5","3F6","3B6",)"
      R"("3F7","3B7"])");
  EXPECT_EQ(r.at("makespan"), 33);
  EXPECT_DOUBLE_EQ(r.at("bubble_ratio"), 9.0 / 33);
  EXPECT_DOUBLE_EQ(r.at("bubble_overhead"), 9.0 / 24);
  EXPECT_DOUBLE_EQ(r.at("span_bubble_ratio"), 9.0 / 33);
  EXPECT_EQ(r.at("peak_activations"), json({4, 3, 2, 1}));
  EXPECT_EQ(r.at("peak_activations_weighted"), json({4, 3, 2, 1}));
  EXPECT_EQ(r.at("deadlock_free"), true);
  EXPECT_EQ(r.at("hash").get<std::string>().size(), 16U);
}

// A position's times are divided by the chunks that it visits; results are in the same unit.
TEST(ScheduleCommand, DividesAPositionsTimesByItsChunks) {
  const std::string shape = "--stages 2 --microbatches 4";
  EXPECT_EQ(
      report("--schedule interleaved_1f1b --chunks 2 --times F=2,I=2,W=2 " + shape).at("makespan"),
      27);
  EXPECT_EQ(report("--schedule zb_v --times F=0.02,I=0.02,W=0.02 " + shape).at("makespan"), 0.25);
  EXPECT_EQ(report("--schedule 1f1b --times F=0,I=0,W=0 " + shape).at("bubble_ratio"), nullptr);
  // FB: an overlapped pair takes F + B where it is left out.
  const std::string pairs = "--schedule dualpipev --stages 4 --microbatches 8 --times F=2,I=2,W=2";
  EXPECT_EQ(report(pairs).at("makespan"), 54);
  EXPECT_EQ(report(pairs + ",FB=6").at("makespan"), 54);
  EXPECT_LT(report(pairs + ",FB=4").at("makespan"), 54);
}

// Interleaved, p=4 m=8 v=2, F=1 B=2 per chunk: transfers in torch's order lose time to waiting.
TEST(ScheduleCommand, ShowsWhatTheOrderOfTransfersCosts) {
  const std::string order =
      "--schedule interleaved_1f1b --stages 4 --microbatches 8 --chunks 2 --times F=2,I=2,W=2";
  for (const auto& [comm, sorted, torch] :
       {std::tuple{"0", 57.0, 67.0}, std::tuple{"0.1", 58.4, 71.0},
        std::tuple{"0.25", 60.5, 77.0}}) {
    const std::string with = order + ",comm=" + comm;
    EXPECT_NEAR(report(with).at("makespan"), sorted, 1e-9);
    EXPECT_NEAR(report(with + " --transfers producer_order").at("makespan"), torch, 1e-9);
  }
  const Outcome hangs = run("--schedule 1f1b --stages 4 --microbatches 4 --transfers naive");
  EXPECT_EQ(hangs.exit_code, 1);
  EXPECT_NE(hangs.out.find("2SEND_F1 meets 3RECV_F1"), std::string::npos) << hangs.out;
}

TEST(ScheduleCommand, WritesTorchsCsvAndTheTransfers) {
  EXPECT_EQ(run("--schedule zb_h1 --stages 2 --microbatches 2 --format csv").out,
            "0F0,0F1,0I0,0W0,0I1,0W1\n1F0,1I0,1F1,1I1,1W0,1W1\n");
  const json full = report("--schedule 1f1b --stages 2 --microbatches 1 --level full");
  EXPECT_EQ(full.at("orders").dump(),
            R"([["0F0","0SEND_F0","0RECV_B0","0B0"],["1RECV_F0","1F0","1B0","1SEND_B0"]])");
  EXPECT_TRUE(
      run("--schedule 1f1b --stages 2 --microbatches 2 --format svg").out.starts_with("<?xml"));
}

TEST(ScheduleCommand, DrawsAChartThatIsNeverTooWide) {
  const Outcome chart = run("--schedule 1f1b --stages 2 --microbatches 3 --width 60");
  EXPECT_TRUE(
      chart.out.starts_with("1f1b(p=2,m=3)\n"
                            "r0 F0--F1--........B0------F2--B1------....B2------\n"
                            "r1 ....F0--B0------F1--B1------F2--B2------........\n"))
      << chart.out;
  for (const std::string width : {"20", "37", "80", "213"}) {
    const Outcome wide =
        run("--schedule interleaved_1f1b --stages 8 --microbatches 40 --width " + width);
    std::size_t from = wide.out.find('\n') + 1;
    for (int row = 0; row < 8; ++row) {
      const std::size_t end = wide.out.find('\n', from);
      EXPECT_LE(end - from, std::stoul(width));
      from = end + 1;
    }
  }
}

TEST(ScheduleCommand, SaysInOneLineWhatIsWrong) {
  const std::map<std::string, std::string> wrong{
      {"", "schedule: give a SCENARIO, or --schedule NAME"},
      {"--schedule 1f1b --stages 4", "--microbatches: is required with --schedule"},
      {"--schedule 1f1b --microbatches 4", "--stages: is required with --schedule"},
      {"--schedule zb_h3 --stages 4 --microbatches 4",
       "--schedule: unknown schedule \"zb_h3\", the nearest known one is zb_h1"},
      {"--schedule dualpipe --stages 5 --microbatches 20",
       "--stages: dualpipe needs an even number, not 5"},
      {"--schedule interleaved_1f1b --stages 4 --microbatches 10 --group-size 4",
       "--group-size: 4 leaves a last group of 2 micro-batches, fewer than 4 positions"},
      {"--schedule 1f1b --stages 2 --microbatches 2 --times F=x",
       "--times: F: \"x\" is not 0 or a number from 1e-12 to 1e12"},
      {"--schedule 1f1b --stages 2 --microbatches 2 --times Q=1",
       "--times: \"Q=1\" is none of F=, I=, W=, comm=, FB="},
      {"--schedule 1f1b --stages 2 --microbatches 2 --times F=-1",
       "--times: F: \"-1\" is not 0 or a number from 1e-12 to 1e12"},
      {"--schedule zb_1p --stages 2 --microbatches 2 --memory-limit 0",
       "--memory-limit: it must be a number above 0, at most 1e6"},
      {"--schedule 1f1b --stages 1000000 --microbatches 1000000",
       "--microbatches: 1000000 positions with 1000000 micro-batches are 2000000.0 "
       "million ops, more than the 16.8 that are timed"},
      {"--schedule file:/nowhere.csv", "/nowhere.csv: no such file"},
  };
  for (const auto& [arguments, message] : wrong) {
    const Outcome said = run(arguments, "2>&1 >/dev/null");
    EXPECT_EQ(said.out, "rehearse: " + message + "\n");
    EXPECT_EQ(said.exit_code, 2) << arguments;
  }
}

// The answer is no: exit 1, not 2.
TEST(ScheduleCommand, SaysNoWhereAPlanNeedsMoreMemory) {
  const Outcome said =
      run("--schedule zb_1p --stages 4 --microbatches 8 --memory-limit 0.1", "2>&1 >/dev/null");
  EXPECT_EQ(said.exit_code, 1);
  EXPECT_EQ(said.out.substr(0, 26), "rehearse: --memory-limit: ");
  EXPECT_EQ(std::ranges::count(said.out, '\n'), 1);
}

TEST(ScheduleCommand, ReadsAScenarioWithoutModelOrCluster) {
  const std::string path =
      testing::TempDir() + "rehearse_schedule_" + std::to_string(getpid()) + ".json";
  std::FILE* file = std::fopen(path.c_str(), "w");
  ASSERT_NE(file, nullptr);
  std::fputs(R"({"gpus": 4, "plan": {"pipeline_parallel": 4, "schedule": "zb_h1", )"
             R"("micro_batch": 1, "global_batch": 8}})",
             file);
  std::fclose(file);
  EXPECT_EQ(report(path).at("makespan"), 27);
  EXPECT_EQ(report(path + " --set plan.schedule=1f1b").at("makespan"), 33);
  EXPECT_EQ(run(path + " --set plan.schedule=zb_h3").exit_code, 2);
  std::remove(path.c_str());
}

}  // namespace
}  // namespace rehearse
