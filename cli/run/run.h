// SPDX-License-Identifier: Apache-2.0
// The parts of `rehearse run`: what it was asked, the scenario as it will run, and that predicted
// or performed.
#pragma once

#include <optional>
#include <string>

#include "cli/open.h"
#include "exec/processes/launch_environment.h"
#include "exec/run/training_run.h"
#include "schedules/base/throttle.h"

namespace rehearse::cli {

struct RunFlags : ScenarioFlags {
  std::string device = "auto", trace, metrics, data, checkpoint, resume, flight, throttle,
              offload_dir;
  std::int64_t steps = 0;
  std::int32_t processes = 1;
  int threads = 0;
  double timeout = 600;
  bool dry_run = false, json = false;
  exec::ProcessMemory program;  // this process's, before anything was read

  exec::RunOptions run() const;
  // REQUIRES: check_throttle() went well.
  Throttle links() const { return throttle.empty() ? Throttle{} : read_throttle(throttle).value(); }
};

// With our runtime and in a precision that the device runs. Error: what `run` does not perform.
Result<Scenario> scenario_of_run(const RunFlags& flags, const exec::RunDevice& device);
// Error: a --throttle that is none, or of a run in which nothing crosses between processes that it
// could slow; of a prediction that is of another machine.
Result<> check_throttle(const RunFlags& flags, const Scenario& scenario,
                        const exec::RunDevice& device, std::int32_t processes);
// Chooses micro-batch and order where the plan leaves them open; what was chosen, and why, is a
// warning more. Error: a micro-batch "auto" where the cluster is not this machine, measured.
Result<> choose_open(const RunFlags& flags, const exec::RunDevice& device, std::int32_t processes,
                     Scenario& scenario);
// The cluster as so many processes of this machine share it, with links as slow as --throttle says.
sim::Cluster as_run(sim::Cluster cluster, std::int32_t processes, const RunFlags& flags);

// Both return the exit code. --dry-run, of a run in so many processes of this machine:
int predict_run(const RunFlags& flags, const Scenario& scenario, const exec::RunDevice& device,
                std::int32_t processes, const PriceOps& order_by);
// Really: in this process, as one of several, or as the launcher of several.
int perform_run(const RunFlags& flags, const Scenario& scenario, const Schedule& schedule,
                const PriceOps& order_by, const exec::RunDevice& device, std::int32_t processes,
                const std::optional<exec::LaunchEnvironment>& launch);

}  // namespace rehearse::cli
