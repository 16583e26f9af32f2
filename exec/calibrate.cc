#include "exec/calibrate.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <fstream>

#include "exec/calibrate_parts.h"

namespace rehearse::exec {
namespace {

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (!line.starts_with("model name")) continue;
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown CPU";
}

std::int32_t usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d", &utc);
  return text;
}

}  // namespace

MachineTables calibrate(Backend& backend, const CalibrateOptions& options) {
  const double begin = now_s();
  // More than the caches of a core hold: weights come from memory or a shared cache, as in a step.
  constexpr std::size_t kMemory = std::size_t{64} << 20;
  Calibration c{.backend = backend,
                .options = options,
                .watch = options.quick ? Stopwatch(3, 0.5e-3) : Stopwatch(5, 3e-3),
                .memory = RotatingMemory(kMemory),
                .written = RotatingMemory(kMemory)};
  c.tables.cpu = cpu_name();
  c.tables.instruction_set = std::string(backend.device());
  c.tables.date = today();
  c.tables.cores = usable_cores();
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  c.tables.memory_bytes = static_cast<std::int64_t>(pages) * page;
  measure_gemm(c);
  measure_memory_bound(c);
  measure_attention(c);
  measure_exchanges(c);
  measure_computing_together(c);
  measure_scheduler(c);
  c.tables.noise = c.watch.noise();
  c.tables.seconds = now_s() - begin;
  return std::move(c.tables);
}

}  // namespace rehearse::exec
