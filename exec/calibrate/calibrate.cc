// SPDX-License-Identifier: Apache-2.0
#include "exec/calibrate/calibrate.h"

#include <unistd.h>

#include <algorithm>
#include <ctime>

#include "exec/calibrate/calibrate_parts.h"
#include "exec/cpu/machine.h"

namespace rehearse::exec {
namespace {

constexpr std::int64_t kSlackBytes = 1 << 10;  // that alignment may cost

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d", &utc);
  return text;
}

}  // namespace

Result<MachineTables> calibrate(const Backend& backend, const CalibrateOptions& options) {
  const double begin = now_s();
  const CalibrateSizes& sizes = options.sizes;
  // Weights come from memory or a shared cache, as in a step.
  Calibration c{.device = *backend.device,
                .kernels = *backend.kernels,
                .options = options,
                .sizes = sizes,
                .watch = Stopwatch(*backend.device, sizes.repetitions, sizes.seconds),
                .memory = RotatingMemory(*backend.device, sizes.cold_bytes),
                .written = RotatingMemory(*backend.device, sizes.cold_bytes),
                .warm = RotatingMemory(*backend.device, sizes.cold_bytes / 4)};
  c.tables.cpu = cpu_name();
  c.tables.instruction_set = std::string(backend.device->name());
  c.tables.date = today();
  c.tables.type = options.type;
  c.tables.cores = usable_cores();
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  c.tables.memory_bytes = static_cast<std::int64_t>(pages) * page;
  const std::int64_t busy = sizes.cold_bytes - kSlackBytes;
  c.watch.keep_busy(c.written.next(busy / 4), busy);
  std::vector<void (*)(Calibration&)> parts{measure_gemm, measure_memory_bound, measure_attention};
  if (c.gpu()) {
    parts.insert(parts.end(), {measure_grouped, measure_copies, measure_launches});
    if (options.communicator != nullptr) parts.push_back(measure_nccl);
  } else {
    parts.insert(parts.end(), {measure_exchanges, measure_processes, measure_computing_together,
                               measure_scheduler, measure_drives});
  }
  for (const auto& measure : parts) {
    measure(c);
    measure_round(c);
  }
  if (!c.watch.error().empty()) return Error{c.watch.error()};
  c.tables.noise = c.watch.noise();
  c.tables.product_scatter = scatter(c.rounds_us);
  c.tables.seconds = now_s() - begin;
  return std::move(c.tables);
}

}  // namespace rehearse::exec
