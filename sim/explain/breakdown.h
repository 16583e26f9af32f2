// SPDX-License-Identifier: Apache-2.0
// Where the time of a step went, by cause, as finely as whoever performed or predicted it can tell;
// and two of these side by side.
//
// A step is that of its ranks, on average: every rank is busy or idle for some cause all the while,
// so the shares of the mean rank add up to the step, in whole nanoseconds. What a source cannot
// tell apart is one share of several causes: a profile knows matrix products, but not whether they
// belong to the forward; our executor's trace knows the forward, but not its products. Two
// breakdowns are compared by the finest causes that both can tell.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rehearse::sim {

enum class Cause : std::uint8_t {
  ForwardProducts,
  ForwardAttention,
  ForwardMemoryBound,
  ForwardRest,  // of ops: launches that the host is late with, what communication slows
  BackwardProducts,
  BackwardAttention,
  BackwardMemoryBound,
  BackwardRest,
  RecomputeProducts,
  RecomputeAttention,
  RecomputeMemoryBound,
  RecomputeRest,
  Update,        // optimizer, norm of the gradients, sums of two gradients
  TensorGroup,   // communication that nothing hides, by who communicates: links that
  ContextGroup,  //   are shared with others meanwhile included
  ExpertGroup,
  ReplicaGroup,   // gradients and parameters of data-parallel replicas, and what all ranks sum
  PipelineGroup,  // activations and their gradients, outside of filling and draining
  Copies,         // from and to the host's memory
  Imbalance,      // ranks with fewer rows of experts wait for the busiest
  Warmup,         // the pipeline fills
  Cooldown,       // the pipeline drains
  Dependency,     // another rank computes first
  Straggler,      // another rank is later than it would have to be
  Host,           // the host has not issued the op yet
  Resource,       // memory is not free yet
};
inline constexpr std::size_t kNumCauses = 26;

// Causes that a share is for: bit c for cause c.
using CauseSet = std::uint32_t;
constexpr CauseSet set_of(std::initializer_list<Cause> causes) {
  CauseSet set = 0;
  for (const Cause cause : causes) set |= CauseSet{1} << static_cast<unsigned>(cause);
  return set;
}

inline constexpr CauseSet kForward = set_of({Cause::ForwardProducts, Cause::ForwardAttention,
                                             Cause::ForwardMemoryBound, Cause::ForwardRest});
inline constexpr CauseSet kBackward = set_of({Cause::BackwardProducts, Cause::BackwardAttention,
                                              Cause::BackwardMemoryBound, Cause::BackwardRest});
inline constexpr CauseSet kRecompute = set_of({Cause::RecomputeProducts, Cause::RecomputeAttention,
                                               Cause::RecomputeMemoryBound, Cause::RecomputeRest});
inline constexpr CauseSet kComputing = kForward | kBackward | kRecompute | set_of({Cause::Update});
// Communication that happens inside compute ops, and between them.
inline constexpr CauseSet kInsideOps =
    set_of({Cause::TensorGroup, Cause::ContextGroup, Cause::ExpertGroup});
inline constexpr CauseSet kBetweenOps =
    set_of({Cause::ReplicaGroup, Cause::PipelineGroup, Cause::Copies});
inline constexpr CauseSet kCommunication = kInsideOps | kBetweenOps;
inline constexpr CauseSet kWaiting = set_of({Cause::Warmup, Cause::Cooldown, Cause::Dependency,
                                             Cause::Straggler, Cause::Host, Cause::Resource});
inline constexpr CauseSet kEveryCause = (CauseSet{1} << kNumCauses) - 1;

// "matrix products, forward and backward", "tensor-parallel communication and warmup".
std::string words_of(CauseSet causes);
// The causes' names, as JSON has them: "forward_products".
std::vector<std::string_view> names_of(CauseSet causes);

struct Share {
  CauseSet causes = 0;
  std::int64_t ns = 0;
};
struct Breakdown {
  std::int64_t step_ns = 0;
  std::vector<Share> shares;  // add up to step_ns
};

// `weights` become whole numbers that add up to `total`, each within 1 of its part; zeros stay
// zero. REQUIRES: none is negative; where all are zero the first gets everything.
std::vector<std::int64_t> divided(std::int64_t total, std::span<const double> weights);
// The breakdown of a step that weighs so much under each set of causes, in any unit.
struct Weight {
  CauseSet causes = 0;
  double weight = 0;
};
Breakdown broken_down(std::int64_t step_ns, const std::vector<Weight>& weights);

// One step of the waterfall from a to b.
struct CauseDifference {
  CauseSet causes = 0;
  std::int64_t a = 0, b = 0;  // [ns]
  std::int64_t difference() const { return b - a; }
};
// By the finest causes that both breakdowns tell, those that take most time from the one to the
// other first. The differences add up to that of the steps, exactly; causes for which neither has
// any time are left out.
std::vector<CauseDifference> differences(const Breakdown& a, const Breakdown& b);

}  // namespace rehearse::sim
