// SPDX-License-Identifier: Apache-2.0
// Which heads a rank attends with where the ranks that share a sequence exchange them
// (DeepSpeed-Ulysses, arXiv 2309.14509): all tokens of some heads, in place of all heads of some
// tokens.
#pragma once

#include <cstdint>

#include "schedules/scenario/layout.h"

namespace rehearse {

constexpr bool exchanges_heads(const Plan& plan) {
  return plan.context_parallel > 1 &&
         plan.context_parallel_algorithm == ContextParallelAlgorithm::AllToAll;
}
constexpr bool gathers_keys(const Plan& plan) {
  return plan.context_parallel > 1 &&
         plan.context_parallel_algorithm == ContextParallelAlgorithm::AllGather;
}

struct HeadShare {
  std::int64_t ranks = 1;     // that exchange heads: c, or 1 where none do
  std::int64_t heads = 0;     // of queries
  std::int64_t kv_heads = 0;  // of keys and values, which those read: at least one
  std::int64_t readers = 1;   // ranks that read one key head; above 1, kv_heads is 1

  std::int64_t first_key_head(std::int64_t rank) const { return rank * kv_heads / readers; }
};
// REQUIRES: c divides the rank's heads, and divides its key heads or is a multiple of them.
constexpr HeadShare head_share(const Layout& layout) {
  const RankShape& s = layout.shape;
  if (!exchanges_heads(layout.plan)) return {1, s.heads, s.kv_heads, 1};
  const std::int64_t c = layout.plan.context_parallel;
  const bool shared = s.kv_heads < c;
  return {c, s.heads / c, shared ? 1 : s.kv_heads / c, shared ? c / s.kv_heads : 1};
}

}  // namespace rehearse
