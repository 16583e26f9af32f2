// SPDX-License-Identifier: Apache-2.0
// `rehearse check` as people run it: exit codes, and the reason on stdout.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>

#include "schedules/base/json_reader.h"
#include "schedules/proof/deadlock.h"
#include "tests/schedules/formats/fixtures.h"

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
  for (const std::string& path : fixture::json_files(kFixtures + "negative")) {
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
  for (const std::string& path : fixture::json_files(kFixtures)) files += " '" + path + "'";
  for (const char* model : {"one", "peer", "peerdir", "host", "fuse"}) {
    EXPECT_EQ(run("check --streams " + std::string(model) + files).exit_code, 0) << model;
  }
}

// Rows of a fixture's `key`, as a file of either form: what torch writes with `compute_only=True`.
std::string written(const JsonValue& rows, bool csv) {
  std::string text = csv ? "" : "{\"orders\": [";
  for (const JsonValue& row : rows.items) {
    if (!csv) text += &row == &rows.items.front() ? "[" : ",\n[";
    for (const JsonValue& op : row.items) {
      if (&op != &row.items.front()) text += ',';
      text += csv ? op.text : json_quoted(op.text);
    }
    text += csv ? "\n" : "]";
  }
  return csv ? text : text + "]}\n";
}

std::string temporary(const std::string& name, const std::string& text) {
  const std::string path = ::testing::TempDir() + std::to_string(getpid()) + name;
  std::FILE* file = std::fopen(path.c_str(), "w");
  std::fwrite(text.data(), 1, text.size(), file);
  std::fclose(file);
  return path;
}

// Gathers of parameters stand beside the compute ops, on a stream of their own; torch leaves the
// stage of a rank's last op gathered.
TEST(CheckCommand, TorchsSchedulesWithUnshardAreSoundAsJsonAndAsCsv) {
  std::string files;
  std::size_t fixtures = 0;
  for (const std::string& path : fixture::json_files(kFixtures)) {
    const JsonValue document = read_json(path).value();
    const JsonValue* rows = document.given("orders_with_unshard_reshard");
    if (rows == nullptr) continue;
    const std::string stem = "unshard" + std::to_string(fixtures++);
    files += " " + temporary(stem + ".json", written(*rows, false));
    files += " " + temporary(stem + ".csv", written(*rows, true));
  }
  EXPECT_EQ(fixtures, 15U);
  for (const StreamModelInfo& model : kStreamModels) {
    const Outcome check = run("check --streams " + std::string(model.name) + files);
    EXPECT_EQ(check.exit_code, 0) << model.name << "\n" << check.out;
  }
}

TEST(CheckCommand, AGatherThatIsNeverGivenBackIsALeakThatNamesItsOp) {
  const std::string whole = "0UNSHARD,0F0,0B0,0RESHARD\n1UNSHARD,1F0,1B0,1RESHARD\n";
  EXPECT_EQ(run("check " + temporary("whole.csv", whole)).exit_code, 0);
  const Outcome one =
      run("check " + temporary("one.csv", "0UNSHARD,0F0,0B0\n1UNSHARD,1F0,1B0,1RESHARD\n"));
  EXPECT_EQ(one.exit_code, 1);
  EXPECT_NE(one.out.find("  V9 gathers: 0UNSHARD on rank 0 leaks: its stage stays gathered to the "
                         "end, 0RESHARD after its last op is missing\n"),
            std::string::npos)
      << one.out;
  const Outcome all = run("check " + temporary("all.csv", "0UNSHARD,0F0,0B0\n1UNSHARD,1F0,1B0\n"));
  EXPECT_EQ(all.exit_code, 1);
  EXPECT_NE(all.out.find("1UNSHARD on rank 1 leaks"), std::string::npos) << all.out;
}

// Every form that `simulate` takes.
TEST(CheckCommand, AScenarioWithAnOrderFromAFileIsProvedAsSimulateTakesIt) {
  const std::string csv = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n",
                    json = R"({"orders": [["0F0","0F1","0B0","0B1"],["1F0","1B0","1F1","1B1"]]})";
  for (const std::string& order : {temporary("order.csv", csv), temporary("order.json", json)}) {
    for (const char* runtime : {"rehearse", "megatron"}) {
      const std::string scenario = temporary(
          "file_order.json",
          R"({"model": "gpt2-124m", "cluster": "dgx-h100", "gpus": 2, "plan": {"pipeline_parallel": 2,
              "micro_batch": 1, "global_batch": 2, "sequence_length": 1024, "runtime": ")" +
              std::string(runtime) + R"(", "schedule": "file:)" + order + R"("}})");
      EXPECT_EQ(run("simulate " + scenario, true).exit_code, 0);
      const Outcome check = run("check " + scenario, true);
      EXPECT_EQ(check.exit_code, 0) << check.out;
      EXPECT_NE(check.out.find("V15 lowering"), std::string::npos) << check.out;
    }
  }
}

// What it lists would not be performed: said in one line, which tells how to take the order alone.
TEST(CheckCommand, APlanRefusesAFileThatListsTransfersOrGathersAndSaysHowToTakeItsOrder) {
  for (const auto& [text, named] : std::initializer_list<std::pair<const char*, const char*>>{
           // Hangs: rank 0 waits for a gradient that rank 1 cannot have made.
           {"0F0,0RECV_B0,0SEND_F0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n", "0RECV_B0 on rank 0"},
           {"0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n", "0SEND_F0 on rank 0"},
           {"0UNSHARD,0F0,0B0,0RESHARD\n1UNSHARD,1F0,1B0,1RESHARD\n", "0UNSHARD on rank 0"}}) {
    const std::string order = temporary("lowered.csv", text), alone = order + ".order";
    const std::string scenario = temporary(
        "lowered.json",
        R"({"model": "gpt2-124m", "cluster": "dgx-h100", "gpus": 2, "plan": {"pipeline_parallel": 2,
            "micro_batch": 1, "global_batch": 1, "sequence_length": 1024, "runtime": "rehearse",
            "schedule": "file:)" +
            order + R"("}})");
    const std::string take = "rehearse schedule --schedule file:" + order + " --format csv";
    for (const char* command :
         {"simulate ", "run --dry-run ", "run --steps 1 ", "check ", "schedule "}) {
      const Outcome refused = run(command + scenario, true);
      EXPECT_EQ(refused.exit_code, 2) << command << refused.out;
      EXPECT_TRUE(refused.out.ends_with("name file:order.csv\n")) << refused.out;
      EXPECT_NE(refused.out.find("plan.schedule: " + order + ": lists " + named), std::string::npos)
          << refused.out;
      EXPECT_NE(refused.out.find(take), std::string::npos) << refused.out;
    }
    const Outcome taken = run(take.substr(9) + " > " + alone);
    EXPECT_EQ(taken.exit_code, 0);
    EXPECT_EQ(run("simulate " + scenario + " --set plan.schedule=file:" + alone, true).exit_code,
              0);
    const Outcome said = run(take.substr(9), true);
    EXPECT_NE(said.out.find(order + ": its compute order is shown, without " + named),
              std::string::npos)
        << said.out;
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

TEST(CheckCommand, StandardInputIsWhatAFileWouldBe) {
  for (const std::string& path :
       {kFixtures + "sail-1f1b.p4.m8.v1.json", std::string("scenarios/3d-8-gpus.json")}) {
    const Outcome file = run("check " + path), piped = run("check - < " + path);
    EXPECT_EQ(piped.exit_code, 0) << piped.out;
    EXPECT_EQ(piped.out.substr(1), file.out.substr(path.size()));
  }
  const Outcome broken = run("check - < README.md", true);
  EXPECT_EQ(broken.exit_code, 2);
  EXPECT_EQ(broken.out.find("rehearse: standard input:"), 0U) << broken.out;
}

}  // namespace
}  // namespace rehearse
