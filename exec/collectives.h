// Collectives among ranks of one process: whoever comes last performs it for all, in rank order.
//
// Fixed-order sums: every element is added over members 0, 1, ... in fp32, so reruns are bitwise
// equal and two terms give the same bits on every layout.
#pragma once

#include <cstdint>
#include <span>

#include "schedules/op.h"

namespace rehearse::exec {

// What one member brings. In place where in == out (ReduceScatter and AllGather: the own part of
// the whole array).
struct Contribution {
  float* in = nullptr;
  float* out = nullptr;
};

// `elements`: of the whole array. REQUIRES: divisible by the members for ReduceScatter, AllGather,
// AllToAll, Gather and Scatter. `root`: member index, for Broadcast, Reduce, Gather, Scatter.
void all_reduce(std::span<const Contribution> members, std::int64_t elements, bool maximum);
void all_reduce(std::span<double* const> members, std::int64_t elements);
// in: the whole array, out: own part (or the whole array again: then its own part is overwritten).
void reduce_scatter(std::span<const Contribution> members, std::int64_t elements);
// in: own part (or the whole array: then its own part is read), out: the whole array.
void all_gather(std::span<const Contribution> members, std::int64_t elements);
void broadcast(std::span<const Contribution> members, std::int64_t elements, std::size_t root);
void reduce(std::span<const Contribution> members, std::int64_t elements, std::size_t root);
void gather(std::span<const Contribution> members, std::int64_t elements, std::size_t root);
void scatter(std::span<const Contribution> members, std::int64_t elements, std::size_t root);
void all_to_all(std::span<const Contribution> members, std::int64_t elements);

}  // namespace rehearse::exec
