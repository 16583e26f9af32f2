// SPDX-License-Identifier: Apache-2.0
// What a framework's host launches in a layer with experts, by feature: kernels and copies, forward
// and backward. A runtime's file says it in its section `expert_launches`, with the sources.
#pragma once

#include <cstdint>

namespace rehearse {

struct LaunchCount {
  std::int32_t forward = 0, backward = 0;
  bool operator==(const LaunchCount&) const = default;
};

// The defaults are those of megatron.json (held equal by a test).
struct ExpertLaunches {
  LaunchCount router{25, 30}, router_fused{6, 8};    // scores, top-k, the loss that balances
  LaunchCount counts{12, 0};                         // of tokens: what goes where
  LaunchCount permute{12, 14}, permute_fused{3, 3};  // copies of tokens in the order of experts
  LaunchCount sort{2, 3}, sort_fused{1, 1};          // by rank or by expert, each way
  LaunchCount exchange{1, 1};                        // one collective
  LaunchCount deduplicated{2, 2};                    // counts, weights and tokens, each way
  LaunchCount activation{2, 3};
  LaunchCount sums{5, 12};  // of a token's copies where they come home
  LaunchCount calls{1, 1};  // beside launches: for each expert of a rank, in each grouped product
  bool operator==(const ExpertLaunches&) const = default;
};

}  // namespace rehearse
