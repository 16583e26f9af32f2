// SPDX-License-Identifier: Apache-2.0
// rehearse cluster: a cluster file from what a machine says of itself, in files or by its own
// commands.
#include <fmt/format.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "cli/commands.h"
#include "schedules/base/files.h"
#include "schedules/base/json_reader.h"
#include "sim/machine/cluster_file.h"
#include "sim/machine/nccl_topology.h"
#include "sim/machine/topology_matrix.h"

namespace rehearse::cli {
namespace {

constexpr std::int64_t kMostText = 16 << 20;  // [B] of any of the files

struct ClusterOptions {
  std::string nvidia_smi, nccl_topology, output;
  std::vector<std::string> nccl_tests;
  bool none() const { return nvidia_smi.empty() && nccl_topology.empty() && nccl_tests.empty(); }
};

std::string source(std::string_view what, const std::string& path) {
  return fmt::format("{}: {}", what, std::filesystem::path(path).filename().string());
}

// What a command prints; empty: it is not there, or failed.
std::string output_of(const char* command) {
  std::FILE* pipe = popen(command, "r");
  if (pipe == nullptr) return {};
  std::string text;
  char buffer[4096];
  std::size_t read = 0;
  while ((read = std::fread(buffer, 1, sizeof buffer, pipe)) > 0 &&
         static_cast<std::int64_t>(text.size()) < kMostText) {
    text.append(buffer, read);
  }
  return pclose(pipe) == 0 ? text : std::string();
}

std::string first_line(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Rates of this machine's ports, which the matrix does not show: "400 Gb/sec (4X NDR)".
void add_rates(sim::NodeTopology& node) {
  for (sim::NodeNic& nic : node.nics) {
    const std::filesystem::path device = "/sys/class/infiniband/" + nic.name;
    std::istringstream rate(first_line(device / "ports/1/rate"));
    double gbit = 0;
    if (rate >> gbit && gbit > 0) nic.gbit_per_s = gbit;
    nic.pci_vendor = first_line(device / "device/vendor");
    nic.pci_device = first_line(device / "device/device");
    const std::string layer = first_line(device / "ports/1/link_layer");
    if (!layer.empty()) nic.infiniband = layer == "InfiniBand";
  }
}

void add_host(sim::MachineReport& machine) {
  std::ifstream cpus("/proc/cpuinfo"), memory("/proc/meminfo");
  std::set<std::string> sockets;
  for (std::string line; std::getline(cpus, line);) {
    const std::size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    if (line.starts_with("physical id")) sockets.insert(line.substr(colon + 2));
    if (line.starts_with("model name")) machine.cpu = line.substr(colon + 2);
  }
  if (!sockets.empty()) machine.sockets = static_cast<std::int32_t>(sockets.size());
  std::string word;
  double kib = 0;
  if (memory >> word >> kib && word == "MemTotal:") machine.host_memory_gib = kib / (1 << 20);
}

// This machine's own words.
Result<sim::MachineReport> ask_machine() {
  const std::string names = output_of("nvidia-smi -L 2>/dev/null");
  const std::string matrix = output_of("nvidia-smi topo -m 2>/dev/null");
  if (names.empty() || matrix.empty()) {
    return Error{
        "nvidia-smi: is not here, or failed: name files of the machine that has the GPUs, "
        "--nvidia-smi FILE, --nccl-topology FILE or --nccl-tests FILE"};
  }
  Result<sim::NodeTopology> node = sim::read_topology_matrix(names + matrix, "nvidia-smi");
  if (!node) return node.error();
  sim::MachineReport machine{.matrix = std::move(node).value()};
  add_rates(*machine.matrix);
  add_host(machine);
  machine.sources = {"nvidia-smi -L and nvidia-smi topo -m, /sys/class/infiniband and /proc"};
  return machine;
}

Result<sim::MachineReport> read_files(const ClusterOptions& options) {
  sim::MachineReport machine;
  if (!options.nvidia_smi.empty()) {
    const Result<std::string> text = read_text_file(options.nvidia_smi, kMostText);
    if (!text) return text.error();
    Result<sim::NodeTopology> node = sim::read_topology_matrix(text.value(), options.nvidia_smi);
    if (!node) return node.error();
    machine.matrix = std::move(node).value();
    machine.sources.push_back(source("nvidia-smi", options.nvidia_smi));
  }
  if (!options.nccl_topology.empty()) {
    const Result<std::string> text = read_text_file(options.nccl_topology, kMostText);
    if (!text) return text.error();
    Result<sim::NodeTopology> node = sim::read_nccl_topology(text.value(), options.nccl_topology);
    if (!node) return node.error();
    machine.nccl = std::move(node).value();
    machine.sources.push_back(source("NCCL's topology", options.nccl_topology));
  }
  for (const std::string& path : options.nccl_tests) {
    const Result<std::string> text = read_text_file(path, kMostText);
    if (!text) return text.error();
    Result<sim::NcclTestsLog> log = sim::read_nccl_tests_log(text.value(), path);
    if (!log) return log.error();
    machine.logs.push_back(std::move(log).value());
    machine.sources.push_back(source("nccl-tests", path));
  }
  return machine;
}

std::string about(const sim::ClusterFile& file) {
  std::string text = file.name;
  if (!file.gpu_from.empty()) text += ", described as in " + file.gpu_from;
  text += "\n";
  for (const std::string& note : file.notes) text += "note: " + note + "\n";
  text += "not known, and null:";
  for (const std::string& key : file.unknown) text += " " + key;
  text += "\n";
  if (!file.missing.empty()) text += "before it can be simulated: " + file.missing + "\n";
  return text;
}

int cluster(const ClusterOptions& options) {
  if (!ends_as(options.output, "-o", ".json")) return kBadInput;
  const Result<sim::MachineReport> machine = options.none() ? ask_machine() : read_files(options);
  if (!machine) return fail(machine.error());
  const std::string id = options.output.empty() ? "this-machine" : stem_of(options.output);
  const Result<sim::ClusterFile> made = sim::make_cluster_file(machine.value(), id);
  if (!made) return fail(made.error());
  if (options.output.empty()) {
    std::istringstream lines(about(made.value()));
    for (std::string line; std::getline(lines, line);) print_error(line);
    print_text(made.value().text);
    return kDone;
  }
  if (const int code = write_file(options.output, made.value().text); code != kDone) return code;
  print_text(about(made.value()));
  return kDone;
}

}  // namespace

Command cluster_command() {
  const auto o = std::make_shared<ClusterOptions>();
  Command command{"cluster", "a cluster file from what a machine says of itself"};
  command.options = {
      {"--nvidia-smi", &o->nvidia_smi, "what `nvidia-smi topo -m` printed, and `nvidia-smi -L`"},
      {"--nccl-topology", &o->nccl_topology, "XML that NCCL wrote (NCCL_TOPO_DUMP_FILE)"},
      {"--nccl-tests", &o->nccl_tests, "what programs of nccl-tests or rccl-tests printed"},
      writes({"-o,--output", &o->output, "write to FILE; else to stdout"}),
  };
  command.footer = "Example: rehearse cluster --nccl-topology tests/data/machines/simai-8-a100.xml";
  command.perform = [o](const Given&) { return cluster(*o); };
  return command;
}

}  // namespace rehearse::cli
