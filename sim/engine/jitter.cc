// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/jitter.h"

#include <algorithm>

#include "schedules/base/random.h"

namespace rehearse::sim {
namespace {

// Mean 0, variance 1: 12 uniforms less 6. Sums of integers, so the same on every machine.
double normal(std::uint64_t seed, std::uint64_t stream, std::uint64_t number) {
  std::uint64_t state = split_mix(split_mix(split_mix(seed) ^ stream) ^ number);
  std::int64_t sum = 0;
  for (int i = 0; i < 6; ++i) {
    state = split_mix(state);
    sum += static_cast<std::int64_t>(state >> 32) + static_cast<std::int64_t>(state & 0xffffffffu);
  }
  // 12 numbers in [0, 2^32), mean (2^32 - 1) / 2 each.
  constexpr std::int64_t kUnit = std::int64_t{1} << 32;
  return static_cast<double>(sum - 6 * (kUnit - 1)) / static_cast<double>(kUnit);
}

double factor(double sigma, std::uint64_t seed, std::uint64_t stream, std::uint64_t number) {
  if (sigma <= 0) return 1;
  return std::clamp(1 + sigma * normal(seed, stream, number), 0.5, 2.0);
}

enum : std::uint64_t { kOfRow = 1, kOfOp = 2 };

}  // namespace

Jitter::Jitter(const Program& program, const EngineOptions& options)
    : program_(program), op_sigma_(options.op_sigma), seed_(options.seed) {
  if (options.row_factor.empty() && options.row_sigma <= 0 && options.op_sigma <= 0) return;
  for (std::size_t r = 0; r < static_cast<std::size_t>(program.num_rows); ++r) {
    const double own = r < options.row_factor.size() ? options.row_factor[r] : 1;
    row_factor_.push_back(own * factor(options.row_sigma, seed_, kOfRow, r));
  }
}

std::int64_t Jitter::time(OpId op, std::int64_t alone) const {
  const RankClass row = program_.row_of[op.index()];
  const auto number = static_cast<std::uint64_t>(row.value) << 32 |
                      static_cast<std::uint64_t>(op.value - program_.row_begin[row.index()]);
  const double all = row_factor_[row.index()] * factor(op_sigma_, seed_, kOfOp, number);
  return static_cast<std::int64_t>(static_cast<double>(alone) * all + 0.5);
}

}  // namespace rehearse::sim
