// SPDX-License-Identifier: Apache-2.0
// `calibrate --device cuda` as several processes, a GPU each: what torchrun, Slurm or mpirun
// started.
#pragma once

#include <memory>

#include "exec/cuda/cuda_module.h"
#include "exec/processes/launch_environment.h"
#include "exec/processes/process_group.h"
#include "exec/step/exchanges/group_instances.h"

namespace rehearse::cli {

// The processes joined at process 0's store, and NCCL among them in groups of 2, 4, ... and all.
class CalibrateProcesses {
 public:
  static constexpr double kTimeoutS = 120;  // for the others to come, and of a collective
  // REQUIRES: launch.processes > 1; `backend` outlives it. Error: who does not come, or what NCCL
  // says; `*printed`: another process prints the line.
  static Result<std::unique_ptr<CalibrateProcesses>> join(const exec::LaunchEnvironment& launch,
                                                          const exec::CudaModule& module,
                                                          exec::Device& device, bool* printed);
  exec::Communicator& communicator() { return *nccl_; }
  const exec::GroupInstances& groups() const { return groups_; }
  std::int64_t communicator_bytes() const { return communicator_bytes_; }  // of one, on this GPU
  void leave() { (void)group_->leave(); }                                  // everything is measured
  // This process failed, perhaps for another's fault: whose, is said by one of them. The exit code.
  int failed(const std::string& message);

 private:
  explicit CalibrateProcesses(std::int32_t processes)
      : groups_(exec::GroupInstances::by_size(processes)) {}

  // What all must hold alike when they join: a schedule of so many replicas, which nobody runs.
  Plan plan_;
  Schedule schedule_;
  exec::GroupInstances groups_;
  std::unique_ptr<exec::ProcessGroup> group_;
  std::unique_ptr<exec::Communicator> nccl_;
  std::int64_t communicator_bytes_ = 0;
};

}  // namespace rehearse::cli
