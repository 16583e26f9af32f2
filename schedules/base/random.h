// SPDX-License-Identifier: Apache-2.0
// Numbers that look random and depend on their arguments alone, the same on every machine:
// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014).
#pragma once

#include <cstdint>

namespace rehearse {

// The k-th number of a seed.
constexpr std::uint64_t split_mix(std::uint64_t seed, std::uint64_t k) {
  std::uint64_t z = seed + (k + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// A number whose bits all depend on all bits of x.
constexpr std::uint64_t split_mix(std::uint64_t x) {
  return split_mix(x, 0);
}

}  // namespace rehearse
