// SPDX-License-Identifier: Apache-2.0
// Collectives over groups of a file's own, performed in one process: who holds what is what each of
// them is for, and the training around them does not notice. Between processes: processes_test.sh.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "exec/step/exchanges/own_exchanges.h"
#include "schedules/passes/planned/plan_order.h"
#include "tests/exec/step/forwarding_device.h"
#include "tests/exec/step/layout_case.h"

namespace rehearse::exec {
namespace {

struct Outcome {
  Trained trained;
  std::vector<HeldExchange> held;
};

// REQUIRES: the plan can be lowered.
Outcome outcome_of(const std::vector<std::string>& plan_keys, int workers = 1) {
  Outcome out;
  const Result<Scenario> scenario = layout_scenario(Family::Gpt2, plan_keys);
  if (!scenario) {
    out.trained.error = scenario.error().message;
    return out;
  }
  Plan plan = scenario.value().plan;
  const Transformer& model = scenario.value().model;
  const Result<Schedule> schedule = lower_for_run(model, plan);
  if (!schedule) {
    out.trained.error = schedule.error().message;
    return out;
  }
  const Backend backend = make_cpu_backend();
  const auto process =
      Interpreter::create({model, plan}, schedule.value(), backend, {.workers = workers});
  EXPECT_TRUE(process);
  const TrainOptions& options = scenario.value().train;
  process.value()->initialise(initial_values(model, options.seed));
  const Result<Data> data = Data::open("synthetic", model.vocabulary, options.seed);
  const auto steps = train(*process.value(), plan, options, data.value(), nullptr);
  EXPECT_TRUE(steps);
  for (const StepReport& step : steps.value()) out.trained.losses.push_back(step.loss);
  for (std::int32_t row = 0; row < schedule.value().num_rows(); ++row) {
    out.trained.planned.push_back(
        schedule.value().live_peak_bytes[static_cast<std::size_t>(row)].value);
    out.trained.counted.push_back(process.value()->peak_bytes({row}));
  }
  out.held = process.value()->exchanged();
  return out;
}

std::vector<std::string> shipped(const std::vector<std::string>& more = {}) {
  std::vector<std::string> keys{
      "pipeline_parallel=4", "micro_batch=2",
      "schedule=file:" + std::filesystem::absolute("scenarios/orders/collectives.json").string()};
  keys.insert(keys.end(), more.begin(), more.end());
  return keys;
}

std::map<std::string, std::vector<std::pair<std::string, std::string>>> by_name(
    const std::vector<HeldExchange>& held) {
  std::map<std::string, std::vector<std::pair<std::string, std::string>>> names;
  for (const HeldExchange& one : held) names[one.name].emplace_back(one.before, one.after);
  return names;
}

using Table = std::vector<std::pair<std::string, std::string>>;  // before and after, rank by rank

TEST(OwnExchanges, EachLeavesWhatItIsFor) {
  const Outcome one = outcome_of(shipped());
  ASSERT_EQ(one.trained.error, "");
  const std::string a = "a0 a1 a2 a3", b = "b0 b1 b2 b3", c = "c0 c1 c2 c3", d = "d0 d1 d2 d3",
                    sum = "Σ0 Σ1 Σ2 Σ3", diagonal = "a0 b1 c2 d3";
  auto held = by_name(one.held);
  EXPECT_EQ(held["0SCATTER[all]"], (Table{{a, "a0"}, {"", "a1"}, {"", "a2"}, {"", "a3"}}));
  EXPECT_EQ(held["0GATHER[all]"], (Table{{"a0", diagonal}, {"b1", ""}, {"c2", ""}, {"d3", ""}}));
  EXPECT_EQ(held["0BROADCAST[all]"], (Table{{a, a}, {"", a}, {"", a}, {"", a}}));
  EXPECT_EQ(held["0REDUCE[all]"], (Table{{a, sum}, {b, ""}, {c, ""}, {d, ""}}));
  EXPECT_EQ(held["0ALL_GATHER[all]"],
            (Table{{"a0", diagonal}, {"b1", diagonal}, {"c2", diagonal}, {"d3", diagonal}}));
  EXPECT_EQ(held["0REDUCE_SCATTER[all]"], (Table{{a, "Σ0"}, {b, "Σ1"}, {c, "Σ2"}, {d, "Σ3"}}));
  EXPECT_EQ(held["0ALL_REDUCE[all]"], (Table{{a, sum}, {b, sum}, {c, sum}, {d, sum}}));
  EXPECT_EQ(
      held["0ALL_TO_ALL[all]"],
      (Table{{a, "a0 b0 c0 d0"}, {b, "a1 b1 c1 d1"}, {c, "a2 b2 c2 d2"}, {d, "a3 b3 c3 d3"}}));
  EXPECT_EQ(
      held["0ALL_REDUCE[pairs]"],
      (Table{{"a0 a1", "Σ0 Σ1"}, {"b0 b1", "Σ0 Σ1"}, {"a0 a1", "Σ0 Σ1"}, {"b0 b1", "Σ0 Σ1"}}));
  EXPECT_EQ(held.size(), 9U);
}

// Their data lie beside the training's: its memory grows by them, its numbers do not change.
TEST(OwnExchanges, TheTrainingAroundThemIsTheSame) {
  const Outcome with = outcome_of(shipped()),
                without = outcome_of({"pipeline_parallel=4", "micro_batch=2", "schedule=1f1b"});
  ASSERT_EQ(without.trained.error, "");
  EXPECT_EQ(with.trained.losses, without.trained.losses);
  EXPECT_EQ(with.trained.planned, with.trained.counted);
  // Both ends of every exchange, in quarters of the array of 1 MiB: of the root, of the others.
  const std::int64_t quarter = 1 << 18;
  EXPECT_EQ(with.trained.planned[0] - without.trained.planned[0], 56 * quarter);
  for (const std::size_t row : {1U, 2U, 3U}) {
    EXPECT_EQ(with.trained.planned[row] - without.trained.planned[row], 44 * quarter);
  }
}

TEST(OwnExchanges, TwoWorkersAndTwoReplicasHoldTheSame) {
  const Outcome alone = outcome_of(shipped());
  EXPECT_EQ(outcome_of(shipped(), 2).held, alone.held);
  // Of two replicas each has groups of its own: ranks 0 to 3 are positions 0, 0, 1, 1.
  const Outcome replicas = outcome_of(shipped({"data_parallel=2", "micro_batch=1"}));
  ASSERT_EQ(replicas.trained.error, "");
  ASSERT_EQ(replicas.held.size(), 2 * alone.held.size());
  const std::size_t each = alone.held.size() / 4;
  for (std::size_t rank = 0; rank < 8; ++rank) {
    for (std::size_t i = 0; i < each; ++i) {
      const HeldExchange& one = replicas.held[rank * each + i];
      const HeldExchange& same = alone.held[rank / 2 * each + i];
      EXPECT_EQ(one.name, same.name);
      EXPECT_EQ(one.before, same.before);
      EXPECT_EQ(one.after, same.after);
    }
  }
}

// Members in the order that the file lists, roots by their place in it.
TEST(OwnExchanges, MembersAndRootsAreThoseOfTheFile) {
  const std::string file = testing::TempDir() + "own_exchanges.json";
  const std::string op = R"({"op": "0GATHER[turned]", "bytes": 64, "root": 1})";
  std::ofstream(file) << R"({"groups": {"turned": [[1, 0]]}, "orders": [[)" << op
                      << R"(, "0F0", "0B0"], [)" << op << R"(, "1F0", "1B0"]]})";
  const Outcome one = outcome_of({"pipeline_parallel=2", "micro_batch=8", "schedule=file:" + file});
  ASSERT_EQ(one.trained.error, "");
  EXPECT_EQ(by_name(one.held)["0GATHER[turned]"], (Table{{"b1", "a0 b1"}, {"a0", ""}}));
  std::remove(file.c_str());
}

// A device that only takes what it is issued, as a GPU does, is refused before anything is
// allocated.
class Issuing : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  bool asynchronous() const override { return true; }
};
TEST(OwnExchanges, AGpuIsRefusedInOneLine) {
  const Result<Scenario> scenario = layout_scenario(Family::Gpt2, shipped());
  Plan plan = scenario.value().plan;
  const Result<Schedule> schedule = lower_for_run(scenario.value().model, plan);
  Backend backend = make_cpu_backend();
  backend.device = std::make_unique<Issuing>(std::move(backend.device));
  const auto made =
      Interpreter::create({scenario.value().model, plan}, schedule.value(), backend, {});
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().message.substr(0, 75),
            "plan.schedule: collectives of groups of its own are performed on the CPU on");
}

TEST(OwnExchanges, NoFrameworkPerformsThem) {
  const std::string path = std::filesystem::absolute("scenarios/orders/collectives.json").string();
  const Result<Scenario> scenario = layout_scenario(Family::Gpt2, shipped());
  ASSERT_TRUE(scenario);
  Plan plan = scenario.value().plan;
  plan.runtime.own_executor = false;
  const Result<Schedule> order = order_of(scenario.value().model, plan);
  ASSERT_FALSE(order);
  EXPECT_EQ(order.error().message,
            "plan.schedule: " + path +
                ": has collectives of groups of its own, which only runtime rehearse performs");
}

}  // namespace
}  // namespace rehearse::exec
