// SPDX-License-Identifier: Apache-2.0
// From a name to a proved schedule: generate, time, lower, validate. Single-threaded.
//   ninja proof_bench && build/release/bin/proof_bench
#include <benchmark/benchmark.h>

#include "schedules/order/registry.h"
#include "schedules/passes/lower.h"
#include "schedules/proof/validate.h"
#include "schedules/scenario/plan_shape.h"
#include "schedules/scenario/scenario.h"
#include "schedules/transfers/add_transfers.h"

namespace rehearse {
namespace {

ScheduleShape shape_of(const benchmark::State& state) {
  return {.positions = static_cast<std::int32_t>(state.range(0)),
          .microbatches = static_cast<std::int32_t>(state.range(1)),
          .chunks = static_cast<std::int32_t>(state.range(2))};
}
Schedule order_of(const benchmark::State& state) {
  return generate("interleaved_1f1b", shape_of(state)).value();
}
std::vector<Nanoseconds> finish_of(const Schedule& order) {
  return prove_no_deadlock(order, StreamModel::One).finish;
}

void count_ops(benchmark::State& state, const Schedule& schedule) {
  state.counters["ops"] = static_cast<double>(schedule.num_ops());
  state.counters["ops/s"] = benchmark::Counter(
      static_cast<double>(schedule.num_ops()) * static_cast<double>(state.iterations()),
      benchmark::Counter::kIsRate);
}

// The target of issue 3: p=64, m=512, v=4 in 150 ms, p=16, m=128 in 10 ms.
void GenerateLowerAndProve(benchmark::State& state) {
  Schedule lowered;
  for (auto _ : state) {
    const Schedule order = order_of(state);
    lowered = add_transfers(order, finish_of(order));
    const Validation validation = validate(lowered, {.compute_order = &order});
    if (!validation.sound()) state.SkipWithError("not sound");
  }
  count_ops(state, lowered);
}

void Generate(benchmark::State& state) {
  Schedule order;
  for (auto _ : state) order = order_of(state);
  count_ops(state, order);
}

void TimeOrder(benchmark::State& state) {
  const Schedule order = order_of(state);
  for (auto _ : state) benchmark::DoNotOptimize(finish_of(order));
  count_ops(state, order);
}

void AddTransfers(benchmark::State& state) {
  const Schedule order = order_of(state);
  const std::vector<Nanoseconds> finish = finish_of(order);
  Schedule lowered;
  for (auto _ : state) lowered = add_transfers(order, finish);
  count_ops(state, lowered);
}

// Every pass: transfers, gathers and reductions, events, arena. The plan of a GPT of a layer per
// stage.
void Lower(benchmark::State& state) {
  const std::string p = std::to_string(state.range(0)), m = std::to_string(state.range(1)),
                    v = std::to_string(state.range(2)),
                    layers = std::to_string(state.range(0) * state.range(2));
  const Result<Scenario> scenario = parse_scenario(
      R"({"model": {"model_type": "gpt2", "n_embd": 1024, "n_head": 16, "n_layer": )" + layers +
          R"(}, "cluster": "dgx-a100-80gb", "gpus": )" + p +
          R"(, "plan": {"schedule": "interleaved_1f1b", "micro_batch": 1, )" +
          R"("sequence_length": 1024, "pipeline_parallel": )" + p + R"(, "virtual_stages": )" + v +
          R"(, "global_batch": )" + m + "}}",
      "bench", 1, {});
  if (!scenario) return state.SkipWithError(scenario.error().message.c_str());
  const Plan& plan = scenario.value().plan;
  const Schedule order = generate(plan.schedule, rehearse::shape_of(plan).value()).value();
  Schedule lowered;
  for (auto _ : state) lowered = lower(order, {scenario.value().model, plan}, {}).value();
  count_ops(state, lowered);
}

void Validate(benchmark::State& state) {
  const Schedule order = order_of(state);
  const Schedule lowered = add_transfers(order, finish_of(order));
  for (auto _ : state) benchmark::DoNotOptimize(validate(lowered, {.compute_order = &order}));
  count_ops(state, lowered);
}

void ProveNoDeadlock(benchmark::State& state) {
  const Schedule order = order_of(state);
  const Schedule lowered = add_transfers(order, finish_of(order));
  for (auto _ : state) {
    benchmark::DoNotOptimize(prove_no_deadlock_untimed(lowered, StreamModel::One));
  }
  count_ops(state, lowered);
}

void sizes(benchmark::internal::Benchmark* bench) {
  bench->Args({16, 128, 4})->Args({64, 512, 4})->Unit(benchmark::kMillisecond);
}
BENCHMARK(GenerateLowerAndProve)->Apply(sizes);
BENCHMARK(Generate)->Apply(sizes);
BENCHMARK(TimeOrder)->Apply(sizes);
BENCHMARK(AddTransfers)->Apply(sizes);
BENCHMARK(Lower)->Args({8, 64, 2})->Unit(benchmark::kMillisecond);
BENCHMARK(Validate)->Apply(sizes);
BENCHMARK(ProveNoDeadlock)->Apply(sizes);

}  // namespace
}  // namespace rehearse

BENCHMARK_MAIN();
