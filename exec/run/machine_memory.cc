// SPDX-License-Identifier: Apache-2.0
#include "exec/run/machine_memory.h"

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <sstream>

namespace rehearse::exec {
namespace {

// What this machine has; 0 where it does not say.
std::int64_t physical_memory() {
  const long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
  return pages > 0 && size > 0 ? static_cast<std::int64_t>(pages) * size : 0;
}

// What can be had now without paging; 0 where the system does not say.
std::int64_t available_memory() {
  std::ifstream info("/proc/meminfo");
  for (std::string line; std::getline(info, line);) {
    std::istringstream words(line);
    std::string key;
    std::int64_t kib = 0;
    if (words >> key >> kib && key == "MemAvailable:") return kib * 1024;
  }
  return 0;
}

}  // namespace

std::string bytes_text(std::int64_t bytes) {
  char text[32];
  const double b = static_cast<double>(bytes);
  std::snprintf(text, sizeof text, b >= 1e9 ? "%.2f GB" : "%.2f MB", b * (b >= 1e9 ? 1e-9 : 1e-6));
  return text;
}

Result<> enough_memory(const ResidentPlan& plan, std::int32_t processes_here,
                       std::int32_t processes, std::string& warning) {
  const std::int64_t needed = plan.total() / processes * processes_here, there = physical_memory(),
                     free = available_memory();
  if (there > 0 && needed > there) {
    return Error{"the run takes " + bytes_text(needed) + " here, " +
                 bytes_text(plan.arenas / processes * processes_here) +
                 " of it the arenas of its ranks; this machine has " + bytes_text(there)};
  }
  if (free > 0 && needed > free) {
    warning = "the run takes " + bytes_text(needed) + " of memory, and " + bytes_text(free) +
              " of this machine's " + bytes_text(there) + " are free";
  }
  return {};
}

}  // namespace rehearse::exec
