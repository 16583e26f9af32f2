#include "exec/calibrate.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <fstream>

#include "exec/calibrate_parts.h"

namespace rehearse::exec {
namespace {

constexpr std::int64_t kSlackBytes = 1 << 10;  // that alignment may cost

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

CalibrateSizes CalibrateSizes::cpu(bool quick) {
  CalibrateSizes sizes{.tokens = {16, 32, 64, 128, 256, 512},
                       .features = {32, 64, 128, 256, 512, 1024, 2048, 3072},
                       .bytes = {16 << 10, 32 << 20, 4},
                       .sequence = {32, 2048, 2},
                       .exchanged = {256, 4 << 20, 8},
                       // Of one core.
                       .cold_bytes = 64 << 20,
                       .repetitions = 5,
                       .scheduler_steps = 51,
                       .seconds = 3e-3,
                       .together_seconds = 1};
  if (!quick) return sizes;
  sizes.tokens = {16, 64, 256};
  sizes.features = {32, 128, 512, 2048};
  sizes.bytes = {16 << 10, 4 << 20, 16};
  sizes.sequence = {32, 512, 4};
  sizes.exchanged = {256, 1 << 20, 64};
  sizes.repetitions = 3;
  sizes.scheduler_steps = 15;
  sizes.seconds = 0.5e-3;
  sizes.together_seconds = 0.1;
  return sizes;
}

CalibrateSizes CalibrateSizes::gpu(bool quick) {
  CalibrateSizes sizes{.tokens = {512, 2048, 8192, 32768},
                       .features = {256, 768, 1600, 4096, 8192},
                       .columns = 1024,
                       .vocabulary = 50304,
                       .bytes = {256 << 10, 256 << 20, 4},
                       .sequence = {256, 8192, 2},
                       .heads = 16,
                       .attention_tokens = 8192,
                       .exchanged = {1 << 10, 64 << 20, 8},
                       .copied = {64 << 10, 256 << 20, 16},
                       // The second-level cache of an H200 is 50 MiB.
                       .cold_bytes = 512 << 20,
                       .repetitions = 5,
                       .seconds = 2e-3};
  if (!quick) return sizes;
  sizes.tokens = {1024, 8192};
  sizes.features = {768, 3072};
  sizes.bytes = {1 << 20, 256 << 20, 16};
  sizes.sequence = {512, 2048, 4};
  sizes.exchanged = {1 << 14, 16 << 20, 32};
  sizes.repetitions = 3;
  sizes.seconds = 0.5e-3;
  return sizes;
}

Result<MachineTables> calibrate(Backend& backend, const CalibrateOptions& options) {
  const double begin = now_s();
  const CalibrateSizes& sizes = options.sizes;
  // Weights come from memory or a shared cache, as in a step.
  Calibration c{.backend = backend,
                .options = options,
                .sizes = sizes,
                .watch = Stopwatch(backend, sizes.repetitions, sizes.seconds),
                .memory = RotatingMemory(backend, sizes.cold_bytes),
                .written = RotatingMemory(backend, sizes.cold_bytes),
                .warm = RotatingMemory(backend, sizes.cold_bytes / 4)};
  c.tables.cpu = cpu_name();
  c.tables.instruction_set = std::string(backend.device());
  c.tables.date = today();
  c.tables.type = options.type;
  c.tables.cores = usable_cores();
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  c.tables.memory_bytes = static_cast<std::int64_t>(pages) * page;
  const std::int64_t busy = sizes.cold_bytes - kSlackBytes;
  c.watch.keep_busy(c.written.next(busy / 4), busy);
  measure_gemm(c);
  measure_memory_bound(c);
  measure_attention(c);
  if (c.gpu()) {
    measure_copies(c);
    measure_launches(c);
    if (options.communicator != nullptr) measure_nccl(c);
  } else {
    measure_exchanges(c);
    measure_computing_together(c);
    measure_scheduler(c);
  }
  if (!c.watch.error().empty()) return Error{c.watch.error()};
  c.tables.noise = c.watch.noise();
  c.tables.seconds = now_s() - begin;
  return std::move(c.tables);
}

}  // namespace rehearse::exec
