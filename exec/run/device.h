// SPDX-License-Identifier: Apache-2.0
// Which device a run takes: the CPU, or an NVIDIA GPU through the module that is loaded for it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "exec/backend/backend.h"
#include "exec/cuda/cuda_module.h"
#include "schedules/ir/schedule.h"
#include "schedules/scenario/plan.h"

namespace rehearse::exec {

// REHEARSE_CUDA_ATTENTION (CudaOptions::attention); empty where it is not set. Error: what
// else it says.
Result<std::string> asked_attention();

class RunDevice {
 public:
  // `asked`: "cpu", "cuda" or "auto" (a GPU where the module and a device are there). Error (a run
  // that failed, exit 3): what "cuda" lacks, in a line with the word CUDA.
  static Result<RunDevice> choose(const std::string& asked);

  bool cuda() const { return module_ != nullptr; }
  // Why "auto" took the CPU although a CUDA driver is there; else empty.
  const std::string& refused() const { return refused_; }
  // The precision that is run for a plan's: on the CPU fp32, or bf16 or fp16 where the file asks
  // for them, which take it longer; on CUDA the plan's, and bf16 for 8 and 4 bits.
  Precision precision(const Plan& plan, bool asked) const;
  std::string describe() const;  // libraries of the module; empty on the CPU
  // What the first GPU is called. REQUIRES: cuda(). Error: what opening it says.
  Result<std::string> gpu_name() const;
  // REQUIRES: cuda(), and `backend` came from make_backend.
  Result<GpuFacts> inspect(const Device& device) const { return module_->inspect(device); }

  // `local`: number of this process on its machine; `warn` takes a line that is no error; `stuck`:
  // CudaOptions::stuck.
  // REQUIRES: schedule outlives the backend.
  Result<Backend> make_backend(const Plan& plan, const Schedule& schedule, std::int32_t local,
                               double timeout_s,
                               const std::function<void(const std::string&)>& warn,
                               const std::function<void(const std::string&)>& stuck) const;
  // NCCL among the processes of a run. `share` gives process 0's bytes to all. Error: processes
  // that hold more than one rank, or a partner that does not come.
  Result<std::unique_ptr<Communicator>> make_nccl(
      Device& device, const Layout& layout, const Schedule& schedule, std::int32_t process,
      std::int32_t processes, std::function<Result<std::string>(const std::string&)> share) const;

 private:
  const CudaModule* module_ = nullptr;
  std::string refused_;
};

}  // namespace rehearse::exec
