// `rehearse check` as people run it: exit codes, and the reason on stdout.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

#include "schedules/json_reader.h"
#include "tests/schedules/fixtures.h"

namespace rehearse {
namespace {

struct Outcome {
  int exit_code = -1;
  std::string out;
};
// Both outputs together where `errors` asks for it.
Outcome run(const std::string& arguments, bool errors = false) {
  const std::string command =
      std::string(REHEARSE_COMMAND) + " " + arguments + (errors ? " 2>&1" : " 2>/dev/null");
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

const std::string kFixtures = "tests/data/schedules/";

TEST(CheckCommand, NegativeFixturesAreRefusedWhereTheyHangAndAcceptedWhereTheyDoNot) {
  std::int32_t verdicts = 0;
  for (const std::string& path : testing::json_files(kFixtures + "negative")) {
    const JsonValue document = read_json(path).value();
    const JsonValue* expect = document.given("expect");
    if (expect == nullptr || !expect->is(JsonKind::Object)) continue;
    for (const JsonMember& member : expect->members) {
      const Outcome check = run("check " + path + " --streams " + member.key);
      const bool ok = member.value.text == "ok";
      EXPECT_EQ(check.exit_code, ok ? 0 : 1) << path << " " << member.key;
      EXPECT_EQ(check.out.find("ops wait in a circle") == std::string::npos, ok) << check.out;
      ++verdicts;
    }
  }
  EXPECT_EQ(verdicts, 20);
}

TEST(CheckCommand, TellsTheCycleOpByOp) {
  const Outcome check = run("check " + kFixtures + "negative/pytorch-172668-deadlock.p2.json");
  EXPECT_EQ(check.exit_code, 1);
  EXPECT_NE(
      check.out.find("  V6 deadlock: it hangs with one in-order transfer stream per rank: 4 ops "
                     "wait in a circle\n"
                     "      rank 0: 0SEND_F1 meets 1RECV_F1 on rank 1, which is not reached\n"
                     "      rank 1: 1RECV_F1 stands behind 1SEND_F0\n"
                     "      rank 1: 1SEND_F0 meets 2RECV_F0 on rank 0, which is not reached\n"
                     "      rank 0: 2RECV_F0 stands behind 0SEND_F1\n"),
      std::string::npos)
      << check.out;
}

TEST(CheckCommand, NamesTheOpsOfTorchsWrongRank) {
  const Outcome check =
      run("check " + kFixtures + "negative/torch-2.8.0-1f1b-get_pipeline_order.p4.m8.json");
  EXPECT_EQ(check.exit_code, 1);
  EXPECT_NE(check.out.find("3B0 on rank 3 runs before its forward 3F0"), std::string::npos);
  EXPECT_NE(check.out.find("3F8 on rank 3: micro-batch 8 is out of range"), std::string::npos);
}

TEST(CheckCommand, AcceptsAllSchedulesThatProjectsShip) {
  std::string files;
  for (const std::string& path : testing::json_files(kFixtures)) files += " '" + path + "'";
  for (const char* model : {"one", "peer", "peerdir", "host", "fuse"}) {
    EXPECT_EQ(run("check --streams " + std::string(model) + files).exit_code, 0) << model;
  }
}

TEST(CheckCommand, JsonHasVerdictViolationsAndCycle) {
  const Outcome check =
      run("check --json " + kFixtures + "negative/pytorch-172668-deadlock.p2.json");
  const JsonValue document = parse_json(check.out, "stdout").value();
  EXPECT_FALSE(document.given("sound")->boolean);
  const JsonValue& file = document.given("files")->items.at(0);
  EXPECT_FALSE(file.given("deadlock_free")->boolean);
  EXPECT_EQ(file.given("cycle")->items.size(), 4U);
  EXPECT_EQ(file.given("cycle")->items[0].given("op")->text, "0SEND_F1");
  EXPECT_EQ(file.given("violations")->items.back().given("rule")->text, "V6");
}

TEST(CheckCommand, BadFilesAndUsageAreExitTwoWithOneLine) {
  const std::string broken = ::testing::TempDir() + "broken.csv";
  std::FILE* file = std::fopen(broken.c_str(), "w");
  ASSERT_NE(file, nullptr);
  std::fputs("0F0,0B0\n1F0,1B0x\n", file);
  std::fclose(file);
  const Outcome bad = run("check " + broken, true);
  EXPECT_EQ(bad.exit_code, 2);
  EXPECT_EQ(bad.out, "rehearse: " + broken + ":2: cell 2: column 4: unexpected \"x\"\n");
  const Outcome missing = run("check no_such_file.csv", true);
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_EQ(missing.out, "rehearse: no_such_file.csv: no such file\n");
  EXPECT_EQ(run("check " + kFixtures + "sail-1f1b.p4.m8.v1.json --streams two").exit_code, 2);
  const Outcome stages = run("check --stages 3 " + kFixtures + "sail-1f1b.p4.m8.v1.json", true);
  EXPECT_EQ(stages.exit_code, 2);
  EXPECT_EQ(stages.out, "rehearse: " + kFixtures +
                            "sail-1f1b.p4.m8.v1.json: has 4 ranks, --stages asks for 3\n");
}

TEST(CheckCommand, ProvesAScenarioToo) {
  const Outcome check = run("check scenarios/3d-8-gpus.json");
  EXPECT_EQ(check.exit_code, 0) << check.out;
  EXPECT_NE(check.out.find("V10 gradients"), std::string::npos) << check.out;
}

}  // namespace
}  // namespace rehearse
