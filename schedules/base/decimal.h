// SPDX-License-Identifier: Apache-2.0
// Numbers that are written as decimals, as most in files are: "0.0385".
#pragma once

#include <array>
#include <charconv>
#include <cstdint>
#include <string_view>

namespace rehearse {

// The double nearest to the number that all of `text` is, as std::from_chars reads it; false: it is
// none, or none that a double holds. Up to 15 digits, and the power of ten that their point stands
// for, are integers that doubles hold, whose quotient the machine rounds once (Clinger, How to read
// floating point numbers accurately, PLDI 1990): a fifth of the instructions.
inline bool read_decimal(std::string_view text, double& value) {
  constexpr std::array kPowers{1.0, 1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                               1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
  constexpr std::size_t kDigits = 15;  // the point may be one of them
  const char* const end = text.data() + text.size();
  const char* at = text.data();
  const bool negative = at != end && *at == '-';
  at += negative;
  const char* const first = at;
  std::int64_t number = 0;
  const auto digits = [&] {
    for (; at != end && *at >= '0' && *at <= '9'; ++at) number = 10 * number + (*at - '0');
  };
  if (static_cast<std::size_t>(end - at) <= kDigits) {
    digits();
    std::size_t behind = 0;
    if (at != first && at != end && *at == '.') {
      const char* const point = at++;
      digits();
      behind = static_cast<std::size_t>(at - point) - 1;
    }
    if (at == end && at != first) {
      const double read = static_cast<double>(number) / kPowers[behind];
      value = negative ? -read : read;
      return true;
    }
  }
  const auto [last, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && last == end;
}

}  // namespace rehearse
