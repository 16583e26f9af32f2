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

// Mean 0, variance 1, nearly normal: 12 uniforms less 6. Sums of integers, so the same on every
// machine. The number-th of a stream of a seed.
inline double normal(std::uint64_t seed, std::uint64_t stream, std::uint64_t number) {
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

}  // namespace rehearse
