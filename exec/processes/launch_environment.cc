// SPDX-License-Identifier: Apache-2.0
#include "exec/processes/launch_environment.h"

#include <charconv>
#include <cstring>
#include <string_view>

#include "exec/store/socket.h"

namespace rehearse::exec {
namespace {

using Variable = std::function<const char*(const char*)>;

std::string text(const Variable& variable, const char* name) {
  const char* value = variable(name);
  return value == nullptr ? std::string() : std::string(value);
}

// A whole number in [low, high].
Result<std::int32_t> number(const Variable& variable, const char* name, std::int32_t low,
                            std::int32_t high) {
  const std::string value = text(variable, name);
  std::int32_t parsed = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), parsed);
  if (error != std::errc() || end != value.data() + value.size() || parsed < low || parsed > high) {
    return Error{std::string(name) + ": \"" + value + "\" is no number from " +
                 std::to_string(low) + " to " + std::to_string(high)};
  }
  return parsed;
}

// How one launcher names things.
struct Names {
  bool counts_here;  // its number of local processes is how many are here, not how many may be
  const char *by, *process, *processes, *local, *local_processes, *hosts;
};
constexpr Names kNames[] = {
    {true, "torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE"},
    {false, "Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE",
     "SLURM_STEP_NUM_NODES"},
    {true, "Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", nullptr},
};

Result<> read_numbers(const Variable& variable, const Names& names, LaunchEnvironment& out) {
  constexpr std::int32_t kMost = 1 << 20;
  const Result<std::int32_t> processes = number(variable, names.processes, 1, kMost);
  if (!processes) return processes.error();
  const Result<std::int32_t> process = number(variable, names.process, 0, processes.value() - 1);
  if (!process) return process.error();
  out.by = names.by;
  out.processes = processes.value();
  out.process = process.value();
  if (variable(names.local) != nullptr) {
    const Result<std::int32_t> local = number(variable, names.local, 0, processes.value() - 1);
    if (!local) return local.error();
    out.local = local.value();
  }
  out.local_processes = out.processes;
  out.one_host = names.hosts != nullptr && text(variable, names.hosts) == "1";
  if (variable(names.local_processes) != nullptr) {
    const Result<std::int32_t> here = number(variable, names.local_processes, 1, out.processes);
    if (!here) return here.error();
    out.local_processes = here.value();
    if (here.value() == out.processes && names.counts_here) out.one_host = true;
  }
  return {};
}

Result<> read_address(const Variable& variable, LaunchEnvironment& out) {
  out.host = text(variable, "MASTER_ADDR");
  if (out.host.empty() && out.by == "Slurm") {
    out.host = text(variable, "SLURM_LAUNCH_NODE_IPADDR");
    if (out.host.empty()) out.host = first_host(text(variable, "SLURM_JOB_NODELIST"));
    if (out.host.empty()) out.host = first_host(text(variable, "SLURM_NODELIST"));
  }
  out.one_host = out.one_host || out.launched() || is_loopback(out.host);
  // A name is not asked for what is known: "localhost" does not resolve everywhere.
  if (out.one_host && (!is_loopback(out.host) || out.host == "localhost")) out.host = "127.0.0.1";
  if (out.host.empty()) return Error{"MASTER_ADDR: is not set; it names the host of process 0"};
  const bool agent = text(variable, "TORCHELASTIC_USE_AGENT_STORE") == "True";
  if (variable("MASTER_PORT") != nullptr) {
    const Result<std::int32_t> port = number(variable, "MASTER_PORT", 1, agent ? 65534 : 65535);
    if (!port) return port.error();
    out.port = static_cast<std::uint16_t>(port.value());
  }
  if (agent) ++out.port;
  return {};
}

}  // namespace

std::string first_host(const std::string& node_list) {
  const std::size_t end = node_list.find_first_of(",[");
  std::string host = node_list.substr(0, end);
  if (end == std::string::npos || node_list[end] == ',') return host;
  const std::size_t close = node_list.find_first_of("-,]", end);
  host += node_list.substr(end + 1, close - end - 1);
  const std::size_t bracket = node_list.find(']', end);
  if (bracket == std::string::npos) return host;
  const std::size_t comma = node_list.find(',', bracket);
  return host +
         node_list.substr(bracket + 1, comma == std::string::npos ? comma : comma - bracket - 1);
}

Result<std::optional<LaunchEnvironment>> read_launch_environment(const Variable& variable) {
  for (const Names& names : kNames) {
    const bool has_process = variable(names.process) != nullptr;
    if (variable(names.processes) == nullptr) continue;
    if (!has_process) continue;  // Slurm's allocation without a step, say
    LaunchEnvironment out;
    const Result<> numbers = read_numbers(variable, names, out);
    if (!numbers) return numbers.error();
    if (variable("REHEARSE_STATUS_FD") != nullptr) {
      const Result<std::int32_t> descriptor = number(variable, "REHEARSE_STATUS_FD", 0, 1 << 20);
      if (!descriptor) return descriptor.error();
      out.by = "rehearse";
      out.status_descriptor = descriptor.value();
    } else if (out.processes == 1) {
      return std::optional<LaunchEnvironment>();
    }
    const Result<> address = read_address(variable, out);
    if (!address) return address.error();
    for (const char* name : {"REHEARSE_JOB", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT",
                             "SLURM_JOB_ID", "SLURM_STEP_ID", "PMIX_NAMESPACE"}) {
      const std::string part = text(variable, name);
      if (!part.empty()) out.job += (out.job.empty() ? "" : ".") + part;
    }
    return std::optional(out);
  }
  return std::optional<LaunchEnvironment>();
}

}  // namespace rehearse::exec
