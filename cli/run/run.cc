// SPDX-License-Identifier: Apache-2.0
// rehearse run: what it may be asked, and the way from there to a schedule that is performed.
#include "cli/run/run.h"

#include <malloc.h>

#include <cstdlib>

#include "cli/commands.h"
#include "exec/cpu/kernels/instruction_set.h"
#include "sim/predict/order_prices.h"

namespace rehearse::cli {
namespace {

// The run's processes; an error where they cannot share the ranks.
Result<std::int32_t> processes_of(const RunFlags& flags, const Scenario& scenario, bool cuda,
                                  const std::optional<exec::LaunchEnvironment>& launch) {
  const std::int32_t processes = launch ? launch->processes : flags.processes;
  const std::string who = launch && !launch->launched() ? launch->by : "--processes";
  if (cuda && processes > 1 && scenario.plan.gpus() != processes) {
    return Error{"run: " + who + ": on GPUs NCCL wants a process per rank, or one for all: " +
                 std::to_string(scenario.plan.gpus()) + " ranks, " + std::to_string(processes) +
                 " processes"};
  }
  if (scenario.plan.gpus() % processes == 0) return processes;
  return Error{"run: " + who + ": " + std::to_string(processes) + " processes do not divide the " +
               std::to_string(scenario.plan.gpus()) + " ranks"};
}

}  // namespace

Result<> check_throttle(const RunFlags& flags, const Scenario& scenario,
                        const exec::RunDevice& device, std::int32_t processes) {
  if (flags.throttle.empty()) return {};
  const auto wrong = [](const std::string& why) { return Error{"run: --throttle: " + why}; };
  const Result<Throttle> read = read_throttle(flags.throttle);
  if (!read) return wrong(read.error().message);
  if (device.cuda()) {
    return wrong("what GPUs exchange is NCCL's, which is not slowed (--device cpu)");
  }
  if (processes < 2) return wrong("nothing crosses between processes: there is one (--processes)");
  if (!flags.dry_run) return {};
  const Result<sim::Cluster> cluster = sim::read_cluster(scenario.cluster);
  if (!cluster) return cluster.error();
  if (cluster.value().workers > 0) return {};
  return wrong(cluster.value().id +
               " is of GPUs, which is no prediction of this machine (--cluster with the file of "
               "`rehearse calibrate`)");
}

namespace {

int run(const RunFlags& flags) {
  const Result<exec::RunDevice> device = exec::RunDevice::choose(flags.device);
  if (!device) return fail("run: --device cuda: " + device.error().message, kRunFailed);
  if (const Result<std::string> asked = exec::asked_attention(); !asked) {
    return fail("run: " + asked.error().message);
  }
  if (const Result<> set = exec::instruction_set_as_asked(); !set) {
    return fail("run: " + set.error().message);
  }
  const Result<std::optional<exec::LaunchEnvironment>> read =
      exec::read_launch_environment(std::getenv);
  if (!read) return fail("run: " + read.error().message);
  const std::optional<exec::LaunchEnvironment>& launch = read.value();
  const bool launched = launch && launch->launched();
  if (launch && !launched && flags.processes > 1) {
    return fail("run: --processes: " + launch->by + " has started this as one of " +
                std::to_string(launch->processes) + " processes already");
  }
  Result<Scenario> as_run = scenario_of_run(flags, device.value());
  if (!as_run) return fail(as_run.error().message);
  Scenario scenario = std::move(as_run).value();
  const bool speaks = !launch || (launch->process == 0 && !launched);
  // The GPU may be there for the others: every process of another launcher says that it does
  // without.
  if ((speaks || (launch && !launched)) && !device.value().refused().empty()) {
    print_error("run: --device auto: the CPU takes it: " + device.value().refused());
  }
  const Result<std::int32_t> processes =
      processes_of(flags, scenario, device.value().cuda(), launch);
  if (processes) {
    const Result<> good = check_throttle(flags, scenario, device.value(), processes.value());
    if (!good) return fail(good.error());
  }
  if (!flags.offload_dir.empty() &&
      !(scenario.plan.offload.any() && scenario.plan.offload_to == OffloadTarget::Nvme)) {
    return fail("run: --offload-dir: nothing goes to drives (plan.offload, plan.offload_to nvme)");
  }
  if (!flags.throttle.empty() && processes) {
    scenario.run_notes.push_back("run: --throttle: links between processes are slowed: " +
                                 throttle_text(flags.links()));
  }
  const Result<> chosen = processes
                              ? choose_open(flags, device.value(), processes.value(), scenario)
                              : Result<>(processes.error());
  for (const auto* lines : {&scenario.warnings, &scenario.run_notes, &scenario.model_notes}) {
    if (flags.dry_run && lines == &scenario.model_notes) continue;  // a prediction's notes
    for (const std::string& line : *lines) {
      if (speaks) print_error(line);
    }
  }
  if (!chosen) return fail(chosen.error());
  if (flags.dry_run && !speaks) return kDone;
  // However many processes share the cluster, and whatever --cluster describes.
  if (!scenario.file_cluster) scenario.file_cluster = scenario.cluster;
  const Result<PriceOps> priced = sim::order_prices(scenario);
  if (!priced && speaks) {
    print_error(flags.scenario + ": ops are ordered by FLOP counts: " + priced.error().message);
  }
  const PriceOps order_by = priced ? priced.value() : sim::by_flops();
  if (flags.dry_run) {
    return predict_run(flags, scenario, device.value(), processes.value(), order_by);
  }
  // One heap for all threads: what one has given back another takes.
  mallopt(M_ARENA_MAX, 1);
  const Result<Schedule> schedule = exec::lower_for_run(scenario.model, scenario.plan, order_by);
  if (!schedule) return fail(flags.scenario + ": " + schedule.error().message);
  if (processes.value() > 1 && !exec::has_gloo()) {
    const std::string who = launch && !launched ? launch->by : "--processes";
    return fail("run: " + who + ": " + exec::GlooModule::kMissing, kRunFailed);
  }
  return perform_run(flags, scenario, schedule.value(), order_by, device.value(), processes.value(),
                     launch);
}

}  // namespace

Command run_command() {
  const auto o = std::make_shared<RunFlags>();
  Command command{"run", "really train with the scenario's schedule, on this machine"};
  command.options = {
      required({"SCENARIO", &o->scenario, "scenario file"}),
      {"--device", &o->device, "cpu, cuda or auto", Choices{"cpu", "cuda", "auto"}},
      {"--steps", &o->steps, "instead of train.steps", Whole{1, 1 << 30}},
      {"--processes", &o->processes,
       "start so many processes on this machine; each holds as many ranks", Whole{1, 1 << 20}},
      {"--threads", &o->threads, "workers; default: the machine's, at most one per rank",
       Whole{1, 1024}},
      writes({"--trace", &o->trace,
              "write the timeline to FILE: measured, of the last step; with --dry-run predicted"}),
      writes({"--metrics", &o->metrics, "write a JSON line per step to FILE"}),
      {"--checkpoint", &o->checkpoint,
       "write checkpoints to DIR: every train.checkpoint_every steps, at the end, on Ctrl-C"},
      {"--resume", &o->resume,
       "go on from DIR's latest checkpoint, from one of them, or from a safetensors file of "
       "weights"},
      {"--data", &o->data, "instead of train.data: a file of bytes, .bin, or synthetic"},
      {"--throttle", &o->throttle,
       "GBPS,LATENCY_US: links between the processes as slow as that, in each direction"},
      {"--timeout", &o->timeout, "seconds that one op may take", Number{0.01, 1e6}},
      {"--offload-dir", &o->offload_dir,
       "where plan.offload_to nvme keeps its files; default: that of temporary files"},
      {"--flight", &o->flight, "write flight records to DIR when several processes fail"},
      {"--dry-run", &o->dry_run, "print the prediction for exactly this run, and stop"},
      {"--json", &o->json, "one JSON document on stdout"},
      one_each({"--set", &o->set, "override a key: --set plan.micro_batch=2"}),
      {"--cluster", &o->cluster, "cluster file instead of the scenario's (prediction only)"},
      {"--gpus", &o->gpus, "number of ranks instead of the scenario's", Whole{1, 1 << 20}},
  };
  command.footer =
      "Environment (torchrun's, Slurm's and Open MPI's variables make it one process of several):\n"
      "  REHEARSE_ISA=" +
      exec::instruction_sets("|", "|") +
      "  the CPU's kernels; left out: the fastest that it has\n"
      "  REHEARSE_SECRET, REHEARSE_SECRET_FILE  who knows it may join; several hosts need one\n"
      "  REHEARSE_NEIGHBORS=0    processes of one machine talk over TCP, not through memory\n"
      "  REHEARSE_CUDA_GRAPHS=0  without CUDA graphs; same results\n"
      "  REHEARSE_CUDA_ATTENTION=mma|wgmma|cudnn  16-bit attention by that, not by the fastest; "
      "ours: without cuDNN; say: tells it\n\n"
      "Example: rehearse run tiny-gpt-4-ranks --trace step.trace --metrics steps.jsonl";
  command.perform = [o](const Given&) {
    o->program = exec::process_memory();
    return run(*o);
  };
  return command;
}

}  // namespace rehearse::cli
