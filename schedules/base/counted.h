// SPDX-License-Identifier: Apache-2.0
// Numbers as a sentence has them: "1 micro-batch", "2 micro-batches", "13,904,128".
#pragma once

#include <cmath>
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

// The nearest whole number, with a comma between thousands. REQUIRES: it is not negative.
inline std::string with_commas(double value) {
  std::string text = std::to_string(std::llround(value));
  for (std::size_t at = text.size(); at > 3;) text.insert(at -= 3, ",");
  return text;
}

}  // namespace rehearse
