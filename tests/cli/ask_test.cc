// SPDX-License-Identifier: Apache-2.0
// Commands asked in this process say what the command prints, and nothing of one gets into another.
#include "cli/ask.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <sstream>
#include <thread>

namespace rehearse::cli {
namespace {

using Arguments = std::vector<std::string>;

std::string printed(const std::string& arguments) {
  std::string text;
  std::FILE* pipe = popen((REHEARSE_COMMAND " " + arguments + " 2>/dev/null").c_str(), "r");
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) text += static_cast<char>(c);
  pclose(pipe);
  return text;
}

TEST(Ask, AnswersWithTheBytesOfTheCommand) {
  for (const char* line : {"plan llama3-8b --gpus 8 --on h100 --json", "list schedules --json",
                           "schedule --schedule 1f1b --stages 4 --microbatches 8", "--version"}) {
    std::istringstream words(line);
    Arguments arguments;
    for (std::string word; words >> word;) arguments.push_back(word);
    const Answer answer = ask(arguments);
    EXPECT_EQ(answer.code, 0) << line << answer.words.errors;
    const std::string text = printed(line);
    // Of the version the first line: what this machine has is the command's to say.
    if (arguments.front() == "--version") {
      EXPECT_EQ(answer.words.text.substr(0, 5), text.substr(0, 5));
    } else {
      EXPECT_EQ(answer.words.text, text) << line;
    }
  }
}

TEST(Ask, SaysWhatIsWrongInOneLine) {
  const Answer missing = ask({"simulate", "nowhere.json"});
  EXPECT_EQ(missing.code, 2);
  EXPECT_EQ(missing.words.text, "");
  EXPECT_TRUE(missing.words.errors.starts_with("rehearse: nowhere.json: no such file"))
      << missing.words.errors;
  EXPECT_EQ(ask({"simulat"}).words.errors,
            "rehearse: simulat: no such command; the nearest is simulate; rehearse --help lists "
            "them\n");
  EXPECT_EQ(ask({}).code, 2);
}

TEST(Ask, WhatActsOnThisMachineIsNotAsked) {
  for (const char* acts : {"run", "view", "calibrate"}) {
    const Answer answer = ask({acts, "tiny-one"});
    EXPECT_EQ(answer.code, 2);
    EXPECT_EQ(answer.words.errors, std::string("rehearse: ") + acts +
                                       ": acts on this machine: start the command rehearse\n");
  }
}

TEST(Ask, TheInputIsWhatADashNames) {
  std::ifstream file("scenarios/tiny-one.json");
  std::stringstream text;
  text << file.rdbuf();
  const Answer answer = ask({"simulate", "-"}, text.str());
  EXPECT_EQ(answer.code, 0) << answer.words.errors;
  EXPECT_EQ(ask({"simulate", "-"}).code, 2);  // nothing was given, and the process's is not read
}

TEST(Ask, ThreadsDoNotHearOneAnother) {
  const std::string alone = ask({"list", "models"}).words.text;
  std::vector<std::thread> threads;
  std::vector<std::string> heard(4);
  for (std::string& mine : heard) {
    threads.emplace_back([&mine] { mine = ask({"list", "models"}).words.text; });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& mine : heard) EXPECT_EQ(mine, alone);
}

}  // namespace
}  // namespace rehearse::cli
