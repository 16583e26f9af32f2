// SPDX-License-Identifier: Apache-2.0
// One training run: opened, trained step by step with its checkpoints, measured. A process of
// several does its part; all of them call the same functions in the same order.
//
// Deliberately not here: what is read and planned before, what is said and written afterwards, and
// who starts processes.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "exec/run/device.h"
#include "exec/run/measurement.h"
#include "exec/run/processes.h"
#include "exec/train/data.h"

namespace rehearse::exec {

struct RunOptions {
  std::string name;        // of the scenario: errors begin with it
  std::string checkpoint;  // directory of checkpoints to write; empty: none
  std::string resume;      // a checkpoint or weights to go on from; empty: first weights
  std::string drives;      // directory of what plan.offload_to nvme keeps there
  std::string output;      // what the caller will write: that it can be is known before step 1
  int threads = 0;         // of each process; 0: its share of the machine
  double timeout_s = 600;  // of one op
  ProcessMemory program;   // of this process, before it read anything
  std::function<void(const std::string&)> say;  // takes a line that is no error
};

// What a run in so many processes, so many of them here, will hold in memory.
ResidentPlan plan_memory(const RunOptions& options, const Scenario& scenario, const Plan& plan,
                         const Schedule& schedule, std::int32_t processes,
                         std::int32_t processes_here, bool launched);

// Errors: `machine` where this machine or another process failed, `infeasible` where the numbers
// ran away; else the input is wrong.
class TrainingRun {
 public:
  // On its device, with its first weights or those of options.resume. REQUIRES: scenario, schedule,
  // device and processes outlive it.
  static Result<std::unique_ptr<TrainingRun>> open(const Scenario& scenario,
                                                   const Schedule& schedule,
                                                   const RunDevice& device, Processes& processes,
                                                   RunOptions options);

  std::int64_t peak_bytes() const;  // of the fullest rank, by the addresses of its ops
  // Trains to the last step, or until a process is told to stop: `stop` is asked after each step,
  // 0 is no. Checkpoints are written as they are due, and at the end. Returns what told to stop.
  Result<int> train(const std::function<void(const StepReport&)>& after_step,
                    const std::function<int()>& stop);
  // In the first process of all of them. REQUIRES: train() went well.
  Result<Measurement> measure();

 private:
  TrainingRun(const Scenario& scenario, const Schedule& schedule, const RunDevice& device,
              Processes& processes, RunOptions options);
  // In the order in which they are done.
  Result<> check_room();
  Result<> check_files();
  Result<> open_device();
  Result<> choose_kernels();
  Result<> begin();
  Result<> write_checkpoint(const StepReport& step, bool last);

  const Scenario& scenario_;
  const Schedule& schedule_;
  const RunDevice& device_;
  Processes& all_;
  RunOptions options_;
  int workers_;
  std::optional<ResidentPlan> resident_;  // on a GPU its arenas are there
  std::optional<Data> data_;
  Backend backend_;
  std::unique_ptr<Communicator> nccl_;
  std::unique_ptr<Interpreter> process_;
  TrainFrom from_;
  std::vector<StepReport> steps_;
};

}  // namespace rehearse::exec
