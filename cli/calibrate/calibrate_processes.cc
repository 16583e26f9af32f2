// SPDX-License-Identifier: Apache-2.0
#include "cli/calibrate/calibrate_processes.h"

#include "cli/commands.h"
#include "exec/train/train.h"
#include "schedules/scenario/scenario.h"

namespace rehearse::cli {
Result<std::unique_ptr<CalibrateProcesses>> CalibrateProcesses::join(
    const exec::LaunchEnvironment& launch, const exec::CudaModule& module, exec::Device& device,
    bool* printed) {
  std::unique_ptr<CalibrateProcesses> made(new CalibrateProcesses(launch.processes));
  const std::string replicas = std::to_string(launch.processes);
  const Result<Scenario> scenario = parse_scenario(
      R"({"name": "calibrate", "model": {"model_type": "gpt2", "num_hidden_layers": 1, "hidden_size": 8,
          "num_attention_heads": 1, "vocab_size": 8, "max_position_embeddings": 8, "resid_pdrop": 0},
          "plan": {"micro_batch": 1, "sequence_length": 8, "precision": "fp32"}})",
      "calibrate", 0,
      {.overrides = {"plan.data_parallel=" + replicas, "plan.global_batch=" + replicas},
       .runtime = std::string(kExecutorRuntime),
       .needs_cluster = false});
  if (!scenario) return scenario.error();
  made->plan_ = scenario.value().plan;
  Result<Schedule> schedule = exec::lower_for_run(scenario.value().model, made->plan_);
  if (!schedule) return schedule.error();
  made->schedule_ = std::move(schedule).value();

  auto group = exec::ProcessGroup::join(launch, {.plan = &made->plan_,
                                                 .schedule = &made->schedule_,
                                                 .version = REHEARSE_VERSION,
                                                 .timeout_s = kTimeoutS,
                                                 .print_error = print_error});
  if (!group) {
    *printed = group.error().infeasible;
    return group.error();
  }
  made->group_ = std::move(group).value();
  exec::StoreClient& store = made->group_->store();
  const auto share = [&](const std::string& mine) -> Result<std::string> {
    if (launch.process != 0) return store.get("nccl", kTimeoutS);
    if (const Result<> set = store.set("nccl", mine); !set) return set.error();
    return mine;
  };
  Result<std::unique_ptr<exec::Communicator>> nccl =
      module.make_nccl(device, {.process = launch.process,
                                .processes = launch.processes,
                                .groups = &made->groups_,
                                .share = share});
  if (!nccl) return nccl.error();
  made->nccl_ = std::move(nccl).value();
  const Result<exec::GpuFacts> after = module.inspect(device);
  if (!after) return after.error();
  // One per group; that of all processes carries nothing and takes next to nothing.
  made->communicator_bytes_ = after.value().communicators_bytes / std::ssize(made->groups_.of);
  return made;
}

int CalibrateProcesses::failed(const std::string& message) {
  const bool waited = nccl_ != nullptr && nccl_->timed_out();
  const int code = group_->failed(
      {.kind = waited ? exec::FailureReport::Kind::Timeout : exec::FailureReport::Kind::Own,
       .text = message});
  exec::end_process_soon(code);
  return code;
}

}  // namespace rehearse::cli
