// SPDX-License-Identifier: Apache-2.0
// A number with its noun, as a sentence has it: "1 micro-batch", "2 micro-batches".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace rehearse {

// The noun alone: "rank class", "rank classes". REQUIRES: a noun whose plural takes s or es.
inline std::string noun_of(std::int64_t n, std::string_view one) {
  const bool hisses = one.ends_with('s') || one.ends_with('x') || one.ends_with("ch");
  return std::string(one) + (n == 1 ? "" : hisses ? "es" : "s");
}

inline std::string counted(std::int64_t n, std::string_view one) {
  return std::to_string(n) + " " + noun_of(n, one);
}

}  // namespace rehearse
