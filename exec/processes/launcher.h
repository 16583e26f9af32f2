// SPDX-License-Identifier: Apache-2.0
// `run --processes N`: starts this same command N times on this machine and waits for all.
//
// The children are in the launcher's process group and end with it. When one fails, the others are
// told, then killed; one line says who was to blame and in which op.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "schedules/ir/schedule.h"
#include "schedules/scenario/plan.h"

namespace rehearse::exec {

struct LauncherOptions {
  std::int32_t processes = 1;  // divides the plan's ranks
  const Plan* plan = nullptr;
  const Schedule* schedule = nullptr;
  std::string version;
  std::int64_t steps = 0;  // of the run
  double timeout_s = 600;  // of one op
  std::string flight;      // folder of flight records; empty: the default one
  std::function<void(const std::string&)> print_error;
};

// Returns the run's exit code: that of process 0 where all end well (130 after an interrupt), the
// attribution's where one failed. SIGINT, SIGTERM and SIGHUP are passed on; a second one kills.
int launch_processes(const LauncherOptions& options);

}  // namespace rehearse::exec
