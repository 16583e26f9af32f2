// SPDX-License-Identifier: Apache-2.0
#include "viz/analysis/units_text.h"

#include <array>
#include <charconv>
#include <cmath>
#include <string_view>

namespace rehearse::viz {
namespace {

struct Unit {
  std::int64_t ns;
  std::string_view name;
};
constexpr std::array<Unit, 4> kUnits{
    {{1'000'000'000, "s"}, {1'000'000, "ms"}, {1000, "µs"}, {1, "ns"}}};

const Unit& unit_for(std::int64_t ns) {
  for (const Unit& unit : kUnits) {
    if (ns >= unit.ns) return unit;
  }
  return kUnits.back();
}

// What would be rounded to a thousand of a unit is one of the next: 999,600 ns are 1 ms.
const Unit& unit_rounded(std::int64_t ns) {
  return unit_for(ns + unit_for(ns).ns / 2);
}

int decimals_for(double value) {
  return value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
}

}  // namespace

std::string fixed_text(double value, int decimals) {
  std::array<char, 64> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value,
                                 std::chars_format::fixed, decimals)
                       .ptr;
  std::string text(digits.data(), end);
  // What is rounded to nothing has no sign.
  if (text.starts_with('-') && text.find_first_not_of("-0.") == std::string::npos) text.erase(0, 1);
  return text;
}

std::string time_text(std::int64_t ns) {
  if (ns < 0) return "-" + time_text(-ns);
  const Unit& unit = unit_rounded(ns);
  const double value = static_cast<double>(ns) / static_cast<double>(unit.ns);
  return fixed_text(value, unit.ns == 1 ? 0 : decimals_for(value)).append(" ").append(unit.name);
}

std::string tick_text(std::int64_t ns, std::int64_t step) {
  if (ns == 0) return "0";
  const Unit& unit = unit_for(step >= 1000 ? step * 10 : step);
  const int decimals = step >= unit.ns         ? 0
                       : step * 10 >= unit.ns  ? 1
                       : step * 100 >= unit.ns ? 2
                                               : 3;
  return fixed_text(static_cast<double>(ns) / static_cast<double>(unit.ns), decimals)
      .append(" ")
      .append(unit.name);
}

std::int64_t nice_step(double least) {
  std::int64_t power = 1;
  while (static_cast<double>(power) * 10 <= least) power *= 10;
  for (const std::int64_t times : {1, 2, 5}) {
    if (static_cast<double>(times * power) >= least) return times * power;
  }
  return 10 * power;
}

std::string bytes_text(std::int64_t bytes) {
  return bytes_text(bytes, bytes);
}

std::string bytes_text(std::int64_t bytes, std::int64_t unit_of) {
  static constexpr std::array<std::string_view, 5> kNames{"B", "kB", "MB", "GB", "TB"};
  auto value = static_cast<double>(bytes), whole = static_cast<double>(unit_of);
  std::size_t unit = 0;
  for (; std::fabs(whole) >= (unit == 0 ? 1000 : 999.5) && unit + 1 < kNames.size(); ++unit) {
    whole /= 1000;
    value /= 1000;
  }
  return fixed_text(value, unit == 0 ? 0 : decimals_for(std::fabs(whole)))
      .append(" ")
      .append(kNames[unit]);
}

std::string percent_text(double share) {
  return fixed_text(share * 100, 1) + " %";
}

}  // namespace rehearse::viz
