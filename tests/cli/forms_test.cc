// SPDX-License-Identifier: Apache-2.0
// Every command that takes a scenario, with every form that a scenario has: it works, or says in
// one line why not.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

namespace rehearse {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

struct Outcome {
  int exit_code = -1;
  std::string out, error;
};

class Forms : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / ("forms" + std::to_string(getpid()));
    fs::create_directories(folder_);
    const std::string sizes = "--schedule 1f1b --stages 4 --microbatches 8";
    write("order.csv", works("schedule " + sizes + " --level compute --format csv"));
    write("order.json", works("schedule " + sizes + " --level compute --format json"));
    write("lowered.json", works("schedule " + sizes + " --level full --format json"));
    Json scenario = Json::parse(bytes_of("scenarios/pipeline-1f1b.json"));
    write("plain.json", scenario.dump());
    Json inside = scenario;
    inside["model"] = Json::parse(bytes_of("scenarios/models/llama2-7b.json"));
    inside["cluster"] = Json::parse(bytes_of("scenarios/clusters/dgx-a100-80gb.json"));
    write("inline.json", inside.dump());
    for (const char* order : {"order.csv", "order.json", "lowered.json"}) {
      scenario["plan"]["schedule"] = std::string("file:") + order;
      write(std::string("of_") + order + ".json", scenario.dump());
    }
  }
  void TearDown() override { fs::remove_all(folder_); }

  static std::string bytes_of(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  std::string file(const std::string& name) const { return (folder_ / name).string(); }

  Outcome run(const std::string& arguments) const {
    const std::string command = std::string(REHEARSE_COMMAND) + ' ' + arguments + " > " +
                                file("stdout") + " 2> " + file("stderr");
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, bytes_of(file("stdout")),
            bytes_of(file("stderr"))};
  }
  std::string works(const std::string& arguments) const {
    const Outcome done = run(arguments);
    EXPECT_EQ(done.exit_code, 0) << arguments << '\n' << done.error;
    EXPECT_FALSE(done.out.empty()) << arguments;
    return done.out;
  }
  // One line of error behind warnings, which are lines of their own.
  void refuses(const std::string& arguments, const std::string& says) const {
    const Outcome refused = run(arguments);
    EXPECT_EQ(refused.exit_code, 2) << arguments << '\n' << refused.error;
    EXPECT_TRUE(refused.out.empty()) << arguments << '\n' << refused.out;
    std::string last = refused.error;
    ASSERT_TRUE(last.ends_with('\n')) << arguments << '\n' << last;
    last.pop_back();
    last.erase(0, last.rfind('\n') + 1);
    EXPECT_TRUE(last.starts_with("rehearse: ")) << arguments << '\n' << refused.error;
    EXPECT_NE(last.find(says), std::string::npos) << arguments << '\n' << refused.error;
  }

  fs::path folder_;
};

TEST_F(Forms, ShippedAndInlineScenariosWorkEverywhere) {
  for (const std::string& scenario :
       {std::string("pipeline-1f1b"), file("plain.json"), file("inline.json")}) {
    works("simulate " + scenario);
    works("schedule " + scenario);
    works("search " + scenario + " --set plan.schedule=1f1b --set plan.micro_batch=1");
    works("run " + scenario + " --dry-run");
  }
  works("check " + file("plain.json"));
  works("check " + file("inline.json"));
  works("check scenarios/pipeline-1f1b.json");
}

TEST_F(Forms, TheSamePlanFromEveryFormIsTheSame) {
  const Json named = Json::parse(works("simulate pipeline-1f1b --json"));
  for (const char* form :
       {"plain.json", "inline.json", "of_order.csv.json", "of_order.json.json"}) {
    const Json same = Json::parse(works("simulate " + file(form) + " --json"));
    for (const char* key :
         {"step_time_s", "bubble_causes_ns", "communication", "memory", "schedule_hash"}) {
      EXPECT_EQ(same[key], named[key]) << form << ' ' << key;
    }
  }
}

TEST_F(Forms, AnOrderFromAFileIsOnePlan) {
  for (const char* form : {"of_order.csv.json", "of_order.json.json"}) {
    works("simulate " + file(form) + " --trace " + file("a.trace"));
    const std::string text = works("render " + file("a.trace") + " --text");
    EXPECT_NE(text.find("bubbles: "), std::string::npos) << text;
    const std::string to_chrome = "export " + file("a.trace") + " --to chrome " + file("a.json");
    EXPECT_EQ(run(to_chrome).exit_code, 0);
    const std::string compared = works("compare " + file("a.trace") + ' ' + file("a.json"));
    EXPECT_NE(compared.find("no op differs"), std::string::npos) << compared;
    EXPECT_NE(compared.find("memory of rank 3"), std::string::npos) << compared;
    works("check " + file(form));
    works("schedule " + file(form));
    works("run " + file(form) + " --dry-run");
    refuses("search " + file(form), "plan.schedule: \"file:");
  }
  refuses("search pipeline-1f1b --set 'plan.schedule=[\"1f1b\",\"file:o.csv\"]'",
          "plan.schedule[1]: \"file:o.csv\" is one order");
}

TEST_F(Forms, ALoweredOrderIsNoPlan) {
  const std::string scenario = file("of_lowered.json.json");
  for (const char* command : {"simulate ", "schedule ", "check "}) {
    refuses(command + scenario, "lists 0SEND_F0 on rank 0, but a plan performs the compute order");
  }
  refuses("run " + scenario + " --dry-run", "a plan performs the compute order");
  refuses("search " + scenario, "plan.schedule: \"file:");
}

TEST_F(Forms, AScheduleFileIsNoScenario) {
  for (const char* name : {"order.csv", "order.json", "lowered.json"}) {
    works("check " + file(name));
    works("schedule --schedule file:" + file(name));
    for (const char* command : {"simulate ", "schedule ", "search ", "run --dry-run "}) {
      refuses(command + file(name), name);
    }
    for (const char* command : {"render --text ", "compare "}) {
      const bool two = std::string(command) == "compare ";
      refuses(command + file(name) + (two ? ' ' + file(name) : ""), name);
    }
    refuses("export " + file(name) + " --to csv " + file("out.csv"), name);
  }
}

TEST_F(Forms, AScenarioIsNoTrace) {
  refuses("render " + file("plain.json") + " --text", "plain.json");
  refuses("export " + file("plain.json") + " --to csv " + file("out.csv"), "plain.json");
  refuses("compare " + file("plain.json") + ' ' + file("plain.json"), "plain.json");
}

}  // namespace
}  // namespace rehearse
