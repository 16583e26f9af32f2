// SPDX-License-Identifier: Apache-2.0
#include "exec/step/trials.h"

#include <memory>
#include <string>

#include "exec/backend/null_backend.h"

namespace rehearse::exec {

Result<> try_kernels(const LocalRanks& local, const RankState& rank, const BodyRunner& runner) {
  const Lane lane{rank.rank.value, Stream::Compute};
  const std::int64_t bytes = local.schedule.arena_bytes[rank.row.index()].value;
  const std::unique_ptr<Kernels> trials = local.kernels.trials(lane, rank.arena, bytes);
  if (trials == nullptr) return {};
  NullDevice nobody(local.device.asynchronous(), nullptr);
  OpCursor cursor(runner, nobody, *trials, lane, rank.at);
  for (const std::vector<ComputeOp>& halves : rank.compute) {
    for (const ComputeOp& op : halves) {
      cursor.start(op, {}, Track::Main, false);
      CollectiveRequest request;
      Progress at{};
      do {
        at = cursor.run(&request);
        if (at == Progress::Waits) cursor.met();
      } while (at != Progress::Done && at != Progress::Failed);
      if (at == Progress::Failed) {
        return Error{"rank " + std::to_string(rank.rank.value) +
                     ", trials of kernels: " + cursor.failure()};
      }
    }
  }
  return {};
}

}  // namespace rehearse::exec
