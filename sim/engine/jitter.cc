// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/jitter.h"

#include <algorithm>

#include "schedules/base/random.h"

namespace rehearse::sim {
namespace {

double factor(double sigma, std::uint64_t seed, std::uint64_t stream, std::uint64_t number) {
  if (sigma <= 0) return 1;
  return std::clamp(1 + sigma * normal(seed, stream, number), 0.5, 2.0);
}

enum : std::uint64_t { kOfRow = 1, kOfOp = 2 };

}  // namespace

Jitter::Jitter(const Program& program, const EngineOptions& options)
    : program_(program),
      op_sigma_(options.op_sigma),
      op_draws_(options.op_draws),
      seed_(options.seed) {
  if (options.row_factor.empty() && options.row_sigma <= 0 && options.op_sigma <= 0) return;
  for (std::size_t r = 0; r < static_cast<std::size_t>(program.num_rows); ++r) {
    const double own = r < options.row_factor.size() ? options.row_factor[r] : 1;
    row_factor_.push_back(own * factor(options.row_sigma, seed_, kOfRow, r));
  }
}

std::int64_t Jitter::time(OpId op, std::int64_t alone, std::int64_t fixed) const {
  const RankClass row = program_.row_of[op.index()];
  const auto number = static_cast<std::uint64_t>(row.value) << 32 |
                      static_cast<std::uint64_t>(op.value - program_.row_begin[row.index()]);
  double slowest = factor(op_sigma_, seed_, kOfOp, number);
  for (std::int32_t draw = 1; op_sigma_ > 0 && draw < op_draws_; ++draw) {
    slowest = std::max(slowest,
                       factor(op_sigma_, seed_, kOfOp + static_cast<std::uint64_t>(draw), number));
  }
  const double own = static_cast<double>(alone - fixed) * row_factor_[row.index()] * slowest;
  return fixed + static_cast<std::int64_t>(own + 0.5);
}

}  // namespace rehearse::sim
