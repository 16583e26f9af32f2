// SPDX-License-Identifier: Apache-2.0
// Times, sizes and shares as people read them.
#pragma once

#include <cstdint>
#include <string>

namespace rehearse::viz {

// "12.3 ms": three significant digits, unit by size.
std::string time_text(std::int64_t ns);
// A tick's text on an axis whose ticks are `step` apart: all of an axis in one unit, no false
// digits.
std::string tick_text(std::int64_t ns, std::int64_t step);
// 1, 2 or 5 times a power of ten, at least `least` [ns].
std::int64_t nice_step(double least);
std::string bytes_text(std::int64_t bytes);  // "12.3 GB": 10^9, as reports and data sheets have it
// The same in the unit of another size: sizes that stand together are read in one.
std::string bytes_text(std::int64_t bytes, std::int64_t unit_of);
std::string percent_text(double share);  // 0.273 -> "27.3 %"
std::string fixed_text(double value, int decimals);

}  // namespace rehearse::viz
