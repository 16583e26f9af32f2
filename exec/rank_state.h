// What one rank has: its arena, and for every compute op the addresses that it works on.
#pragma once

#include <cstdlib>
#include <memory>
#include <optional>
#include <vector>

#include "exec/in_process.h"

namespace rehearse::exec {

// One compute op, or one half of an OVERLAP pair, resolved before the first step.
struct ComputeOp {
  OpKind kind{};
  std::vector<SegmentInfo> segments;
  OpAddresses at;
  std::vector<std::pair<void*, std::size_t>> clear;  // gradients that it writes first
};

struct InProcess::RankState {
  Rank rank{};
  Row row{};
  Coordinates at;
  std::int32_t replica = 0;     // data * cp + context: number in the dp group
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte[], Free> arena;
  std::vector<std::vector<ComputeOp>> compute;  // per op of the row: none, one or two
  std::vector<double> norms;                    // on the host

  float* floats(const Schedule& s, ValueId value) const {
    return reinterpret_cast<float*>(arena.get() + s.values[value.index()].offset.value);
  }
};

// Addresses of all compute ops of a rank. REQUIRES: rank.arena is allocated.
void resolve_addresses(const Transformer& model, const Plan& plan, const Schedule& schedule,
                       const std::vector<TensorPlace>& places, InProcess::RankState& rank);

}  // namespace rehearse::exec
