// SPDX-License-Identifier: Apache-2.0
// How fast the two engines are, on interleaved 1F1B with all its transfers. Counter `ops/s` counts
// ops of the schedule (both ends of a transfer), as docs/simulator.md does.
#include <benchmark/benchmark.h>

#include <cstdlib>

#include "schedules/order/registry.h"
#include "schedules/timing/compute_timing.h"
#include "schedules/transfers/add_transfers.h"
#include "sim/engine/bubbles.h"
#include "sim/engine/event_engine.h"
#include "sim/engine/sweep.h"

namespace rehearse::sim {
namespace {

Schedule lowered(std::int32_t positions, std::int32_t microbatches, std::int32_t chunks) {
  const Schedule l0 =
      generate("interleaved_1f1b",
               {.positions = positions, .microbatches = microbatches, .chunks = chunks})
          .value();
  return add_transfers(l0, time_compute(l0, {}).value().end);
}

enum class Costs : std::uint8_t { Times, All, IdleLinks };

// Forward 1 ms, backward 2 ms, transfers 0.2 ms. All: host time, bodies that communicate, transfers
// that slow compute and share links. A transfer takes 0.7 of its row's way out and of its peer's
// way in, 0.3 of the link of each node (four rows): with four rows at once on it, that is
// contended. IdleLinks: the same with a tenth of each share, so that no link can ever be full.
CostTable costs_of(const Schedule& schedule, Costs which) {
  CostTable table;
  const bool all = which != Costs::Times;
  const double part = which == Costs::IdleLinks ? 0.1 : 1;
  const std::int32_t rows = schedule.num_rows();
  table.num_resources = 3 * rows;
  for (const std::int64_t time : {1'000'000, 2'000'000}) {
    table.costs.push_back(
        {.time = {time}, .host = {all ? 100'000 : 0}, .communicating = {all ? time / 8 : 0}});
  }
  const auto nodes = [](std::int32_t row) { return row / 4; };
  for (std::int32_t from = 0; from < rows; ++from) {
    for (const std::int32_t to : {(from + 1) % rows, (from + rows - 1) % rows}) {
      Cost cost{.time = {200'000}, .host = {all ? 5'000 : 0}, .slowdown = all ? 0.1 : 0.0};
      cost.demand_begin = static_cast<std::int32_t>(table.demands.size());
      if (all) {
        table.demands.push_back({{from}, 0.7 * part});
        table.demands.push_back({{rows + to}, 0.7 * part});
        table.demands.push_back({{2 * rows + nodes(from)}, 0.3 * part});
        if (nodes(to) != nodes(from)) table.demands.push_back({{2 * rows + nodes(to)}, 0.3 * part});
      }
      cost.demand_end = static_cast<std::int32_t>(table.demands.size());
      table.costs.push_back(cost);
    }
  }
  for (RankClass row{0}; row.value < rows; ++row.value) {
    for (const Op& op : schedule.program(row)) {
      std::int32_t cost = op.kind == OpKind::Forward ? 0 : 1;
      if (traits(op.kind).op_class == OpClass::Transfer) {
        const bool sends = op.kind == OpKind::Send;
        const std::int32_t from = sends ? row.value : op.peer.value;
        const std::int32_t to = sends ? op.peer.value : row.value;
        cost = 2 + 2 * from + (to == (from + 1) % rows ? 0 : 1);
      }
      table.of_op.push_back(cost);
    }
  }
  return table;
}

struct Setting {
  Schedule schedule;
  Program program;
  CostTable costs;
};

Setting setting(const benchmark::State& state, Costs which) {
  Setting s{.schedule = lowered(static_cast<std::int32_t>(state.range(0)),
                                static_cast<std::int32_t>(state.range(1)),
                                static_cast<std::int32_t>(state.range(2)))};
  s.program = compile(s.schedule);
  s.costs = costs_of(s.schedule, which);
  if (!s.program.deadlock.empty()) std::abort();
  return s;
}

void count(benchmark::State& state, const Setting& s) {
  const auto ops = static_cast<double>(s.program.num_ops);
  state.counters["ops"] = ops;
  state.counters["nodes"] = s.program.num_nodes;
  state.counters["ops/s"] = benchmark::Counter(ops, benchmark::Counter::kIsIterationInvariantRate);
}

void compile_program(benchmark::State& state) {
  const Setting s = setting(state, Costs::Times);
  for (auto _ : state) benchmark::DoNotOptimize(compile(s.schedule));
  count(state, s);
}

void sweep_reused(benchmark::State& state) {
  const Setting s = setting(state, Costs::Times);
  const NodeTimes times = bind(s.program, s.costs);
  std::vector<Nanoseconds> start(times.time.size()), end(times.time.size());
  for (auto _ : state) benchmark::DoNotOptimize(sweep(s.program, times, start, end));
  count(state, s);
}

void sweep_new_costs(benchmark::State& state) {
  const Setting s = setting(state, Costs::Times);
  NodeTimes times = bind(s.program, s.costs);
  std::vector<Nanoseconds> start(times.time.size()), end(times.time.size());
  for (auto _ : state) {
    rebind(s.program, s.costs, times);
    benchmark::DoNotOptimize(sweep(s.program, times, start, end));
  }
  count(state, s);
}

void sweep_to_timeline(benchmark::State& state) {
  const Setting s = setting(state, Costs::All);
  for (auto _ : state) benchmark::DoNotOptimize(sweep(s.program, s.costs));
  count(state, s);
}

void events(benchmark::State& state, Costs which) {
  const Setting s = setting(state, which);
  for (auto _ : state) benchmark::DoNotOptimize(simulate(s.program, s.costs));
  count(state, s);
}
void events_alone(benchmark::State& state) {
  events(state, Costs::Times);
}
void events_all_costs(benchmark::State& state) {
  events(state, Costs::All);
}

void events_idle_links(benchmark::State& state) {
  events(state, Costs::IdleLinks);
}

void attribute_bubbles(benchmark::State& state) {
  const Setting s = setting(state, Costs::All);
  const Timeline timeline = simulate(s.program, s.costs).value();
  for (auto _ : state) benchmark::DoNotOptimize(attribute(s.program, s.costs, timeline));
  count(state, s);
}

// positions, micro-batches, chunks.
void sizes(benchmark::internal::Benchmark* b) {
  b->Args({64, 512, 4})
      ->Args({64, 64, 1})
      ->Args({16, 256, 1})
      ->Args({8, 64, 2})
      ->Unit(benchmark::kMillisecond);
}
BENCHMARK(compile_program)->Apply(sizes);
BENCHMARK(sweep_reused)->Apply(sizes);
BENCHMARK(sweep_new_costs)->Apply(sizes);
BENCHMARK(sweep_to_timeline)->Apply(sizes);
BENCHMARK(events_alone)->Apply(sizes);
BENCHMARK(events_all_costs)->Apply(sizes);
BENCHMARK(events_idle_links)->Apply(sizes);
BENCHMARK(attribute_bubbles)->Apply(sizes);

}  // namespace
}  // namespace rehearse::sim

BENCHMARK_MAIN();
