#include "exec/collectives.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace rehearse::exec {
namespace {

constexpr std::int64_t kBlock = 1024;  // elements summed at a time: stays in the first cache

// Sums (or takes the largest of) [begin, end) over members in rank order into `to`.
void combine(std::span<const Contribution> members, std::int64_t begin, std::int64_t end,
             bool maximum, float* to) {
  std::copy_n(members[0].in + begin, end - begin, to);
  for (std::size_t m = 1; m < members.size(); ++m) {
    const float* from = members[m].in + begin;
    if (maximum) {
      for (std::int64_t i = 0; i < end - begin; ++i) to[i] = std::max(to[i], from[i]);
    } else {
      for (std::int64_t i = 0; i < end - begin; ++i) to[i] += from[i];
    }
  }
}

void copy(float* to, const float* from, std::int64_t elements) {
  if (to != from) std::memmove(to, from, static_cast<std::size_t>(elements) * sizeof(float));
}

}  // namespace

void all_reduce(std::span<const Contribution> members, std::int64_t elements, bool maximum) {
  std::array<float, kBlock> sum;
  for (std::int64_t begin = 0; begin < elements; begin += kBlock) {
    const std::int64_t end = std::min(elements, begin + kBlock);
    combine(members, begin, end, maximum, sum.data());
    for (const Contribution& member : members) std::copy_n(sum.data(), end - begin, member.out + begin);
  }
}

void all_reduce(std::span<double* const> members, std::int64_t elements) {
  for (std::int64_t i = 0; i < elements; ++i) {
    double sum = members[0][i];
    for (std::size_t m = 1; m < members.size(); ++m) sum += members[m][i];
    for (double* member : members) member[i] = sum;
  }
}

// Part m is summed before anything of it is overwritten: only member m writes there.
void reduce_scatter(std::span<const Contribution> members, std::int64_t elements) {
  std::array<float, kBlock> sum;
  const std::int64_t part = elements / static_cast<std::int64_t>(members.size());
  for (std::size_t m = 0; m < members.size(); ++m) {
    const std::int64_t first = static_cast<std::int64_t>(m) * part;
    float* out = members[m].out == members[m].in ? members[m].in + first : members[m].out;
    for (std::int64_t begin = 0; begin < part; begin += kBlock) {
      const std::int64_t end = std::min(part, begin + kBlock);
      combine(members, first + begin, first + end, false, sum.data());
      std::copy_n(sum.data(), end - begin, out + begin);
    }
  }
}

void all_gather(std::span<const Contribution> members, std::int64_t elements) {
  const std::int64_t part = elements / static_cast<std::int64_t>(members.size());
  for (std::size_t m = 0; m < members.size(); ++m) {
    const std::int64_t first = static_cast<std::int64_t>(m) * part;
    const float* from = members[m].in == members[m].out ? members[m].in + first : members[m].in;
    for (const Contribution& member : members) copy(member.out + first, from, part);
  }
}

void broadcast(std::span<const Contribution> members, std::int64_t elements, std::size_t root) {
  for (const Contribution& member : members) copy(member.out, members[root].in, elements);
}

void reduce(std::span<const Contribution> members, std::int64_t elements, std::size_t root) {
  std::array<float, kBlock> sum;
  for (std::int64_t begin = 0; begin < elements; begin += kBlock) {
    const std::int64_t end = std::min(elements, begin + kBlock);
    combine(members, begin, end, false, sum.data());
    std::copy_n(sum.data(), end - begin, members[root].out + begin);
  }
}

void gather(std::span<const Contribution> members, std::int64_t elements, std::size_t root) {
  const std::int64_t part = elements / static_cast<std::int64_t>(members.size());
  for (std::size_t m = 0; m < members.size(); ++m) {
    copy(members[root].out + static_cast<std::int64_t>(m) * part, members[m].in, part);
  }
}

void scatter(std::span<const Contribution> members, std::int64_t elements, std::size_t root) {
  const std::int64_t part = elements / static_cast<std::int64_t>(members.size());
  for (std::size_t m = 0; m < members.size(); ++m) {
    copy(members[m].out, members[root].in + static_cast<std::int64_t>(m) * part, part);
  }
}

// REQUIRES: in and out of a member do not overlap.
void all_to_all(std::span<const Contribution> members, std::int64_t elements) {
  const std::int64_t part = elements / static_cast<std::int64_t>(members.size());
  for (std::size_t m = 0; m < members.size(); ++m) {
    for (std::size_t k = 0; k < members.size(); ++k) {
      copy(members[m].out + static_cast<std::int64_t>(k) * part,
           members[k].in + static_cast<std::int64_t>(m) * part, part);
    }
  }
}

}  // namespace rehearse::exec
