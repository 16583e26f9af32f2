// SPDX-License-Identifier: Apache-2.0
// rehearse run: the scenario's schedule, really performed: all ranks in this process, on its CPU.
#include <malloc.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>

#include "cli/commands.h"
#include "cli/open.h"
#include "cli/run_device.h"
#include "cli/run_files.h"
#include "cli/run_memory.h"
#include "cli/run_processes.h"
#include "cli/run_report.h"
#include "cli/stop_signals.h"
#include "exec/checkpoint/checkpoint.h"
#include "exec/cpu/kernels/gemm.h"
#include "exec/processes/launcher.h"
#include "exec/step/interpreter.h"
#include "exec/store/secret.h"
#include "exec/train/data.h"
#include "exec/train/train.h"
#include "exec/weights/initial.h"
#include "schedules/passes/plan_order.h"
#include "sim/predict/overlap_note.h"
#include "sim/predict/predicted_trace.h"
#include "sim/predict/report.h"
#include "sim/predict/zero_order.h"

namespace rehearse::cli {
namespace {

struct Options : ScenarioFlags {
  std::string device = "auto", trace, metrics, data, checkpoint, resume, flight;
  std::int64_t steps = 0;
  std::int32_t processes = 1;
  int threads = 0;
  double timeout = 600;
  bool dry_run = false, json = false;
  exec::ProcessMemory program;  // this process's, before anything was read
};

// With our runtime and in a precision that the device runs. A plan of another one is read again.
Result<Scenario> read(const Options& options, const RunDevice& device) {
  ScenarioOptions how = options.options();
  how.runtime = Runtime::Rehearse;
  Result<Scenario> first = read_scenario(options.scenario, how);
  if (!first) return first;
  const Plan& plan = first.value().plan;
  const Precision runs = device.precision(plan.precision, plan.zero_stage);
  if (plan.runtime == Runtime::Rehearse && plan.precision == runs) return first;
  std::string said;
  if (!(plan.precision == runs)) {
    said = "plan.precision: " + plan.precision.name + " is run as " + runs.name + " (" +
           std::to_string(runs.parameters) + "+" + std::to_string(runs.gradients) + "+" +
           std::to_string(runs.optimizer) + " bytes per parameter)";
    how.overrides.push_back("plan.precision=" + runs.name);
  }
  how.overrides.push_back("plan.runtime=rehearse");
  Result<Scenario> again = read_scenario(options.scenario, how);
  if (!again) return again;
  Scenario scenario = std::move(again).value();
  if (!said.empty()) scenario.warnings.push_back(said);
  scenario.run_notes = first.value().run_notes;  // of what the files say, not of what is run
  return scenario;
}

// The order of a planned schedule is chosen once for a file: as `simulate` of it chooses, on the
// cluster that the file names. So it depends neither on the machine that runs it nor on a --cluster
// that describes this machine, and a prediction of the run has the run's order.
Result<> choose_order(const Options& options, Scenario& scenario) {
  Plan& plan = scenario.plan;
  if (!leaves_order_open(plan)) return {};
  ScenarioOptions how = options.options();
  how.cluster.reset();
  how.overrides.push_back("plan.micro_batch=" + std::to_string(plan.micro_batch));
  Result<Scenario> as_simulated = read_scenario(options.scenario, how);
  if (!as_simulated && !options.cluster.empty()) {  // a file that names no cluster
    how.cluster = options.cluster;
    as_simulated = read_scenario(options.scenario, how);
  }
  if (!as_simulated) return as_simulated.error();
  const Result<sim::Cluster> cluster = sim::read_cluster(as_simulated.value().cluster);
  if (!cluster) return cluster.error();
  const Result<sim::Prediction> made =
      predict(options.scenario, as_simulated.value(), cluster.value());
  if (!made) return made.error();
  const Plan& chosen = made.value().plan;
  plan.order = chosen.order;
  plan.virtual_stages = chosen.virtual_stages;
  plan.stage_layers = chosen.stage_layers;
  plan.sequence_slices = chosen.sequence_slices;
  plan.memory_limit = chosen.memory_limit;
  plan.chunks_open = plan.slices_open = false;
  return {};
}

// Threads of a process: its share of the machine, at most one per rank.
int workers_of(const Options& options, const Plan& plan, std::int32_t processes,
               std::int32_t processes_here) {
  if (options.threads > 0) return options.threads;
  const int hardware = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  return std::max(1, std::min(hardware / processes_here, plan.gpus() / processes));
}

// What the processes will hold in memory.
ResidentPlan plan_memory(const Options& options, const Scenario& scenario, const Plan& plan,
                         const Schedule& schedule, std::int32_t processes,
                         std::int32_t processes_here, bool launched) {
  return exec::plan_resident(scenario.model, plan, schedule,
                             {.processes = processes,
                              .launched = launched,
                              .workers = workers_of(options, plan, processes, processes_here),
                              .data_tokens = data_tokens(scenario.train.data),
                              .checkpoints = !options.checkpoint.empty(),
                              .program = options.program,
                              .now = exec::process_memory()});
}

// Of a run in so many processes of this machine.
int dry_run(const Options& options, const Scenario& scenario, const RunDevice& device,
            std::int32_t processes) {
  const auto begin = std::chrono::steady_clock::now();
  Result<sim::Cluster> read = sim::read_cluster(scenario.cluster);
  if (!read) return fail(read.error().message);
  sim::Cluster cluster = std::move(read).value();
  if (cluster.workers > 0 && processes > 1) {
    cluster.processes = processes;
    cluster.between_processes =
        neighbors_allowed() ? sim::ProcessLink::Memory : sim::ProcessLink::Tcp;
  }
  Result<sim::Prediction> made = predict(options.scenario, scenario, cluster);
  if (!made) return fail(made.error().message);
  sim::Prediction prediction = std::move(made).value();
  prediction.memory.note =
      sim::zero_order_note(scenario.model, prediction.plan, prediction.schedule);
  prediction.overlap_note = sim::overlap_note(scenario, cluster, prediction);
  if (!device.cuda()) {
    prediction.resident = plan_memory(options, scenario, prediction.plan, prediction.schedule,
                                      processes, processes, processes > 1);
  }
  if (!options.trace.empty()) {
    Trace trace = sim::predicted_trace(prediction, scenario, cluster);
    if (prediction.resident)
      trace.resident_bytes = std::vector<std::int64_t>{prediction.resident->total(), 0};
    const Result<> written = write_trace(trace, options.trace);
    if (!written) return fail(written.error().message);
  }
  prediction.wall_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const std::string text = options.json ? sim::report_json(prediction, scenario, cluster)
                                        : sim::report_text(prediction, scenario, cluster);
  print_text(text);
  return kDone;
}

// The plan, checked: the largest sum alive over the addresses of its ops is the plan's figure.
Result<> memory_as_planned(const Measurement& measurement) {
  for (std::size_t row = 0; row < measurement.counted.size(); ++row) {
    if (measurement.counted[row] == measurement.schedule->live_peak_bytes[row].value) continue;
    return Error{"rank class " + std::to_string(row) + " used " +
                 std::to_string(measurement.counted[row]) + " bytes, its plan says " +
                 std::to_string(measurement.schedule->live_peak_bytes[row].value)};
  }
  return {};
}

// First weights, or those of --resume; where the run goes on.
Result<exec::TrainFrom> begin(const Options& options, const Scenario& scenario,
                              exec::Interpreter& process, bool speaks) {
  const TrainOptions& train = scenario.train;
  if (options.resume.empty()) {
    process.initialise(exec::initial_values(scenario.model, train.seed));
    return exec::TrainFrom{};
  }
  const Result<exec::Checkpoint> opened =
      exec::Checkpoint::open(options.resume, scenario.model, scenario.plan, process.places());
  if (!opened) return opened.error();
  const exec::CheckpointState& state = opened.value().state();
  if (state.step >= train.steps) {
    return Error{options.resume + ": has done " + std::to_string(state.step) +
                 " steps, train.steps is " + std::to_string(train.steps) +
                 ": nothing is left to do"};
  }
  if (const Result<> loaded = opened.value().load(process); !loaded) return loaded.error();
  if (speaks && !opened.value().note().empty()) print_error(opened.value().note());
  // With another sequence length the next whole sample of that length.
  const std::int64_t tokens = state.samples * state.sequence_length,
                     length = scenario.plan.sequence_length;
  return exec::TrainFrom{.step = state.step, .samples = (tokens + length - 1) / length};
}

// Writes the checkpoint that is due after a step: every checkpoint_every steps, and at the end.
Result<> write_checkpoint(const Options& options, const Scenario& scenario,
                          const Schedule& schedule, const exec::Interpreter& process,
                          const exec::TrainFrom& from, const exec::StepReport& step, bool last,
                          Processes& all) {
  const std::int64_t done = step.step + 1, every = scenario.train.checkpoint_every;
  const bool due = last || (every > 0 && done % every == 0);
  if (options.checkpoint.empty() || !due) return {};
  const exec::CheckpointState state{
      .step = done,
      .samples = from.samples + (done - from.step) * scenario.plan.global_batch,
      .sequence_length = scenario.plan.sequence_length,
      .seed = scenario.train.seed,
      .data = scenario.train.data,
      .learning_rate = step.learning_rate,
      .loss = step.loss,
      .grad_norm = step.grad_norm,
      .schedule_hash = content_hash(schedule),
      .plan = plan_json(scenario.plan, 0)};
  const exec::Together together{.first = all.first(),
                                .agree = [&all](const Result<>& own) { return all.agree(own); }};
  const Result<> saved = exec::save_checkpoint(options.checkpoint, state, process, together);
  if (saved || !saved.error().infeasible) return saved;
  return Error{.message = "diverged at step " + std::to_string(done) + ": " +
                          saved.error().message + ": no checkpoint of it is written",
               .infeasible = true};
}

int cores() {
  return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

// Files that a run writes or needs, before anything is computed.
Result<> prepare_files(const Options& options, const Processes& all) {
  if (!all.first()) return {};
  if (const Result<> good = check_output(options.trace); !good) return good;
  return options.checkpoint.empty() ? Result<>() : exec::prepare_checkpoints(options.checkpoint);
}

int perform(const Options& options, const Scenario& scenario, const Schedule& schedule,
            const RunDevice& device, Processes& all) {
  // Sums of large arrays that other processes send go back to the system (main keeps what schedules
  // need).
  mallopt(M_MMAP_THRESHOLD, 1 << 27);
  const StopSignals signals;
  const std::string where = options.scenario + ": ";
  std::optional<ResidentPlan> resident;  // on a GPU its arenas are there
  if (!device.cuda()) {
    resident = plan_memory(options, scenario, scenario.plan, schedule, all.count(), all.here(),
                           all.launched());
    std::string warning;
    const Result<> room = enough_memory(*resident, all.here(), all.count(), warning);
    if (!room) return all.fail(where + room.error().message, kRunFailed);
    if (all.first() && !warning.empty()) print_error(where + warning);
  }
  const Result<exec::Data> data =
      exec::Data::open(scenario.train.data, scenario.model.vocabulary, scenario.train.seed);
  if (!data) return all.fail(where + "train.data: " + data.error().message, kBadInput);
  if (const Result<> good = prepare_files(options, all); !good)
    return all.fail(good.error().message, kBadInput);

  const int workers = workers_of(options, scenario.plan, all.count(), all.here());
  malloc_trim(0);  // what reading and lowering needed
  Result<std::unique_ptr<exec::Backend>> opened =
      device.make_backend(scenario.plan, schedule, all.local(), options.timeout);
  if (!opened) return all.fail(where + opened.error().message, kRunFailed);
  std::unique_ptr<exec::Backend> held = std::move(opened).value();
  exec::Backend& backend = *held;
  Result<std::unique_ptr<exec::Communicator>> nccl = std::unique_ptr<exec::Communicator>();
  if (device.cuda() && all.count() > 1) {
    nccl = device.make_nccl(backend, scenario.plan, schedule, all.number(), all.count(),
                            options.timeout,
                            [&all](const std::string& own) { return all.share(own); });
    if (!nccl) return all.fail(where + nccl.error().message, kRunFailed);
  }
  std::unique_ptr<exec::Communicator> own = std::move(nccl).value();
  exec::Communicator* communicator = own != nullptr ? own.get() : all.communicator();
  Result<std::unique_ptr<exec::Interpreter>> made = exec::Interpreter::create(
      scenario.model, scenario.plan, schedule, backend,
      {.workers = workers, .communicator = communicator, .observer = all.observer()});
  if (!made) return all.fail(where + made.error().message, kBadInput);
  std::unique_ptr<exec::Interpreter> interpreter = std::move(made).value();
  exec::Interpreter& process = *interpreter;
  const Result<exec::TrainFrom> from = begin(options, scenario, process, all.first());
  if (!from) return all.fail(from.error().message, kBadInput);
  Metrics metrics;
  if (const Result<> good = metrics.open(all.first() ? options.metrics : std::string()); !good) {
    return all.fail(good.error().message, kBadInput);
  }

  Measurement measurement{
      .scenario = &scenario,
      .schedule = &schedule,
      .backend = std::string(backend.name()),
      .device = std::string(backend.device()) +
                (device.cuda() ? " (" + device.describe() + ")" : std::string()),
      .workers = workers,
      .cores = cores() * (all.count() / all.here()),
      .resident = std::move(resident)};
  for (std::int32_t row = 0; row < schedule.num_rows(); ++row) {
    measurement.counted.push_back(process.peak_bytes({row}));
  }
  const std::int64_t peak = measurement.peak_counted();
  const bool terminal = all.first() && isatty(STDERR_FILENO) != 0;
  int stopped_by = 0;  // the signal that some process got
  const auto after_step = [&](const exec::StepReport& step) -> Result<bool> {
    metrics.add(metrics_line(step, peak));
    if (terminal) {
      std::fprintf(stderr, "\r\033[K%s", progress_line(step, scenario.train.steps, peak).c_str());
    }
    const Result<int> signal = all.largest(signals.received());
    if (!signal) return signal.error();
    stopped_by = signal.value();
    const bool last = stopped_by != 0 || step.step + 1 == scenario.train.steps;
    const Result<> written =
        write_checkpoint(options, scenario, schedule, process, from.value(), step, last, all);
    if (!written) return written.error();
    return stopped_by == 0;
  };
  Result<std::vector<exec::StepReport>> steps =
      exec::train(process, scenario.plan, scenario.train, data.value(), after_step, from.value());
  if (terminal) std::fprintf(stderr, "\r\033[K");
  if (!steps) {
    const bool diverged = steps.error().infeasible;
    if (own != nullptr && own->waited_in_vain()) all.suspect_others();
    return all.fail(where + (diverged ? "training " : "") + steps.error().message,
                    diverged ? kNo : kRunFailed);
  }
  if (const Result<> good = metrics.finish(); !good)
    return all.fail(good.error().message, kRunFailed);
  measurement.steps = std::move(steps).value();
  if (device.cuda()) {
    Result<exec::GpuFacts> facts = device.inspect(backend);
    if (!facts) return all.fail(where + facts.error().message, kRunFailed);
    measurement.gpu = std::move(facts).value();
  }
  if (const Result<> good = memory_as_planned(measurement); !good)
    return all.fail(good.error().message, kRunFailed);
  if (const Result<> good = all.gather(process, measurement); !good)
    return all.fail(good.error().message, kRunFailed);
  // The report's own tables need not lie beside the arenas.
  interpreter.reset();
  own.reset();
  held.reset();
  if (all.first()) {
    const Trace trace = measured_trace(measurement);
    if (!options.trace.empty()) {
      const Result<> written = write_trace(trace, options.trace);
      if (!written) return all.fail(written.error().message, kRunFailed);
    }
    const std::string text =
        options.json ? measurement_json(measurement, trace) : measurement_text(measurement, trace);
    print_text(text);
  }
  if (stopped_by != 0) {
    const std::string done = std::to_string(measurement.steps.back().step + 1);
    return all.stopped("run: stopped after step " + done +
                           (options.checkpoint.empty() ? ", without a checkpoint"
                                                       : ", checkpoint in " + options.checkpoint),
                       kSignalled + stopped_by);
  }
  return all.leave(kDone);
}

// Of this run; an error where they cannot share the ranks.
Result<std::int32_t> processes_of(const Options& options, const Scenario& scenario,
                                  const std::optional<exec::LaunchEnvironment>& launch) {
  const std::int32_t processes = launch ? launch->processes : options.processes;
  const std::string who = launch && !launch->launched() ? launch->by : "--processes";
  if (scenario.plan.gpus() % processes == 0) return processes;
  return Error{"run: " + who + ": " + std::to_string(processes) + " processes do not divide the " +
               std::to_string(scenario.plan.gpus()) + " ranks"};
}

// In this process, as one of several, or as the launcher of several.
int run_in_processes(const Options& options, const Scenario& scenario, const Schedule& schedule,
                     const RunDevice& device, std::int32_t processes,
                     const std::optional<exec::LaunchEnvironment>& launch) {
  if (processes > 1 && !exec::has_gloo()) {
    const std::string who = launch && !launch->launched() ? launch->by : "--processes";
    return fail(
        "run: " + who + ": this build has no Gloo (libgloo-dev), which several processes need",
        kRunFailed);
  }
  Processes all;
  if (launch) {
    Result<std::string> secret = exec::secret_of_run(std::getenv, launch->one_host);
    if (!secret) return fail("run: " + secret.error().message);
    exec::LaunchEnvironment known = *launch;
    known.secret = std::move(secret).value();
    if (launch->process == 0 && !launch->launched() && known.secret.size() < exec::kSafeSecret) {
      print_error("run: REHEARSE_SECRET: " + std::to_string(known.secret.size()) +
                  " characters can be guessed; 16 or more are safe");
    }
    const Result<> joined = all.join(
        known, scenario.plan, schedule,
        {.steps = scenario.train.steps, .timeout_s = options.timeout, .flight = options.flight});
    if (!joined) return all.fail("run: " + joined.error().message, kRunFailed);
  } else if (processes > 1) {
    if (!device.cuda()) {
      std::string said_later;  // by process 0
      const Result<> room = enough_memory(
          plan_memory(options, scenario, scenario.plan, schedule, processes, processes, true),
          processes, processes, said_later);
      if (!room) return fail(options.scenario + ": " + room.error().message, kRunFailed);
    }
    return exec::launch_processes({.processes = processes,
                                   .plan = &scenario.plan,
                                   .schedule = &schedule,
                                   .version = REHEARSE_VERSION,
                                   .steps = scenario.train.steps,
                                   .timeout_s = options.timeout,
                                   .flight = options.flight,
                                   .print_error = print_error});
  }
  return perform(options, scenario, schedule, device, all);
}

int run(const Options& options) {
  const Result<RunDevice> device = RunDevice::choose(options.device);
  if (!device) return fail("run: --device cuda: " + device.error().message, kRunFailed);
  if (const Result<std::string> asked = asked_attention(); !asked) {
    return fail("run: " + asked.error().message);
  }
  if (const Result<> set = exec::instruction_set_as_asked(); !set) {
    return fail("run: " + set.error().message);
  }
  const Result<std::optional<exec::LaunchEnvironment>> launch =
      exec::read_launch_environment(std::getenv);
  if (!launch) return fail("run: " + launch.error().message);
  const bool launched = launch.value() && launch.value()->launched();
  if (launch.value() && !launched && options.processes > 1) {
    return fail("run: --processes: " + launch.value()->by + " has started this as one of " +
                std::to_string(launch.value()->processes) + " processes already");
  }
  Result<Scenario> scenario_read = read(options, device.value());
  if (!scenario_read) return fail(scenario_read.error().message);
  Scenario scenario = std::move(scenario_read).value();
  if (!scenario.unperformed.empty()) return fail(not_performed(scenario.unperformed).message);
  const bool speaks = !launch.value() || (launch.value()->process == 0 && !launched);
  if (speaks && !device.value().refused().empty()) {
    print_error("run: --device auto: the CPU takes it: " + device.value().refused());
  }
  if (scenario.plan.offload != OffloadMode::None && !device.value().cuda()) {
    scenario.warnings.emplace_back(
        "plan.offload: host and device are one memory on the CPU: copies run, nothing is saved");
  }
  for (const auto* lines : {&scenario.warnings, &scenario.run_notes, &scenario.model_notes}) {
    for (const std::string& line : *lines) {
      if (speaks) print_error(line);
    }
  }
  if (options.steps > 0) scenario.train.steps = options.steps;
  if (!options.data.empty()) scenario.train.data = options.data;
  const Result<std::int32_t> processes = processes_of(options, scenario, launch.value());
  if (!processes) return fail(processes.error().message);
  const bool dry = options.dry_run;
  if (dry && !speaks) return kDone;
  if (scenario.plan.micro_batch_auto && (!dry || leaves_order_open(scenario.plan))) {
    const Result<sim::Cluster> cluster = sim::read_cluster(scenario.cluster);
    if (!cluster) return fail(options.scenario + ": " + cluster.error().message);
    // the one that it would choose
    const Result<sim::Prediction> predicted = predict(options.scenario, scenario, cluster.value());
    if (!predicted) return fail(predicted.error().message);
    Plan chosen = predicted.value().plan;
    if (leaves_order_open(scenario.plan)) {
      chosen = scenario.plan;
      chosen.micro_batch = predicted.value().plan.micro_batch;
      chosen.micro_batch_auto = false;
    }
    scenario.plan = std::move(chosen);
  }
  if (const Result<> chosen = choose_order(options, scenario); !chosen) {
    return fail(chosen.error().message, chosen.error().infeasible ? kNo : kBadInput);
  }
  if (dry) return dry_run(options, scenario, device.value(), processes.value());
  // One heap for all threads: what one has given back another takes.
  mallopt(M_ARENA_MAX, 1);

  const Result<Schedule> schedule = exec::lower_for_run(scenario.model, scenario.plan);
  if (!schedule) return fail(options.scenario + ": " + schedule.error().message);
  return run_in_processes(options, scenario, schedule.value(), device.value(), processes.value(),
                          launch.value());
}

}  // namespace

Command run_command() {
  const auto o = std::make_shared<Options>();
  Command command{"run", "really train with the scenario's schedule, on this machine"};
  command.options = {
      required({"SCENARIO", &o->scenario, "scenario file"}),
      {"--device", &o->device, "cpu, cuda or auto", Choices{"cpu", "cuda", "auto"}},
      {"--steps", &o->steps, "instead of train.steps", Whole{1, 1 << 30}},
      {"--processes", &o->processes,
       "start so many processes on this machine; each holds as many ranks", Whole{1, 1 << 20}},
      {"--threads", &o->threads, "workers; default: the machine's, at most one per rank",
       Whole{1, 1024}},
      {"--trace", &o->trace,
       "write the timeline to FILE: measured, of the last step; with --dry-run predicted"},
      {"--metrics", &o->metrics, "write a JSON line per step to FILE"},
      {"--checkpoint", &o->checkpoint,
       "write checkpoints to DIR: every train.checkpoint_every steps, at the end, on Ctrl-C"},
      {"--resume", &o->resume,
       "go on from DIR's latest checkpoint, from one of them, or from a safetensors file of "
       "weights"},
      {"--data", &o->data, "instead of train.data: a file of bytes, .bin, or synthetic"},
      {"--timeout", &o->timeout, "seconds that one op may take", Number{0.01, 1e6}},
      {"--flight", &o->flight, "write flight records to DIR when several processes fail"},
      {"--dry-run", &o->dry_run, "print the prediction for exactly this run, and stop"},
      {"--json", &o->json, "one JSON document on stdout"},
      one_each({"--set", &o->set, "override a key: --set plan.micro_batch=2"}),
      {"--cluster", &o->cluster, "cluster file instead of the scenario's (prediction only)"},
      {"--gpus", &o->gpus, "number of ranks instead of the scenario's", Whole{1, 1 << 20}},
  };
  command.footer =
      "Environment (torchrun's, Slurm's and Open MPI's variables make it one process of several):\n"
      "  REHEARSE_ISA=generic|avx2|avx512  the CPU's kernels; left out: the fastest that it has\n"
      "  REHEARSE_SECRET, REHEARSE_SECRET_FILE  who knows it may join; several hosts need one\n"
      "  REHEARSE_NEIGHBORS=0    processes of one machine talk over TCP, not through memory\n"
      "  REHEARSE_CUDA_GRAPHS=0  without CUDA graphs; same results\n"
      "  REHEARSE_CUDA_ATTENTION=mma|wgmma  bf16 attention by that, not by the faster; say: "
      "tells it\n\n"
      "Example: rehearse run tiny-gpt-4-ranks --trace step.trace --metrics steps.jsonl";
  command.perform = [o](const Given&) {
    o->program = exec::process_memory();
    return run(*o);
  };
  return command;
}

}  // namespace rehearse::cli
