// SPDX-License-Identifier: Apache-2.0
// rehearse calibrate: measures this machine and writes what it found as a calibration, and beside
// it a cluster file that names it.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "cli/calibrate/calibrate_from.h"
#include "cli/calibrate/calibrate_processes.h"
#include "cli/commands.h"
#include "exec/calibrate/calibrate.h"
#include "exec/calibrate/calibration_file.h"
#include "exec/cpu/cpu_backend.h"
#include "exec/cpu/kernels/instruction_set.h"
#include "exec/cuda/cuda_module.h"
#include "exec/run/device.h"
#include "exec/store/secret.h"
#include "schedules/base/counted.h"
#include "sim/cluster/cluster.h"

namespace rehearse::cli {
namespace {

struct CalibrateOptions {
  std::string device = "cpu", out, offload_dir;
  std::vector<std::string> scenarios, set;
  std::string from, cluster;
  std::int32_t steps = 0;
  bool quick = false;
};

// "machine.json" -> "machine.cluster.json"
std::string cluster_path(const std::string& calibration) {
  std::filesystem::path path(calibration);
  return path.replace_extension(".cluster.json").string();
}

// A file that cannot be written is said before minutes of measuring.
bool writable(const std::string& path) {
  std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (folder.empty()) folder = ".";
  std::error_code ignored;
  return !std::filesystem::is_directory(path, ignored) && access(folder.c_str(), W_OK) == 0;
}

Result<exec::CalibrateOptions> measured_shapes(const CalibrateOptions& options) {
  const bool gpu = options.device == "cuda";
  exec::CalibrateOptions how{.sizes = gpu ? exec::CalibrateSizes::gpu(options.quick)
                                          : exec::CalibrateSizes::cpu(options.quick),
                             .type = gpu ? exec::ElementType::BFloat16 : exec::ElementType::Float32,
                             .offload_dir = options.offload_dir};
  for (const std::string& path : options.scenarios) {
    ScenarioOptions read{
        .overrides = options.set, .runtime = std::string(kExecutorRuntime), .needs_cluster = false};
    read.overrides.emplace_back(gpu ? "plan.precision=bf16" : "plan.precision=fp32");
    Result<Scenario> scenario = read_scenario(path, read);
    if (!scenario) return scenario.error();
    if (scenario.value().plan.micro_batch_auto) {
      return Error{path + ": plan.micro_batch: is left open; say --set plan.micro_batch=N"};
    }
    how.scenarios.push_back(std::move(scenario).value());
  }
  return how;
}

// Half of the points spread by more: somebody else computed.
constexpr double kBusy = 0.1;

// Of the file that stands for drives, the best that was measured.
std::string drives(const exec::MachineTables& t) {
  if (!t.no_drives.empty()) return "no file for drives was measured: " + t.no_drives + "\n";
  double out = 0, in = 0;  // [GB/s]
  for (const exec::CopyTime& copy : t.copies) {
    double& best = copy.to_host ? out : in;
    if (copy.drives) best = std::max(best, 1e-3 * static_cast<double>(copy.bytes) / copy.us);
  }
  char text[128];
  std::snprintf(text, sizeof text, "file for drives: %.2f GB/s to it, %.2f GB/s from it\n", out,
                in);
  return text;
}

std::string said(const exec::MachineTables& t, const std::string& out, const std::string& cluster) {
  double best = 0;
  for (const exec::GemmTime& p : t.gemm) {
    best = std::max(best, 2e-3 * static_cast<double>(p.m * p.n * p.k) / p.us);
  }
  char text[1024];
  const auto count = [&](const char* what) {
    std::snprintf(text, sizeof text,
                  "measured in %.0f s: %zu matrix products (best %.1f %s), %zu memory-bound "
                  "kernels, %zu attention, %zu collectives and transfers\n",
                  t.seconds, t.gemm.size(), t.gpu ? best * 1e-3 : best, what, t.kernels.size(),
                  t.attention.size(), t.exchanges.size());
    return std::string(text);
  };
  std::string said;
  if (t.gpu) {
    said = t.gpu->name + ", " + t.gpu->versions + "\n" + count("TFLOP/s");
    std::snprintf(text, sizeof text,
                  "%.1f us to issue a kernel; %.0f MiB of the device are the context's\n",
                  t.launch_us, static_cast<double>(t.gpu->context_bytes) / (1 << 20));
    said += text;
  } else {
    std::snprintf(text, sizeof text, "%s, %d cores, %s\n", t.cpu.c_str(), t.cores,
                  t.instruction_set.c_str());
    said = text;
    said += count("GFLOP/s");
    std::snprintf(text, sizeof text,
                  "with every core computing, each takes longer: products x%.2f, attention x%.2f, "
                  "memory-bound x%.2f\n"
                  "scheduler: %.1f us per op, %.1f us per collective, %.1f us per hand-over\n",
                  t.products_together, t.attention_together, t.kernels_together, t.op_us,
                  t.meeting_us, t.handover_us);
    said += text;
    said += drives(t);
    if (t.left_out > 0) {
      said += counted(t.left_out, "exchange") + " between threads left out: too little memory\n";
    }
  }
  std::snprintf(
      text, sizeof text,
      "noise: half of the points spread by less than %.0f %% between quartiles; rounds of "
      "the same product lay %.0f %% apart",
      100 * t.noise, 100 * t.product_scatter);
  said += text;
  if (!t.gpu && t.cores > 1) {
    std::snprintf(text, sizeof text, ", of what cores lose to each other %.0f %%",
                  100 * t.together_scatter);
    said += text;
  }
  said += "\n";
  const double apart = std::max(t.product_scatter, t.together_scatter);
  if (apart > sim::kDoubtfulScatter || t.noise > kBusy) {
    std::snprintf(text, sizeof text,
                  "doubtful: the machine was not steady; predictions can be %.0f %% off and more, "
                  "measure again when it is quiet\n",
                  100 * std::max(apart, t.noise));
    said += text;
  }
  return said + "calibration: " + out + "   cluster: " + cluster +
         "\nNow: rehearse run SCENARIO --dry-run --cluster " + cluster + "\n";
}

struct Device {
  exec::Backend backend;
  const exec::CudaModule* module = nullptr;  // nullptr: the CPU
  exec::LaunchEnvironment launch;            // of several processes, a GPU each
};

// Error: why there is no CUDA device.
Result<Device> choose(const CalibrateOptions& options) {
  if (options.device == "cpu") return Device{.backend = exec::make_cpu_backend()};
  const Result<const exec::CudaModule*> module = exec::load_cuda_module();
  if (!module) return Error{"no CUDA device: " + module.error().message};
  if (const Result<std::int32_t> devices = module.value()->devices(); !devices) {
    return devices.error();
  }
  const auto launch = exec::read_launch_environment(std::getenv);
  if (!launch) return launch.error();
  Result<std::string> secret = std::string();
  if (launch.value()) secret = exec::secret_of_run(std::getenv, launch.value()->one_host);
  if (!secret) return secret.error();
  const Result<std::string> attention = exec::asked_attention();
  if (!attention) return attention.error();
  Device device{.module = module.value(),
                .launch = launch.value().value_or(exec::LaunchEnvironment{})};
  device.launch.secret = std::move(secret).value();
  Result<exec::Backend> backend =
      device.module->make_backend({.device = device.launch.local,
                                   .type = exec::ElementType::BFloat16,
                                   .timeout_s = CalibrateProcesses::kTimeoutS,
                                   .attention = attention.value(),
                                   .label = [](OpId) { return std::string("a kernel"); },
                                   .warn = [](const std::string& what) { print_error(what); }});
  if (!backend) return backend.error();
  device.backend = std::move(backend).value();
  return device;
}

int calibrate(const CalibrateOptions& options) {
  if (!options.from.empty()) {
    if (options.scenarios.size() != 1) {
      return fail("calibrate: --from needs the one --scenario whose step was measured");
    }
    return calibrate_from({.from = options.from,
                           .scenario = options.scenarios.front(),
                           .cluster = options.cluster,
                           .out = options.out.empty() ? "corrected.cluster.json" : options.out,
                           .set = options.set,
                           .steps = options.steps});
  }
  if (!options.cluster.empty() || options.steps > 0) {
    return fail("calibrate: --cluster and --steps go with --from");
  }
  if (const Result<std::string> asked = exec::asked_attention(); !asked) {
    return fail("calibrate: " + asked.error().message);
  }
  if (const Result<> set = exec::instruction_set_as_asked(); !set) {
    return fail("calibrate: " + set.error().message);
  }
  const Result<Device> chosen = choose(options);
  if (!chosen) return fail("calibrate: --device cuda: " + chosen.error().message, kRunFailed);
  const Device& device = chosen.value();
  const std::string out = options.out.empty() ? "calibration.json" : options.out;
  const std::string cluster_file = cluster_path(out);
  if (!writable(out)) return fail(out + ": cannot write");
  Result<exec::CalibrateOptions> shapes = measured_shapes(options);
  if (!shapes) return fail(shapes.error().message);
  exec::CalibrateOptions how = std::move(shapes).value();
  const bool terminal = isatty(STDERR_FILENO) != 0;
  auto last = std::chrono::steady_clock::now();
  how.progress = [&](std::string_view what, double share) {
    const auto now = std::chrono::steady_clock::now();
    if (!terminal || now - last < std::chrono::milliseconds(100)) return;
    last = now;
    std::fprintf(stderr, "\r\033[Kcalibrate: %.*s %.0f %%", static_cast<int>(what.size()),
                 what.data(), 100 * share);
  };
  std::unique_ptr<CalibrateProcesses> others;
  if (device.launch.processes > 1) {
    bool printed = false;
    auto joined =
        CalibrateProcesses::join(device.launch, *device.module, *device.backend.device, &printed);
    if (!joined && printed) return kRunFailed;
    if (!joined) return fail("calibrate: " + joined.error().message, kRunFailed);
    others = std::move(joined).value();
    how.communicator = &others->communicator();
    how.groups = &others->groups();
  }
  Result<exec::MachineTables> measured = exec::calibrate(device.backend, how);
  if (terminal) std::fputs("\r\033[K", stderr);
  if (!measured) {
    const std::string why = "calibrate: " + measured.error().message;
    return others != nullptr ? others->failed(why) : fail(why, kRunFailed);
  }
  exec::MachineTables tables = std::move(measured).value();
  if (device.module != nullptr) {
    Result<exec::GpuFacts> facts = device.module->inspect(*device.backend.device);
    if (!facts) {
      const std::string why = "calibrate: " + facts.error().message;
      return others != nullptr ? others->failed(why) : fail(why, kRunFailed);
    }
    tables.gpu = std::move(facts).value();
    tables.gpu->versions = device.module->versions();
  }
  if (others != nullptr) {
    tables.gpu->communicator_bytes = others->communicator_bytes();
    others->leave();
    if (device.launch.process != 0) return kDone;  // the first one writes
  }

  const std::string id = std::filesystem::path(out).stem().string();
  const std::string name = std::filesystem::path(out).filename().string();
  for (const auto& [path, content] :
       {std::pair{out, exec::calibration_text(tables, id, REHEARSE_VERSION)},
        {cluster_file, exec::cluster_text(tables, id + ".cluster", name)}}) {
    if (const int code = write_file(path, content); code != kDone) return code;
  }
  const Result<sim::Cluster> cluster = sim::read_cluster({.path = cluster_file});  // as users will
  if (!cluster) return fail(cluster.error().message, kRunFailed);
  const std::string text = said(tables, out, cluster_file);
  print_text(text);
  return kDone;
}

}  // namespace

Command calibrate_command() {
  const auto o = std::make_shared<CalibrateOptions>();
  Command command{"calibrate", "measure this machine, for predictions that hold on it"};
  command.options = {
      {"--device", &o->device, "cpu or cuda", Choices{"cpu", "cuda"}},
      {"-o,--output", &o->out,
       "the calibration, calibration.json; the cluster file that names it lies beside it, as "
       "NAME.cluster.json"},
      {"--quick", &o->quick, "seconds instead of about a minute: fewer points"},
      {"--scenario", &o->scenarios, "measure the very shapes of this scenario too (repeatable)"},
      one_each({"--set", &o->set, "override a key of the scenarios"}),
      {"--offload-dir", &o->offload_dir,
       "where to measure the file for drives (run --offload-dir): a directory, that of temporary "
       "files"},
      {"--from", &o->from,
       "instead of measuring: correct the cluster of --scenario by a step that was measured on it; "
       "a trace (ours, or PyTorch's: a file, or a folder with one per rank), or seconds"},
      {"--cluster", &o->cluster, "with --from: cluster file instead of the scenario's"},
      {"--steps", &o->steps,
       "with --from: steps that PyTorch's profile holds; left out: as many as it marks, else one",
       Whole{1, 1 << 20}},
  };
  command.footer =
      "Example: rehearse calibrate -o here.json; rehearse run tiny-gpt-4-ranks --dry-run --cluster "
      "here.cluster.json\n"
      "Example: rehearse calibrate --from 17.5 --scenario gpt3-175b-1024 -o ours.json";
  command.perform = [o](const Given&) { return calibrate(*o); };
  return command;
}

}  // namespace rehearse::cli
