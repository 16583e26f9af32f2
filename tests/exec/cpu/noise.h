// SPDX-License-Identifier: Apache-2.0
// Arrays of the kernels' tests: normal numbers from a seed.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace rehearse::exec {

using Floats = std::vector<float>;

inline std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

inline Floats noise(std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Floats made(at(count));
  for (float& x : made) x = normal(random);
  return made;
}

}  // namespace rehearse::exec
