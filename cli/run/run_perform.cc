// SPDX-License-Identifier: Apache-2.0
// A run, really: what a person sees of it, and what it leaves behind.
#include <malloc.h>
#include <unistd.h>

#include <cstdio>

#include "cli/commands.h"
#include "cli/run/run.h"
#include "cli/run/run_report.h"
#include "cli/run/stop_signals.h"
#include "exec/processes/launcher.h"
#include "exec/run/machine_memory.h"
#include "exec/run/output_files.h"

namespace rehearse::cli {
namespace {

// The part of this process.
int perform(const RunFlags& flags, const Scenario& scenario, const Schedule& schedule,
            const PriceOps& order_by, const exec::RunDevice& device, exec::Processes& all) {
  // Sums of large arrays that other processes send go back to the system (main keeps what schedules
  // need).
  mallopt(M_MMAP_THRESHOLD, 1 << 27);
  const StopSignals signals;
  const auto failed = [&all](const Error& error) {
    return all.fail(error.message, exit_code(error));
  };
  auto opened = exec::TrainingRun::open(scenario, schedule, device, all, flags.run());
  if (!opened) return failed(opened.error());
  std::unique_ptr<exec::TrainingRun> training = std::move(opened).value();
  exec::Metrics metrics;
  if (const Result<> good = metrics.open(all.first() ? flags.metrics : std::string()); !good) {
    return failed(good.error());
  }
  const std::int64_t peak = training->peak_bytes();
  const bool terminal = all.first() && isatty(STDERR_FILENO) != 0;
  const auto after_step = [&](const exec::StepReport& step) {
    metrics.add(metrics_line({scenario.model, scenario.plan}, step, peak));
    if (!terminal) return;
    std::fprintf(stderr, "\r\033[K%s", progress_line(step, scenario.train.steps, peak).c_str());
  };
  const Result<int> stopped_by = training->train(after_step, StopSignals::received);
  if (terminal) std::fprintf(stderr, "\r\033[K");
  if (!stopped_by) return failed(stopped_by.error());
  if (const Result<> good = metrics.finish(); !good)
    return all.fail(good.error().message, kRunFailed);
  const Result<exec::Measurement> measured = training->measure();
  if (!measured) return failed(measured.error());
  training.reset();  // the report's own tables need not lie beside the arenas
  const exec::Measurement& measurement = measured.value();
  if (all.first()) {
    const Trace trace = measured_trace(measurement);
    if (!flags.trace.empty()) {
      const Result<> written = write_trace(trace, flags.trace);
      if (!written) return all.fail(written.error().message, kRunFailed);
    }
    print_text(flags.json ? measurement_json(measurement, trace, order_by)
                          : measurement_text(measurement, trace, order_by));
  }
  if (stopped_by.value() != 0 && all.first()) {
    print_error("run: stopped after step " + std::to_string(measurement.steps.back().step + 1) +
                (flags.checkpoint.empty() ? ", without a checkpoint"
                                          : ", checkpoint in " + flags.checkpoint));
  }
  if (!all.leave()) return kRunFailed;
  return stopped_by.value() != 0 ? kSignalled + stopped_by.value() : kDone;
}

// Both ends of a link are as slow as each other. Our launcher starts all processes alike.
Result<> same_throttle(const RunFlags& flags, exec::Processes& all) {
  if (all.launched() || all.count() == 1) return {};
  const Result<std::string> first = all.share(flags.throttle);
  if (!first) return first.error();
  return all.agree(first.value() == flags.throttle
                       ? Result<>()
                       : Error{"run: --throttle: process 0 has '" + first.value() + "', process " +
                               std::to_string(all.number()) + " '" + flags.throttle + "'"});
}

}  // namespace

exec::RunOptions RunFlags::run() const {
  return {.name = scenario,
          .checkpoint = checkpoint,
          .resume = resume,
          .drives = offload_dir,
          .output = trace,
          .threads = threads,
          .timeout_s = timeout,
          .program = program,
          .say = print_error};
}

int perform_run(const RunFlags& flags, const Scenario& scenario, const Schedule& schedule,
                const PriceOps& order_by, const exec::RunDevice& device, std::int32_t processes,
                const std::optional<exec::LaunchEnvironment>& launch) {
  exec::Processes all(print_error);
  if (launch) {
    const Result<> joined = all.join(*launch, scenario.plan, schedule,
                                     {.steps = scenario.train.steps,
                                      .timeout_s = flags.timeout,
                                      .flight = flags.flight,
                                      .version = REHEARSE_VERSION,
                                      .throttle = flags.links()});
    if (!joined) return all.fail("run: " + joined.error().message, exit_code(joined.error()));
    if (const Result<> same = same_throttle(flags, all); !same) {
      return all.fail(same.error().message, exit_code(same.error()));
    }
  }
  if (launch || processes == 1) return perform(flags, scenario, schedule, order_by, device, all);
  if (!device.cuda()) {
    std::string said_later;  // by process 0
    const Result<> room =
        exec::enough_memory(exec::plan_memory(flags.run(), scenario, scenario.plan, schedule,
                                              processes, processes, true),
                            processes, processes, said_later);
    if (!room) return fail(flags.scenario + ": " + room.error().message, kRunFailed);
  }
  return exec::launch_processes({.processes = processes,
                                 .plan = &scenario.plan,
                                 .schedule = &schedule,
                                 .version = REHEARSE_VERSION,
                                 .steps = scenario.train.steps,
                                 .timeout_s = flags.timeout,
                                 .flight = flags.flight,
                                 .print_error = print_error});
}

}  // namespace rehearse::cli
