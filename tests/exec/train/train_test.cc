// SPDX-License-Identifier: Apache-2.0
// The loop around the executor: batches, first weights, times, and numbers that run away.
#include <set>

#include "exec/backend/null_backend.h"
#include "exec/step/rendezvous_times.h"
#include "schedules/ranks/unfold.h"
#include "tests/exec/step/layout_case.h"

namespace rehearse::exec {
namespace {

// A process with its schedule, ready to run.
struct Ready {
  Scenario scenario;
  Schedule schedule;
  Backend backend = make_cpu_backend();
  std::unique_ptr<Interpreter> process;
};

Ready ready(Family family, const std::vector<std::string>& plan) {
  Ready out;
  Result<Scenario> scenario = layout_scenario(family, plan);
  EXPECT_TRUE(scenario) << scenario.error().message;
  out.scenario = std::move(scenario).value();
  Result<Schedule> schedule = lower_for_run(out.scenario.model, out.scenario.plan);
  EXPECT_TRUE(schedule) << schedule.error().message;
  out.schedule = std::move(schedule).value();
  return out;
}

void start(Ready& on, int workers = 1) {
  auto made = Interpreter::create({on.scenario.model, on.scenario.plan}, on.schedule, on.backend,
                                  {.workers = workers});
  ASSERT_TRUE(made) << made.error().message;
  on.process = std::move(made).value();
  on.process->initialise(initial_values(on.scenario.model, on.scenario.train.seed));
}

Data synthetic() {
  return Data::open("synthetic", 61, 7).value();
}

// All samples of a step, as a multiset: (first token ... last token).
std::multiset<std::vector<std::int32_t>> samples(const std::vector<std::string>& plan,
                                                 std::int64_t step) {
  Ready on = ready(Family::Gpt2, plan);
  start(on);
  load_batch(*on.process, on.scenario.plan, synthetic(), 8 * step);
  std::multiset<std::vector<std::int32_t>> all;
  for (std::int32_t r = 0; r < on.scenario.plan.data_parallel; ++r) {
    const auto& tokens = on.process->inputs(r);
    for (auto at = tokens.begin(); at != tokens.end(); at += 16) all.insert({at, at + 16});
  }
  return all;
}

TEST(Batches, AreTheSameSamplesInEveryLayout) {
  const auto one = samples({}, 2);
  EXPECT_EQ(one.size(), 8U);
  EXPECT_EQ(one, samples({"data_parallel=2"}, 2));
  EXPECT_EQ(one, samples({"data_parallel=4", "micro_batch=2"}, 2));
  EXPECT_EQ(one, samples({"pipeline_parallel=2", "micro_batch=4"}, 2));
  EXPECT_NE(one, samples({}, 3));
}

TEST(InitialValues, DependOnSeedNameAndElementAlone) {
  const Scenario scenario = layout_scenario(Family::Gpt2, {}).value();
  const auto a = initial_values(scenario.model, 7), b = initial_values(scenario.model, 7),
             other = initial_values(scenario.model, 8);
  const double first = a("h.0.attn.c_attn.weight", 5);
  a("wte.weight", 9);
  b("wte.weight", 9);
  EXPECT_EQ(b("h.0.attn.c_attn.weight", 5), first);
  EXPECT_NE(a("h.1.attn.c_attn.weight", 5), first);
  EXPECT_NE(other("h.0.attn.c_attn.weight", 5), first);
}

// Standard deviation over n = 40,000 draws: relative error 1/sqrt(2n) = 0.35 %; 5 of them are 1.8
// %.
TEST(InitialValues, HaveGpt2sDeviations) {
  const Scenario scenario = layout_scenario(Family::Gpt2, {}).value();  // 8 layers
  const auto values = initial_values(scenario.model, 7);
  const auto deviation = [&](const char* name) {
    double sum = 0, squares = 0;
    for (int i = 0; i < 40000; ++i) {
      const double x = values(name, i);
      sum += x;
      squares += x * x;
    }
    EXPECT_NEAR(sum / 40000, 0, 5 * 0.02 / 200) << name;
    return std::sqrt(squares / 40000);
  };
  EXPECT_NEAR(deviation("wte.weight") / 0.02, 1, 0.018);
  EXPECT_NEAR(deviation("h.3.mlp.c_fc.weight") / 0.02, 1, 0.018);
  EXPECT_NEAR(deviation("model.layers.0.mlp.gate_up_proj.weight") / 0.02, 1, 0.018);
  for (const char* name :
       {"h.3.attn.c_proj.weight", "h.3.mlp.c_proj.weight", "model.layers.1.self_attn.o_proj.weight",
        "model.layers.1.mlp.down_proj.weight"}) {
    EXPECT_NEAR(deviation(name) / (0.02 / 4), 1, 0.018) << name;  // sqrt(2 * 8) = 4
  }
  for (const char* name : {"h.0.ln_1.weight", "ln_f.weight", "model.norm.weight",
                           "model.layers.0.post_attention_layernorm.weight"}) {
    EXPECT_EQ(values(name, 3), 1.0) << name;
  }
  for (const char* name : {"h.0.ln_1.bias", "h.0.attn.c_attn.bias"})
    EXPECT_EQ(values(name, 3), 0.0) << name;
}

// The same eight samples again and again: learnt by heart.
TEST(Train, LearnsASampleByHeart) {
  for (const Family family : {Family::Gpt2, Family::Llama}) {
    Ready on = ready(family, {"pipeline_parallel=2", "tensor_parallel=2", "schedule=1f1b"});
    start(on);
    const Data data = synthetic();
    load_batch(*on.process, on.scenario.plan, data, 0);
    TrainOptions options = on.scenario.train;
    options.epsilon = 1e-8;
    double first = 0, last = 0;
    for (std::int64_t step = 0; step < 60; ++step) {
      const auto ran = on.process->run({.step = step, .learning_rate = 0.01, .train = options});
      ASSERT_TRUE(ran) << ran.error().message;
      (step == 0 ? first : last) = ran.value().loss;
    }
    EXPECT_NEAR(first, std::log(61.0), 0.05);
    EXPECT_LT(last, 0.5);
  }
}

TEST(Train, ReportsEveryStepWithItsLearningRate) {
  Ready on = ready(Family::Gpt2, {});
  start(on);
  TrainOptions options = on.scenario.train;
  options.steps = 3;
  options.warmup_steps = 2;
  std::vector<double> seen;
  const auto steps = train(*on.process, on.scenario.plan, options, synthetic(),
                           [&](const StepReport& step) -> Result<AfterStep> {
                             seen.push_back(step.learning_rate);
                             return AfterStep{};
                           });
  ASSERT_TRUE(steps);
  EXPECT_EQ(seen, (std::vector<double>{0.005, 0.01, 0.01}));
  for (const StepReport& step : steps.value()) {
    EXPECT_GT(step.seconds, 0);
    EXPECT_DOUBLE_EQ(step.tokens_per_s, 128 / step.seconds);
  }
}

// A step lasts from the end of the one before: what its caller does between them counts, but for
// what was put aside.
TEST(Train, TimesStepsFromOneToTheNext) {
  using Clock = std::chrono::steady_clock;
  for (const double aside : {0.0, 0.3}) {
    Ready on = ready(Family::Gpt2, {});
    start(on);
    TrainOptions options = on.scenario.train;
    options.steps = 3;
    std::vector<Clock::time_point> ended;
    const auto steps = train(*on.process, on.scenario.plan, options, synthetic(),
                             [&](const StepReport&) -> Result<AfterStep> {
                               ended.push_back(Clock::now());
                               std::this_thread::sleep_for(std::chrono::milliseconds(300));
                               return AfterStep{.aside_s = aside};
                             });
    ASSERT_TRUE(steps);
    const std::vector<StepReport>& all = steps.value();
    ASSERT_EQ(ended.size(), all.size());
    for (std::size_t step = 1; step < all.size(); ++step) {
      const double between = std::chrono::duration<double>(ended[step] - ended[step - 1]).count();
      EXPECT_NEAR(all[step].seconds, between - aside, 0.15) << aside;  // half of what may be wrong
    }
  }
}

// A process makes the batches of the replicas that it has ranks of, and the same as if all were
// there.
TEST(Batches, AreMadeForTheReplicasThatAreHere) {
  Ready all = ready(Family::Gpt2, {"data_parallel=2", "context_parallel=2"});
  start(all);
  const Batch whole = make_batch(*all.process, all.scenario.plan, synthetic(), 8);
  ASSERT_EQ(whole.inputs.size(), 4U);
  all.process->inputs(0).clear();
  all.process->inputs(1).clear();
  all.process->inputs(3).clear();
  EXPECT_TRUE(all.process->holds_replica(2));
  EXPECT_FALSE(all.process->holds_replica(3));
  const Batch part = make_batch(*all.process, all.scenario.plan, synthetic(), 8);
  for (const std::size_t r : {0U, 1U, 3U})
    EXPECT_TRUE(part.inputs[r].empty() && part.targets[r].empty());
  EXPECT_FALSE(part.inputs[2].empty());
  EXPECT_EQ(part.inputs[2], whole.inputs[2]);
  EXPECT_EQ(part.targets[2], whole.targets[2]);
}

// Weights depend on name and element, not on how many threads draw them.
TEST(Initial, WeightsAreTheSameWhoeverDrawsThem) {
  const auto drawn = [](int threads) {
    Ready on = ready(Family::Llama, {"tensor_parallel=2", "data_parallel=2", "zero_stage=3"});
    start(on);
    on.process->initialise([](const std::string&, std::int64_t) { return 7.0; });
    on.process->initialise(initial_values(on.scenario.model, on.scenario.train.seed), threads);
    std::vector<std::vector<float>> weights;
    for (const TensorPlace& place : on.process->places()) {
      weights.push_back(on.process->parameter(place.name));
    }
    return weights;
  };
  const auto one = drawn(1);
  EXPECT_EQ(drawn(3), one);
  EXPECT_EQ(drawn(16), one);
}

// Step 1 of steps [1, 4) says stop; then its error is the run's.
TEST(Train, EndsWhenItsCallerSaysSo) {
  Ready on = ready(Family::Gpt2, {});
  start(on);
  for (const bool fails : {false, true}) {
    std::int64_t last = -1;
    const auto steps = train(*on.process, on.scenario.plan, on.scenario.train, synthetic(),
                             [&](const StepReport& step) -> Result<AfterStep> {
                               last = step.step;
                               if (step.step == 2 && fails) return Error{"no space"};
                               return AfterStep{.go_on = step.step < 2};
                             },
                             {.step = 1, .samples = 8});
    EXPECT_EQ(last, 2);
    EXPECT_EQ(static_cast<bool>(steps), !fails);
    EXPECT_EQ(steps ? steps.value().size() : 2U, 2U);
  }
}

TEST(Train, SaysThatItDiverged) {
  Ready on = ready(Family::Gpt2, {});
  start(on);
  TrainOptions options = on.scenario.train;
  options.learning_rate = 1e30;
  options.clip_norm = 0;
  options.steps = 10;
  const auto steps = train(*on.process, on.scenario.plan, options, synthetic(), nullptr);
  ASSERT_FALSE(steps);
  EXPECT_TRUE(steps.error().infeasible);
  EXPECT_NE(steps.error().message.find("diverged at step"), std::string::npos)
      << steps.error().message;
}

TEST(Train, RefusesADeviceThatWasOpenedForAnotherPrecision) {
  Ready on = ready(Family::Gpt2, {"precision=\"bf16\""});
  const auto made =
      Interpreter::create({on.scenario.model, on.scenario.plan}, on.schedule, on.backend, {});
  ASSERT_FALSE(made);
  EXPECT_NE(made.error().message.find("plan.precision"), std::string::npos);
}

// What was measured obeys the schedule: streams in order, no op before what it waits for.
TEST(Times, HonourStreamsAndWaits) {
  for (const int workers : {1, 2}) {
    Ready on =
        ready(Family::Gpt2, {"pipeline_parallel=2", "tensor_parallel=2", "data_parallel=2",
                             "schedule=interleaved_1f1b", "virtual_stages=2", "zero_stage=2"});
    start(on, workers);
    load_batch(*on.process, on.scenario.plan, synthetic(), 0);
    const auto ran = on.process->run({.learning_rate = 0.01, .train = on.scenario.train});
    ASSERT_TRUE(ran) << ran.error().message;
    const auto &begin = on.process->start(), &end = on.process->end();
    const Schedule s = unfold(on.schedule, on.scenario.plan);
    ASSERT_EQ(begin.size(), s.ops.size());
    for (std::int32_t row = 0; row < s.num_rows(); ++row) {
      std::array<std::int64_t, kNumStreams> reached{};
      for (auto i = s.first_op({row}); i < s.first_op({row + 1}); ++i) {
        const OpId id{static_cast<std::int32_t>(i)};
        EXPECT_LE(begin[i], end[i]);
        EXPECT_LE(end[i].value, ran.value().wall_ns);
        std::int64_t& stream = reached[static_cast<std::size_t>(s.ops[i].stream)];
        EXPECT_GE(begin[i].value, stream);
        stream = end[i].value;
        for (const OpId wait : s.waits_of(id)) EXPECT_LE(end[wait.index()], begin[i]);
      }
    }
  }
}

// A device whose clock says what it is told to: op i of rank r runs from 1000 r + 10 i on, 5 ns.
class ToldTimes : public NullDevice {
 public:
  ToldTimes() : NullDevice(true, nullptr) {}
  bool times(std::int32_t rank, OpId op, Nanoseconds* start, Nanoseconds* end) override {
    *start = {1000 * rank + 10 * op.value};
    *end = *start + Nanoseconds{5};
    return true;
  }
};

TEST(Times, EveryRankHasItsOwn) {
  Ready on = ready(Family::Gpt2, {"pipeline_parallel=2", "tensor_parallel=2", "data_parallel=2",
                                  "schedule=1f1b", "zero_stage=1"});
  on.backend = {std::make_unique<ToldTimes>(), std::make_unique<NullKernels>(nullptr)};
  auto made =
      Interpreter::create({on.scenario.model, on.scenario.plan}, on.schedule, on.backend, {});
  ASSERT_TRUE(made) << made.error().message;
  Interpreter& process = *made.value();
  const auto ran = process.run({.learning_rate = 0.01, .train = on.scenario.train});
  std::size_t at = 0;
  std::int32_t rank = 0;
  for (const RankClass row : rows_of_ranks(on.scenario.plan, on.schedule)) {
    for (std::size_t i = on.schedule.first_op(row); i < on.schedule.first_op({row.value + 1});
         ++i, ++at) {
      const Nanoseconds told{1000 * rank + 10 * static_cast<std::int64_t>(i)};
      ASSERT_EQ(process.start()[at], told) << "rank " << rank << ", op " << i;
      ASSERT_EQ(process.end()[at], told + Nanoseconds{5});
    }
    ++rank;
  }
  EXPECT_EQ(rank, 8);
  EXPECT_EQ(process.start().size(), at);
}

// Who waits for the other end does not transfer yet.
TEST(Times, OpsThatMeetBeginWithTheLastOfThem) {
  Schedule schedule;
  schedule.level = Level::Full;
  const MatchId meeting{0}, left_behind{1}, collective{2};
  schedule.ops = {{.kind = OpKind::Forward},
                  {.kind = OpKind::Send, .match = meeting},
                  {.kind = OpKind::Send, .match = left_behind},
                  {.kind = OpKind::AllReduce, .match = collective}};
  schedule.end_row();
  schedule.ops.insert(schedule.ops.end(), {{.kind = OpKind::Recv, .match = meeting},
                                           {.kind = OpKind::Recv, .match = left_behind},
                                           {.kind = OpKind::AllReduce, .match = collective}});
  schedule.end_row();
  const std::vector<Nanoseconds> start{{0}, {100}, {110}, {200}, {5}, {150}, {160}};
  const std::vector<Nanoseconds> end{{100}, {110}, {115}, {260}, {110}, {155}, {260}};
  const std::vector<Nanoseconds> expected{{0},            // meets nobody
                                          {100}, {110},   // the second was gone before its RECV
                                          {200}, {100},   // the RECV waited for its SEND
                                          {150}, {200}};  // the other rank came at 200
  EXPECT_EQ(rendezvous_starts(schedule, start, end), expected);
}

}  // namespace
}  // namespace rehearse::exec
