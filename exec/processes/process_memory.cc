// SPDX-License-Identifier: Apache-2.0
#include "exec/processes/process_memory.h"

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>

namespace rehearse::exec {

ProcessMemory process_memory(int process) {
  ProcessMemory found;
  std::ifstream status("/proc/" + (process == 0 ? "self" : std::to_string(process)) + "/status");
  for (std::string line; std::getline(status, line);) {
    std::istringstream words(line);
    std::string key;
    std::int64_t kib = 0;
    words >> key >> kib;
    if (key == "VmHWM:") found.peak = kib * 1024;
    if (key == "VmRSS:") found.resident = kib * 1024;
    if (key == "RssFile:") found.files = kib * 1024;
    if (key == "RssShmem:") found.shared = kib * 1024;
  }
  std::ifstream boot("/proc/sys/kernel/random/boot_id");
  std::string id;
  if (std::getline(boot, id))
    found.machine = static_cast<std::int64_t>(std::hash<std::string>{}(id));
  return found;
}

std::int64_t peak_together(std::span<const ProcessMemory> processes) {
  std::int64_t sum = 0;
  struct Common {
    std::int64_t files = 0, shared = 0;
  };
  std::map<std::int64_t, Common> machines;
  for (const ProcessMemory& one : processes) {
    sum += one.peak - one.files - one.shared;
    Common& common = machines[one.machine];
    common.files = std::max(common.files, one.files);
    common.shared = std::max(common.shared, one.shared);
  }
  for (const auto& [machine, common] : machines) sum += common.files + common.shared;
  return sum;
}

}  // namespace rehearse::exec
