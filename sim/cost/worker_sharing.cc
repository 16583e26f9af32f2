// SPDX-License-Identifier: Apache-2.0
#include "sim/cost/worker_sharing.h"

#include <algorithm>
#include "sim/cost/to_nanoseconds.h"

namespace rehearse::sim {

WorkerSharing worker_sharing(const Cluster& cluster) {
  WorkerSharing sharing{.workers = cluster.workers};
  if (cluster.workers == 0 || !cluster.calibration) return sharing;
  const Calibration& tables = *cluster.calibration;
  const auto factor = [&](std::string_view name) {
    return std::max(1.0, tables.scalar(name).value_or(1));
  };
  const auto ns = [&](std::optional<double> us) {
    return to_nanoseconds(cluster.correction.host * std::max(0.0, us.value_or(0)) * 1e3).value;
  };
  sharing.matrix_products = factor("workers.matrix_products");
  sharing.attention = factor("workers.attention");
  sharing.memory_bound = factor("workers.memory_bound");
  sharing.op_ns = ns(tables.launch_us);
  // More ranks than workers: who waits has another rank's work to do, nobody falls asleep.
  if (cluster.gpus_per_node > cluster.workers) return sharing;
  sharing.meeting_ns = ns(tables.scalar("workers.meeting_us"));
  sharing.handover_ns = ns(tables.scalar("workers.handover_us"));
  return sharing;
}

WorkerUse worker_use(const WorkerSharing& sharing, std::int64_t computing, double shared,
                     std::int32_t ranks, std::int64_t exchanging, std::int32_t groups) {
  const double workers = sharing.workers;
  const double threads = shared * ranks;  // of which one computes as fast as alone
  const auto stretched = [workers](std::int64_t ns, double demand) {
    return to_nanoseconds(static_cast<double>(ns) * std::max(1.0, demand / workers)).value;
  };
  WorkerUse use{.computing_ns = stretched(computing, threads),
                .exchanging_ns = stretched(exchanging, groups)};
  const auto time = static_cast<double>(use.computing_ns + use.exchanging_ns);
  if (time <= 0) return use;
  const double busy = static_cast<double>(use.computing_ns) * std::min(workers, threads) +
                      static_cast<double>(use.exchanging_ns) * std::min<double>(workers, groups);
  use.share = std::min(1.0, busy / (workers * time));
  return use;
}

}  // namespace rehearse::sim
