// SPDX-License-Identifier: Apache-2.0
// How messages name a place ("2B1 on rank 2", or "... on row 2" where rows fold ranks) and a size.
#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

#include "schedules/ir/text.h"

namespace rehearse {

inline std::string row_name(const Schedule& schedule, RankClass row) {
  return (schedule.rows.empty() ? "rank " : "row ") + std::to_string(row.value);
}
inline std::string where(const Schedule& schedule, OpId id) {
  return to_text(schedule, id) + " on " + row_name(schedule, schedule.row_of(id));
}

// A size as people read it: "12.34 GB".
inline std::string size_text(std::int64_t bytes) {
  std::array<char, 32> text{};
  const double b = static_cast<double>(bytes);
  if (bytes < 1000) return std::to_string(bytes) + " bytes";
  const auto [unit, name] = b >= 1e9   ? std::pair{1e9, "GB"}
                            : b >= 1e6 ? std::pair{1e6, "MB"}
                                       : std::pair{1e3, "kB"};
  std::snprintf(text.data(), text.size(), "%.2f %s", b / unit, name);
  return text.data();
}
// "needs 12.34 GB" and "has 8.00 GB", to the byte where they would read the same.
inline std::pair<std::string, std::string> size_texts(std::int64_t a, std::int64_t b) {
  if (size_text(a) != size_text(b)) return {size_text(a), size_text(b)};
  return {std::to_string(a) + " bytes", std::to_string(b) + " bytes"};
}

}  // namespace rehearse
