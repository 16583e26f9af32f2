// SPDX-License-Identifier: Apache-2.0
// A training run without the command: opened, trained, stopped with a checkpoint, gone on with,
// measured; and what its errors are called.
#include "exec/run/training_run.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/exec/step/layout_case.h"

namespace rehearse::exec {
namespace {

class Training : public testing::Test {
 protected:
  Training() {
    scenario_ = layout_scenario(Family::Gpt2, {"pipeline_parallel=2"}).value();
    scenario_.train.steps = 4;
    schedule_ = lower_for_run(scenario_.model, scenario_.plan).value();
  }
  ~Training() override { std::filesystem::remove_all(folder_); }

  Result<std::unique_ptr<TrainingRun>> open(RunOptions options) {
    options.name = "tiny";
    options.threads = 1;
    options.say = [this](const std::string& line) { said_.push_back(line); };
    return TrainingRun::open(scenario_, schedule_, device_, processes_, std::move(options));
  }
  // Losses of a run that is told to stop after so many steps.
  std::vector<double> losses(const RunOptions& options, int steps) {
    auto run = open(options);
    EXPECT_TRUE(run) << run.error().message;
    std::vector<double> losses;
    const Result<int> stopped =
        run.value()->train([&](const StepReport& step) { losses.push_back(step.loss); },
                           [&] { return std::ssize(losses) == steps ? 15 : 0; });
    EXPECT_TRUE(stopped) << stopped.error().message;
    EXPECT_EQ(stopped.value(), std::ssize(losses) == steps ? 15 : 0);
    return losses;
  }

  Scenario scenario_;
  Schedule schedule_;
  RunDevice device_ = RunDevice::choose("cpu").value();
  Processes processes_{[this](const std::string& line) { said_.push_back(line); }};
  std::vector<std::string> said_;
  std::string folder_ = testing::TempDir() + "training_run";
};

TEST_F(Training, StoppedAndGoneOnWithIsTheSameTraining) {
  const std::vector<double> whole = losses({}, 100);
  ASSERT_EQ(whole.size(), 4U);
  std::vector<double> parts = losses({.checkpoint = folder_}, 3);
  EXPECT_EQ(parts.size(), 3U);
  for (const double loss : losses({.resume = folder_}, 100)) parts.push_back(loss);
  EXPECT_EQ(parts, whole);  // to the last bit
}

TEST_F(Training, IsMeasured) {
  auto run = open({});
  ASSERT_TRUE(run) << run.error().message;
  ASSERT_TRUE(run.value()->train([](const StepReport&) {}, [] { return 0; }));
  const Result<Measurement> measured = run.value()->measure();
  ASSERT_TRUE(measured) << measured.error().message;
  EXPECT_EQ(measured.value().steps.size(), 4U);
  EXPECT_EQ(measured.value().peak_counted(), run.value()->peak_bytes());
  EXPECT_EQ(measured.value().peak_counted(), measured.value().peak_planned());
  ASSERT_EQ(measured.value().end.size(), schedule_.ops.size());
  for (std::size_t op = 0; op < schedule_.ops.size(); ++op) {
    EXPECT_LE(measured.value().start[op].value, measured.value().end[op].value);
  }
}

TEST_F(Training, SaysWhoIsToBlame) {
  const auto absent = open({.resume = folder_ + "/none"});
  ASSERT_FALSE(absent);
  EXPECT_FALSE(absent.error().machine || absent.error().infeasible) << absent.error().message;
  scenario_.train.learning_rate = 1e30;
  auto run = open({});
  ASSERT_TRUE(run) << run.error().message;
  const Result<int> diverged = run.value()->train([](const StepReport&) {}, [] { return 0; });
  ASSERT_FALSE(diverged);
  EXPECT_TRUE(diverged.error().infeasible);
  EXPECT_FALSE(diverged.error().machine);
  EXPECT_EQ(diverged.error().message.rfind("tiny: training ", 0), 0U) << diverged.error().message;
  EXPECT_TRUE(said_.empty());
}

}  // namespace
}  // namespace rehearse::exec
