// SPDX-License-Identifier: Apache-2.0
// Which heads a rank attends with where ranks that share a sequence exchange them
// (DeepSpeed-Ulysses, arXiv 2309.14509): more tokens of some heads, in place of all heads of some
// tokens. All of the ranks do, and have whole sequences; or neighbours among them, and round a ring
// of such groups go keys and values (USP, arXiv 2405.07719; "a2a+p2p" of Transformer Engine).
#pragma once

#include <cstdint>

#include "schedules/scenario/layout.h"

namespace rehearse {

inline bool exchanges_heads(const Plan& plan) {
  return plan.exchanging_ranks() > 1;
}
// Blocks of a sequence's keys that the attention core meets, each on other ranks.
inline std::int32_t key_blocks(const Plan& plan) {
  return plan.context_parallel / plan.exchanging_ranks();
}
// Along which the one and the other meet.
constexpr Axis axis_of_heads(const Plan& plan) {
  return plan.head_exchange_group > 0 ? Axis::ContextHeads : Axis::Context;
}
constexpr Axis axis_of_keys(const Plan& plan) {
  return plan.head_exchange_group > 0 ? Axis::ContextRing : Axis::Context;
}
constexpr bool gathers_keys(const Plan& plan) {
  return plan.context_parallel > 1 &&
         plan.context_parallel_algorithm == ContextParallelAlgorithm::AllGather;
}

struct HeadShare {
  std::int64_t ranks = 1;     // that exchange heads, R; 1 where none do
  std::int64_t heads = 0;     // of queries
  std::int64_t kv_heads = 0;  // of keys and values, which those read: at least one
  std::int64_t readers = 1;   // ranks that read one key head; above 1, kv_heads is 1

  std::int64_t first_key_head(std::int64_t rank) const { return rank * kv_heads / readers; }
};
// REQUIRES: R divides the rank's heads, and divides its key heads or is a multiple of them.
inline HeadShare head_share(const Layout& layout) {
  const RankShape& s = layout.shape;
  if (!exchanges_heads(layout.plan)) return {1, s.heads, s.kv_heads, 1};
  const std::int64_t ranks = layout.plan.exchanging_ranks();
  const bool shared = s.kv_heads < ranks;
  return {ranks, s.heads / ranks, shared ? 1 : s.kv_heads / ranks, shared ? ranks / s.kv_heads : 1};
}

}  // namespace rehearse
