// SPDX-License-Identifier: Apache-2.0
// librehearse, through the functions that it shows: answers are the command's, errors are values,
// and the program that asks keeps its threads, its signals and its locale.
#include <gtest/gtest.h>

#include <atomic>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "api/rehearse.hpp"

namespace rehearse {
namespace {

std::string printed(const std::string& arguments) {
  std::string text;
  std::FILE* pipe = popen((REHEARSE_COMMAND " " + arguments + " 2>/dev/null").c_str(), "r");
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) text += static_cast<char>(c);
  pclose(pipe);
  return text;
}

const std::vector<std::string> kPlan{"plan", "llama3-8b", "--gpus", "8", "--on", "h100", "--json"};
// Two numbers of GPUs, some layouts each: long enough to overlap with another.
const std::vector<std::string> kSearch{"search", "tiny-3d-8", "--set", "plan.data_parallel=null",
                                       "--gpus", "4",         "8",     "--csv"};

TEST(Library, AnswersWithTheBytesOfTheCommand) {
  const Answer answer = ask(kPlan);
  EXPECT_EQ(answer.code, REHEARSE_DONE) << answer.errors;
  EXPECT_EQ(answer.text, printed("plan llama3-8b --gpus 8 --on h100 --json"));
  EXPECT_EQ(std::string(rehearse_version()) + "\n", ask({"--version"}).text);
}

TEST(Library, WhatIsWrongIsAnAnswer) {
  const Answer missing = ask({"simulate", "nowhere.json"});
  EXPECT_EQ(missing.code, REHEARSE_BAD_INPUT);
  EXPECT_EQ(missing.text, "");
  EXPECT_TRUE(missing.errors.starts_with("rehearse: nowhere.json: no such file"));
  EXPECT_EQ(ask({}).code, REHEARSE_BAD_INPUT);
  EXPECT_EQ(ask({"simulate", "-"}, "{\"model\": ").code, REHEARSE_BAD_INPUT);
  EXPECT_EQ(ask({"run", "tiny-one"}).code, REHEARSE_BAD_INPUT);

  const char* words[] = {"simulate", nullptr};
  for (rehearse_answer* answer :
       {rehearse_ask(2, words, nullptr), rehearse_ask(1, nullptr, nullptr)}) {
    EXPECT_EQ(rehearse_code(answer), REHEARSE_BAD_INPUT);
    EXPECT_TRUE(std::string(rehearse_errors(answer)).ends_with(" is a null pointer\n"));
    rehearse_free(answer);
  }
  rehearse_answer* none = rehearse_ask(-1, nullptr, nullptr);
  EXPECT_EQ(rehearse_code(none), REHEARSE_BAD_INPUT);
  rehearse_free(none);
  rehearse_free(nullptr);
}

TEST(Library, ThreadsAskAtOnceAndHearWhatOneHears) {
  const std::string plan = ask(kPlan).text, search = ask(kSearch).text;
  ASSERT_NE(plan, "");
  ASSERT_NE(search, "");
  std::vector<std::string> heard(6);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < heard.size(); ++i) {
    threads.emplace_back([&heard, i] { heard[i] = ask(i % 2 == 0 ? kPlan : kSearch).text; });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < heard.size(); ++i) EXPECT_EQ(heard[i], i % 2 == 0 ? plan : search);
}

TEST(Library, SignalsStayTheProgramsOwn) {
  void (*const mine)(int) = [](int) {};
  std::signal(SIGINT, mine);
  std::atomic<bool> searching = true;
  std::thread other([&searching] {
    ask(kSearch);
    searching = false;
  });
  bool touched = false;
  while (searching) {  // looked at while the search runs
    struct sigaction now {};
    sigaction(SIGINT, nullptr, &now);
    touched = touched || now.sa_handler != mine;
    std::this_thread::yield();
  }
  other.join();
  EXPECT_FALSE(touched);
  std::signal(SIGINT, SIG_DFL);
}

TEST(Library, NumbersHaveAPointInEveryLocale) {
  if (std::setlocale(LC_ALL, "de_DE.UTF-8") == nullptr) GTEST_SKIP() << "SKIPPED: no de_DE.UTF-8";
  const std::string text = ask(kSearch).text;
  EXPECT_STREQ(std::localeconv()->decimal_point, ",");  // still the program's
  std::setlocale(LC_ALL, "C");
  EXPECT_EQ(text, ask(kSearch).text);
}

}  // namespace
}  // namespace rehearse
