// SPDX-License-Identifier: Apache-2.0
// This process among the processes of a run: joined at the store, watched, and told when it ends.
//
// Whatever happens, the process ends: an abort of the run, or the loss of who hosts the store, ends
// the exchanges under way (on_end), and a process that has not ended kEndS later is ended from
// here.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "exec/processes/launch_environment.h"
#include "exec/status/status.h"
#include "exec/store/store.h"
#include "schedules/ir/schedule.h"
#include "schedules/scenario/plan.h"

namespace rehearse::exec {

// What a process that has reported its failure still tears down may wait for ever, for a device or
// for a partner: ten seconds from now it ends with `code`, wherever it is.
void end_process_soon(int code);

class ProcessGroup {
 public:
  struct Options {
    const Plan* plan = nullptr;
    const Schedule* schedule = nullptr;
    std::string version;     // of the binary
    std::int64_t steps = 0;  // of the run
    double timeout_s = 600;  // of one op
    std::string flight;      // folder of flight records; empty: the default one
    std::function<void(const std::string&)> print_error;  // one line, without "rehearse: "
  };
  // Joins; process 0 hosts the store unless a launcher does. REQUIRES: plan and schedule outlive
  // it. Error with `infeasible`: another process prints it (or has printed it).
  static Result<std::unique_ptr<ProcessGroup>> join(const LaunchEnvironment& launch,
                                                    const Options& options);
  // Without leave() the others take this process for dead.
  ~ProcessGroup();

  const LaunchEnvironment& launch() const;
  const Identity& identity() const;
  const StatusBoard& board() const;  // of all ranks; this process writes its own ones
  StoreClient& store();
  const std::string& address()
      const;  // numeric, of this machine, where the other processes reach it
  // To add to monotonic_ns() here for the store's clock, so that times of all hosts compare.
  std::int64_t clock_offset_ns() const;
  // Called once from another thread when the run is over for another's fault; may come at once.
  // nullptr: no more. When it returns, no call is under way.
  void on_end(std::function<void(const std::string& why)> ended);

  // This process failed: tells the others, waits until it is known who is to blame, writes this
  // process's flight records, prints the line where this process is the one to print it.
  // Returns the exit code. After an abort `failure` does not count: the abort's line does.
  int failed(const FailureReport& failure);
  // All is done here: says goodbye; who hosts the store waits for the others to do so. Error: one
  // of them did not, or failed after all; then the run is no success. With `infeasible`: it is
  // printed.
  Result<> leave();

 private:
  struct Impl;
  explicit ProcessGroup(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace rehearse::exec
