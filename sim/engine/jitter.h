// SPDX-License-Identifier: Apache-2.0
// How much longer a row or an op takes than its cost says: a function of seed, row and the op's
// number in its row, so that neither other rows nor the order of events change an op's luck.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/engine/event_engine.h"
#include "sim/engine/program.h"

namespace rehearse::sim {

class Jitter {
 public:
  Jitter(const Program& program, const EngineOptions& options);

  bool any() const { return !row_factor_.empty(); }
  // `fixed` is the part of `alone` that no GPU's speed changes. REQUIRES: any(); the op computes
  // (Program::computes_on).
  std::int64_t time(OpId op, std::int64_t alone, std::int64_t fixed) const;

 private:
  const Program& program_;
  const double op_sigma_;
  const std::int32_t op_draws_;
  const std::uint64_t seed_;
  std::vector<double> row_factor_;  // empty: nothing differs from its cost
};

}  // namespace rehearse::sim
