// SPDX-License-Identifier: Apache-2.0
#include "exec/run/training_run.h"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>

#include "exec/checkpoint/checkpoint.h"
#include "exec/run/machine_memory.h"
#include "exec/run/output_files.h"
#include "exec/train/token_file.h"
#include "exec/weights/initial.h"

namespace rehearse::exec {
namespace {

constexpr int kRunFailed = 3;  // the command's exit code

Error failed_here(const std::string& message) {
  return {.message = message, .machine = true};
}

int cores() {
  return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

// Threads of a process: its share of the machine, at most one per rank.
int workers_of(const RunOptions& options, const Plan& plan, std::int32_t processes,
               std::int32_t processes_here) {
  if (options.threads > 0) return options.threads;
  return std::max(1, std::min(cores() / processes_here, plan.gpus() / processes));
}

// What a run reads of its data's file. A file that is none is said when it is opened.
std::int64_t data_bytes(const Scenario& scenario) {
  if (scenario.train.data == "synthetic") return 0;
  const Result<TokenFile> file = TokenFile::open(scenario.train.data);
  if (!file) return 0;
  const std::int64_t read =
      scenario.train.steps * scenario.plan.global_batch * scenario.plan.sequence_length + 1;
  return std::min(read, file.value().size()) * file.value().token_bytes();
}

// The plan, checked: the largest sum alive over the addresses of its ops is the plan's figure.
Result<> memory_as_planned(const Measurement& measurement) {
  for (std::size_t row = 0; row < measurement.counted.size(); ++row) {
    if (measurement.counted[row] == measurement.schedule->live_peak_bytes[row].value) continue;
    return failed_here("rank class " + std::to_string(row) + " used " +
                       std::to_string(measurement.counted[row]) + " bytes, its plan says " +
                       std::to_string(measurement.schedule->live_peak_bytes[row].value));
  }
  return {};
}

}  // namespace

ResidentPlan plan_memory(const RunOptions& options, const Scenario& scenario, const Plan& plan,
                         const Schedule& schedule, std::int32_t processes,
                         std::int32_t processes_here, bool launched) {
  return plan_resident({scenario.model, plan}, schedule,
                       {.processes = processes,
                        .launched = launched,
                        .workers = workers_of(options, plan, processes, processes_here),
                        .data_bytes = data_bytes(scenario),
                        .checkpoints = !options.checkpoint.empty(),
                        .program = options.program,
                        .now = process_memory()});
}

TrainingRun::TrainingRun(const Scenario& scenario, const Schedule& schedule,
                         const RunDevice& device, Processes& processes, RunOptions options)
    : scenario_(scenario),
      schedule_(schedule),
      device_(device),
      all_(processes),
      options_(std::move(options)),
      workers_(workers_of(options_, scenario.plan, all_.count(), all_.here())) {}

Result<std::unique_ptr<TrainingRun>> TrainingRun::open(const Scenario& scenario,
                                                       const Schedule& schedule,
                                                       const RunDevice& device,
                                                       Processes& processes, RunOptions options) {
  std::unique_ptr<TrainingRun> run(
      new TrainingRun(scenario, schedule, device, processes, std::move(options)));
  for (const auto step : {&TrainingRun::check_room, &TrainingRun::check_files,
                          &TrainingRun::open_device, &TrainingRun::begin}) {
    if (const Result<> done = (run.get()->*step)(); !done) return done.error();
  }
  return run;
}

Result<> TrainingRun::check_room() {
  if (device_.cuda()) return {};
  resident_ = plan_memory(options_, scenario_, scenario_.plan, schedule_, all_.count(), all_.here(),
                          all_.launched());
  std::string warning;
  const Result<> room = enough_memory(*resident_, all_.here(), all_.count(), warning);
  if (!room) return failed_here(options_.name + ": " + room.error().message);
  if (all_.first() && !warning.empty()) options_.say(options_.name + ": " + warning);
  return {};
}

// Files that a run writes or needs, before anything is computed.
Result<> TrainingRun::check_files() {
  Result<Data> data =
      Data::open(scenario_.train.data, scenario_.model.vocabulary, scenario_.train.seed);
  if (!data) return Error{options_.name + ": train.data: " + data.error().message};
  data_ = std::move(data).value();
  if (!all_.first()) return {};
  if (const Result<> good = check_output(options_.output); !good) return good;
  return options_.checkpoint.empty() ? Result<>() : prepare_checkpoints(options_.checkpoint);
}

Result<> TrainingRun::open_device() {
  const Plan& plan = scenario_.plan;
  malloc_trim(0);  // what reading and lowering needed
  Result<Backend> backend =
      device_.make_backend(plan, schedule_, all_.local(), options_.timeout_s, options_.say,
                           [this](const std::string& why) {
                             all_.suspect_others();
                             _exit(all_.fail(options_.name + ": " + why, kRunFailed));
                           });
  if (!backend) return failed_here(options_.name + ": " + backend.error().message);
  backend_ = std::move(backend).value();
  if (device_.cuda() && all_.count() > 1) {
    Result<std::unique_ptr<Communicator>> nccl =
        device_.make_nccl(*backend_.device, Layout(scenario_.model, plan), schedule_, all_.number(),
                          all_.count(), [this](const std::string& own) { return all_.share(own); });
    if (!nccl) return failed_here(options_.name + ": " + nccl.error().message);
    nccl_ = std::move(nccl).value();
  }
  Result<std::unique_ptr<Interpreter>> process =
      Interpreter::create({scenario_.model, plan}, schedule_, backend_,
                          {.workers = workers_,
                           .communicator = nccl_ != nullptr ? nccl_.get() : all_.communicator(),
                           .observer = all_.observer(),
                           .drives = options_.drives});
  if (!process) {
    Error error = process.error();
    error.message = options_.name + ": " + error.message;
    return error;
  }
  process_ = std::move(process).value();
  return choose_kernels();
}

// Kernels are tried while no other process's wait on the same device; and ranks that do the same
// work do it by the same kernels, for one that is slower would hold up all of them.
Result<> TrainingRun::choose_kernels() {
  if (!device_.cuda()) return {};
  const Result<> tried = process_->try_kernels();
  if (!tried) return failed_here(options_.name + ": " + tried.error().message);
  const Result<std::string> all = all_.first_of_each(backend_.kernels->choices());
  if (!all) return failed_here(options_.name + ": " + all.error().message);
  backend_.kernels->take_choices(all.value());
  return {};
}

// First weights, or those to go on from; and where the run begins.
Result<> TrainingRun::begin() {
  const TrainOptions& train = scenario_.train;
  if (options_.resume.empty()) {
    process_->initialise(initial_values(scenario_.model, train.seed),
                         device_.cuda() ? std::max(1, cores() / all_.here()) : workers_);
    return {};
  }
  const Result<Checkpoint> opened =
      Checkpoint::open(options_.resume, {scenario_.model, scenario_.plan}, process_->places());
  if (!opened) return opened.error();
  const CheckpointState& state = opened.value().state();
  if (state.step >= train.steps) {
    return Error{options_.resume + ": has done " + std::to_string(state.step) +
                 " steps, train.steps is " + std::to_string(train.steps) +
                 ": nothing is left to do"};
  }
  if (const Result<> loaded = opened.value().load(*process_); !loaded) return loaded.error();
  if (all_.first() && !opened.value().note().empty()) options_.say(opened.value().note());
  // With another sequence length the next whole sample of that length.
  const std::int64_t tokens = state.samples * state.sequence_length,
                     length = scenario_.plan.sequence_length;
  from_ = {
      .step = state.step,
      .samples = (tokens + length - 1) / length,
      .scale = {
          .scale = state.loss_scale, .clean = state.clean_steps, .skipped = state.skipped_steps}};
  return {};
}

// The one that is due after a step: every checkpoint_every steps, and at the end.
Result<> TrainingRun::write_checkpoint(const StepReport& step, bool last) {
  const std::int64_t done = step.step + 1, every = scenario_.train.checkpoint_every;
  const bool due = last || (every > 0 && done % every == 0);
  if (options_.checkpoint.empty() || !due) return {};
  const CheckpointState state{
      .step = done,
      .samples = from_.samples + (done - from_.step) * scenario_.plan.global_batch,
      .sequence_length = scenario_.plan.sequence_length,
      .seed = scenario_.train.seed,
      .data = scenario_.train.data,
      .learning_rate = step.learning_rate,
      .loss = step.loss,
      .grad_norm = step.grad_norm,
      .loss_scale = step.next_scale.scale,
      .clean_steps = step.next_scale.clean,
      .skipped_steps = step.next_scale.skipped,
      .schedule_hash = content_hash(schedule_),
      .plan = plan_json(scenario_.plan, 0)};
  const Together together{.first = all_.first(),
                          .agree = [this](const Result<>& own) { return all_.agree(own); }};
  const Result<> saved = save_checkpoint(options_.checkpoint, state, *process_, together);
  if (saved || !saved.error().infeasible) return saved;
  return Error{.message = "diverged at step " + std::to_string(done) + ": " +
                          saved.error().message + ": no checkpoint of it is written",
               .infeasible = true};
}

std::int64_t TrainingRun::peak_bytes() const {
  std::int64_t peak = 0;
  for (std::int32_t row = 0; row < schedule_.num_rows(); ++row) {
    peak = std::max(peak, process_->peak_bytes({row}));
  }
  return peak;
}

Result<int> TrainingRun::train(const std::function<void(const StepReport&)>& after_step,
                               const std::function<int()>& stop) {
  int stopped_by = 0;
  const auto go_on = [&](const StepReport& step) -> Result<AfterStep> {
    after_step(step);
    const Result<int> asked = all_.largest(stop());
    if (!asked) return asked.error();
    stopped_by = asked.value();
    const bool last = stopped_by != 0 || step.step + 1 == scenario_.train.steps;
    const auto begin = std::chrono::steady_clock::now();
    const Result<> written = write_checkpoint(step, last);
    if (!written) return written.error();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    return AfterStep{.go_on = stopped_by == 0, .aside_s = took.count()};
  };
  Result<std::vector<StepReport>> steps =
      exec::train(*process_, scenario_.plan, scenario_.train, *data_, go_on, from_);
  if (!steps) {
    const bool diverged = steps.error().infeasible;
    if (nccl_ != nullptr && nccl_->timed_out()) all_.suspect_others();
    return Error{
        .message = options_.name + (diverged ? ": training " : ": ") + steps.error().message,
        .infeasible = diverged,
        .machine = !diverged};
  }
  steps_ = std::move(steps).value();
  return stopped_by;
}

Result<Measurement> TrainingRun::measure() {
  Measurement measurement{
      .scenario = &scenario_,
      .schedule = &schedule_,
      .steps = steps_,
      .backend = device_.cuda() ? "cuda" : "cpu",
      .device = std::string(backend_.device->name()) +
                (device_.cuda() ? " (" + device_.describe() + ")" : std::string()),
      .workers = workers_,
      .cores = cores() * (all_.count() / all_.here()),
      .resident = resident_};
  for (std::int32_t row = 0; row < schedule_.num_rows(); ++row) {
    measurement.counted.push_back(process_->peak_bytes({row}));
  }
  if (device_.cuda()) {
    Result<GpuFacts> facts = device_.inspect(*backend_.device);
    if (!facts) return failed_here(options_.name + ": " + facts.error().message);
    measurement.gpu = std::move(facts).value();
  }
  if (const Result<> good = memory_as_planned(measurement); !good) return good.error();
  if (const Result<> good = all_.gather(*process_, measurement); !good) {
    return failed_here(good.error().message);
  }
  return measurement;
}

}  // namespace rehearse::exec
