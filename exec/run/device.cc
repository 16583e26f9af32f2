// SPDX-License-Identifier: Apache-2.0
#include "exec/run/device.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "exec/cpu/cpu_backend.h"
#include "exec/step/exchanges/meetings.h"
#include "schedules/ir/listing.h"
#include "schedules/ir/payload.h"
#include "schedules/scenario/memory/optimizer_state.h"
#include "schedules/scenario/mesh.h"
#include "schedules/scenario/plan_names.h"

namespace rehearse::exec {

namespace {

// Elements of the largest collective, as far as it makes a difference: beyond 64 MiB in fp32 what
// carries an array no longer changes.
std::int64_t largest_exchange(const Schedule& schedule) {
  constexpr std::int64_t kMost = std::int64_t{16} << 20;
  std::int64_t largest = 0;
  for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
    if (traits(schedule.ops[i].kind).op_class != OpClass::Collective) continue;
    largest = std::max(largest, payload_of(schedule, {static_cast<std::int32_t>(i)}).elements);
  }
  return std::min(largest, kMost);
}

}  // namespace

Result<std::string> asked_attention() {
  const char* value = std::getenv("REHEARSE_CUDA_ATTENTION");
  const std::string asked = value == nullptr ? "" : value;
  for (const char* known : {"", "mma", "wgmma", "cudnn", "ours", "say"}) {
    if (asked == known) return asked;
  }
  return Error{"REHEARSE_CUDA_ATTENTION: mma, wgmma, cudnn, ours or say, not \"" + asked + "\""};
}

Result<RunDevice> RunDevice::choose(const std::string& asked) {
  RunDevice chosen;
  if (asked == "cpu") return chosen;
  if (asked == "auto" && !has_cuda_driver()) return chosen;
  const Result<const CudaModule*> module = load_cuda_module();
  const Result<std::int32_t> devices =
      module ? module.value()->devices() : Result<std::int32_t>(module.error());
  if (devices) {
    chosen.module_ = module.value();
    return chosen;
  }
  if (asked != "auto") return devices.error();
  chosen.refused_ = devices.error().message;
  return chosen;
}

Precision RunDevice::precision(const Plan& plan, bool asked) const {
  const ComputeType type = plan.precision.compute;
  if (cuda())
    return precision_named(is_quantized(type) ? "bf16" : std::string(name_of(type)), plan);
  const bool as_asked = asked && !is_quantized(type);
  return precision_named(as_asked ? std::string(name_of(type)) : "fp32", plan);
}

std::string RunDevice::describe() const {
  return cuda() ? module_->versions() : std::string();
}

Result<std::string> RunDevice::gpu_name() const {
  const Result<Backend> opened = module_->make_backend({});
  if (!opened) return opened.error();
  const Result<GpuFacts> facts = module_->inspect(*opened.value().device);
  if (!facts) return facts.error();
  return facts.value().name;
}

Result<Backend> RunDevice::make_backend(
    const Plan& plan, const Schedule& schedule, std::int32_t local, double timeout_s,
    const std::function<void(const std::string&)>& warn,
    const std::function<void(const std::string&)>& stuck) const {
  if (!cuda()) return make_cpu_backend(element_of(plan.precision.compute));
  const char* graphs = std::getenv("REHEARSE_CUDA_GRAPHS");
  const Result<std::string> attention = asked_attention();
  if (!attention) return attention.error();
  return module_->make_backend({.device = local,
                                .type = element_of(plan.precision.compute),
                                .timeout_s = timeout_s,
                                .graphs = graphs == nullptr || std::string_view(graphs) != "0",
                                .attention = attention.value(),
                                .label = [&schedule](OpId op) { return op_label(schedule, op); },
                                .warn = warn,
                                .stuck = stuck});
}

Result<std::unique_ptr<Communicator>> RunDevice::make_nccl(
    Device& device, const Layout& layout, const Schedule& schedule, std::int32_t process,
    std::int32_t processes, std::function<Result<std::string>(const std::string&)> share) const {
  const Plan& plan = layout.plan;
  if (plan.gpus() != processes) {
    return Error{"NCCL wants a process per rank: " + std::to_string(plan.gpus()) + " ranks in " +
                 std::to_string(processes) + " processes"};
  }
  const Mesh mesh(plan);
  const GroupInstances groups(schedule, mesh);
  return module_->make_nccl(device, {.process = process,
                                     .processes = processes,
                                     .groups = &groups,
                                     .edges = transfer_edges(schedule, mesh),
                                     .largest_elements = largest_exchange(schedule),
                                     .meetings = meetings(layout, schedule, groups),
                                     .share = std::move(share)});
}

}  // namespace rehearse::exec
