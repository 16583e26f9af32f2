// SPDX-License-Identifier: Apache-2.0
// Bytes and seconds as reports print them, with three or four digits.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <string>

namespace rehearse::sim::report {

inline std::string bytes(std::int64_t value) {
  const double b = static_cast<double>(value);
  if (std::fabs(b) >= 1e9) return fmt::format("{:.2f} GB", b * 1e-9);
  if (std::fabs(b) >= 1e6) return fmt::format("{:.1f} MB", b * 1e-6);
  return fmt::format("{:.1f} kB", b * 1e-3);
}

inline std::string seconds(double s) {
  if (s >= 1) return fmt::format("{:.3f} s", s);
  if (s >= 1e-3) return fmt::format("{:.2f} ms", s * 1e3);
  return fmt::format("{:.1f} us", s * 1e6);
}

}  // namespace rehearse::sim::report
