// SPDX-License-Identifier: Apache-2.0
#include "sim/explain/breakdown.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <numeric>

namespace rehearse::sim {
namespace {

constexpr std::array<std::string_view, kNumCauses> kNames{"forward_products",
                                                          "forward_attention",
                                                          "forward_memory_bound",
                                                          "forward_rest",
                                                          "backward_products",
                                                          "backward_attention",
                                                          "backward_memory_bound",
                                                          "backward_rest",
                                                          "recompute_products",
                                                          "recompute_attention",
                                                          "recompute_memory_bound",
                                                          "recompute_rest",
                                                          "update",
                                                          "tensor_parallel",
                                                          "context_parallel",
                                                          "expert_parallel",
                                                          "data_parallel",
                                                          "pipeline_transfers",
                                                          "host_copies",
                                                          "expert_imbalance",
                                                          "warmup",
                                                          "cooldown",
                                                          "dependency",
                                                          "straggler",
                                                          "host",
                                                          "resource"};

constexpr CauseSet kProducts = set_of({Cause::ForwardProducts, Cause::BackwardProducts});
constexpr CauseSet kAttention = set_of({Cause::ForwardAttention, Cause::BackwardAttention});
constexpr CauseSet kMemoryBound = set_of({Cause::ForwardMemoryBound, Cause::BackwardMemoryBound});
constexpr CauseSet kRest = set_of({Cause::ForwardRest, Cause::BackwardRest});
constexpr CauseSet kAgainProducts = set_of({Cause::RecomputeProducts});
constexpr CauseSet kAgainAttention = set_of({Cause::RecomputeAttention});
constexpr CauseSet kAgainMemoryBound = set_of({Cause::RecomputeMemoryBound});
constexpr CauseSet kAgainRest = set_of({Cause::RecomputeRest});

// What sets of causes are called, the largest first: a set is told by those that it holds whole.
struct SetWords {
  CauseSet causes;
  std::string_view words;
};
constexpr std::array kWords{
    SetWords{kEveryCause, "the whole step"},
    SetWords{kComputing, "computing"},
    SetWords{kWaiting, "waiting between ops"},
    SetWords{kCommunication, "communication that nothing hides"},
    SetWords{kInsideOps | set_of({Cause::Imbalance}), "communication inside ops"},
    SetWords{kBackward | kRecompute, "backward and recomputation"},
    SetWords{kForward, "forward"},
    SetWords{kBackward, "backward"},
    SetWords{kRecompute, "recomputation"},
    SetWords{kProducts | kAgainProducts, "matrix products"},
    SetWords{kAttention | kAgainAttention, "attention"},
    SetWords{kMemoryBound | kAgainMemoryBound, "memory-bound kernels"},
    SetWords{kRest | kAgainRest, "launches and the rest of ops"},
    SetWords{kInsideOps, "communication inside ops"},
    SetWords{kBetweenOps, "communication between ops"},
    SetWords{kProducts, "matrix products"},
    SetWords{kAttention, "attention"},
    SetWords{kMemoryBound, "memory-bound kernels"},
    SetWords{kRest, "launches and the rest of ops"},
    SetWords{kAgainProducts, "products computed again"},
    SetWords{kAgainAttention, "attention computed again"},
    SetWords{kAgainMemoryBound, "memory-bound kernels run again"},
    SetWords{kAgainRest, "launches of what is computed again"},
    SetWords{set_of({Cause::Update}), "update of the parameters"},
    SetWords{set_of({Cause::TensorGroup}), "tensor-parallel communication"},
    SetWords{set_of({Cause::ContextGroup}), "context-parallel communication"},
    SetWords{set_of({Cause::ExpertGroup}), "expert-parallel communication"},
    SetWords{set_of({Cause::ReplicaGroup}), "data-parallel communication"},
    SetWords{set_of({Cause::PipelineGroup}), "pipeline transfers"},
    SetWords{set_of({Cause::Copies}), "copies from and to the host"},
    SetWords{set_of({Cause::Imbalance}), "uneven load of experts"},
    SetWords{set_of({Cause::Warmup}), "filling of the pipeline"},
    SetWords{set_of({Cause::Cooldown}), "draining of the pipeline"},
    SetWords{set_of({Cause::Dependency}), "waiting for what other ranks compute"},
    SetWords{set_of({Cause::Straggler}), "waiting for slow ranks"},
    SetWords{set_of({Cause::Host}), "waiting for the host"},
    SetWords{set_of({Cause::Resource}), "waiting for memory"},
};

// Ways to put computing together: what recomputation runs again apart or with its kind; by what
// kernels do, or by when they run.
constexpr CauseSet one(Cause cause) {
  return set_of({cause});
}
const std::array<std::vector<CauseSet>, 4> kViews{
    std::vector<CauseSet>{kProducts, kAttention, kMemoryBound, kRest, kRecompute},
    {kProducts | kAgainProducts, kAttention | kAgainAttention, kMemoryBound | kAgainMemoryBound,
     kRest | kAgainRest},
    {kForward, kBackward, kRecompute},
    {kForward, kBackward | kRecompute},
};

// Which causes stand together: each points to one of its set.
class Sets {
 public:
  Sets() { std::iota(of_.begin(), of_.end(), 0); }
  void join(CauseSet causes) {
    const int first = std::countr_zero(causes);
    for (int c = first + 1; c < static_cast<int>(kNumCauses); ++c) {
      if ((causes >> c & 1) != 0) of_[static_cast<std::size_t>(find(c))] = find(first);
    }
  }
  int find(int cause) const {
    while (of_[static_cast<std::size_t>(cause)] != cause) {
      cause = of_[static_cast<std::size_t>(cause)];
    }
    return cause;
  }

 private:
  std::array<int, kNumCauses> of_{};
};

// Causes for which a breakdown knows that there is no time: a share that may be for one of them
// is for the others.
CauseSet known_zeros(const Breakdown& of) {
  CauseSet zeros = 0, present = 0;
  for (const Share& share : of.shares) (share.ns == 0 ? zeros : present) |= share.causes;
  return zeros & ~present;
}

std::vector<CauseDifference> in_view(const Breakdown& a, const Breakdown& b,
                                     const std::vector<CauseSet>& view) {
  const CauseSet zeros = known_zeros(a) | known_zeros(b);
  const auto telling = [zeros](CauseSet causes) {
    return (causes & ~zeros) != 0 ? causes & ~zeros : causes;
  };
  Sets sets;
  for (const CauseSet causes : view) sets.join(causes);
  for (const Breakdown* side : {&a, &b}) {
    for (const Share& share : side->shares) sets.join(telling(share.causes));
  }
  std::array<CauseDifference, kNumCauses> sums{};
  const auto add = [&](const Breakdown& side, std::int64_t CauseDifference::*to) {
    for (const Share& share : side.shares) {
      CauseDifference& sum =
          sums[static_cast<std::size_t>(sets.find(std::countr_zero(telling(share.causes))))];
      sum.*to += share.ns;
      if (share.ns != 0) sum.causes |= share.causes;
    }
  };
  for (int c = 0; c < static_cast<int>(kNumCauses); ++c) {
    sums[static_cast<std::size_t>(sets.find(c))].causes |= CauseSet{1} << c;
  }
  add(a, &CauseDifference::a);
  add(b, &CauseDifference::b);
  std::vector<CauseDifference> out;
  for (const CauseDifference& sum : sums) {
    if (sum.a != 0 || sum.b != 0) out.push_back(sum);
  }
  return out;
}

}  // namespace

std::string words_of(CauseSet causes) {
  std::vector<std::string_view> parts;
  CauseSet rest = causes;
  for (const SetWords& row : kWords) {
    if (rest == 0 || (row.causes & ~rest) != 0) continue;
    rest &= ~row.causes;
    if (std::ranges::find(parts, row.words) == parts.end()) parts.push_back(row.words);
  }
  for (const std::string_view name : names_of(rest)) parts.push_back(name);
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) text += i + 1 == parts.size() ? " and " : ", ";
    text += parts[i];
  }
  return text;
}

std::vector<std::string_view> names_of(CauseSet causes) {
  std::vector<std::string_view> names;
  for (std::size_t c = 0; c < kNumCauses; ++c) {
    if ((causes >> c & 1) != 0) names.push_back(kNames[c]);
  }
  return names;
}

std::vector<std::int64_t> divided(std::int64_t total, std::span<const double> weights) {
  std::vector<std::int64_t> out(weights.size(), 0);
  long double sum = 0;
  for (const double weight : weights) sum += weight;
  if (out.empty()) return out;
  if (sum <= 0) {
    out.front() = total;
    return out;
  }
  // Cut at the rounded running sums: what is left of one is the next one's.
  long double running = 0;
  std::int64_t before = 0;
  std::size_t last = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] <= 0) continue;
    running += weights[i];
    const auto until = std::clamp<std::int64_t>(
        std::llround(static_cast<long double>(total) * (running / sum)), before, total);
    out[i] = until - before;
    before = until;
    last = i;
  }
  out[last] += total - before;
  return out;
}

Breakdown broken_down(std::int64_t step_ns, const std::vector<Weight>& weights) {
  std::vector<double> plain;
  plain.reserve(weights.size());
  for (const Weight& one : weights) plain.push_back(one.weight);
  const std::vector<std::int64_t> parts = divided(step_ns, plain);
  Breakdown out{.step_ns = step_ns, .shares = {}};
  for (std::size_t i = 0; i < weights.size(); ++i) {
    out.shares.push_back({weights[i].causes, parts[i]});
  }
  return out;
}

std::vector<CauseDifference> differences(const Breakdown& a, const Breakdown& b) {
  std::vector<CauseDifference> finest;
  for (const std::vector<CauseSet>& view : kViews) {
    std::vector<CauseDifference> found = in_view(a, b, view);
    if (found.size() > finest.size()) finest = std::move(found);
  }
  std::ranges::stable_sort(finest, [](const CauseDifference& x, const CauseDifference& y) {
    return std::llabs(x.difference()) > std::llabs(y.difference());
  });
  return finest;
}

}  // namespace rehearse::sim
