// SPDX-License-Identifier: Apache-2.0
// Writes a schedule as a list of ops for the peers, with our makespan and time for it:
//   write_ops POSITIONS MICROBATCHES CHUNKS > FILE
// First line: `makespan_ns seconds_of_one_sweep seconds_of_one_event_run`. Then one op a line, in
// order of rows: `row stream time_ns match waits...` (match -1: none; waits are op numbers).
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "schedules/order/registry.h"
#include "schedules/timing/compute_timing.h"
#include "schedules/transfers/add_transfers.h"
#include "sim/engine/event_engine.h"
#include "sim/engine/sweep.h"

namespace {

using namespace rehearse;

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: write_ops POSITIONS MICROBATCHES CHUNKS\n");
    return 2;
  }
  const Result<Schedule> l0 = generate("interleaved_1f1b", {.positions = std::atoi(argv[1]),
                                                            .microbatches = std::atoi(argv[2]),
                                                            .chunks = std::atoi(argv[3])});
  if (!l0) {
    std::fprintf(stderr, "write_ops: %s\n", l0.error().message.c_str());
    return 2;
  }
  const Schedule schedule = add_transfers(l0.value(), time_compute(l0.value(), {}).value().end);
  sim::CostTable costs{
      .costs = {{.time = {1'000'000}}, {.time = {2'000'000}}, {.time = {200'000}}}};
  for (const Op& op : schedule.ops) {
    const bool transfers = traits(op.kind).op_class == OpClass::Transfer;
    costs.of_op.push_back(transfers ? 2 : op.kind == OpKind::Forward ? 0 : 1);
  }
  const sim::Program program = sim::compile(schedule);
  const sim::NodeTimes times = sim::bind(program, costs);
  std::vector<Nanoseconds> start(times.time.size()), end(times.time.size());
  sim::sweep(program, times, start, end);  // once to touch the memory
  auto begin = std::chrono::steady_clock::now();
  const Nanoseconds makespan = sim::sweep(program, times, start, end);
  const double of_sweep = seconds_since(begin);
  begin = std::chrono::steady_clock::now();
  const Nanoseconds of_events = sim::simulate(program, costs).value().finish;
  const double of_run = seconds_since(begin);
  if (of_events != makespan) {
    std::fprintf(stderr, "write_ops: the engines differ\n");
    return 1;
  }
  std::printf("%lld %.9f %.9f\n", static_cast<long long>(makespan.value), of_sweep, of_run);
  for (std::int32_t i = 0; i < schedule.num_ops(); ++i) {
    const Op& op = schedule.ops[static_cast<std::size_t>(i)];
    std::printf("%d %d %lld %d", schedule.row_of({i}).value, static_cast<int>(op.stream),
                static_cast<long long>(costs.cost({i}).time.value), op.match.value);
    for (const OpId wait : schedule.waits_of({i})) std::printf(" %d", wait.value);
    std::printf("\n");
  }
  return 0;
}
