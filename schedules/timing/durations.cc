// SPDX-License-Identifier: Apache-2.0
#include "schedules/timing/durations.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string>

namespace rehearse {
namespace {

struct Part {
  std::string_view name;
  double Durations::*member;
};
constexpr std::array<Part, 5> kParts{{
    {"F", &Durations::forward},
    {"I", &Durations::input_gradient},
    {"W", &Durations::weight_gradient},
    {"comm", &Durations::transfer},
    {"FB", &Durations::pair},
}};

// Beyond these a step does not add up in 62 bits, or not to what was asked for.
constexpr double kShortest = 1e-12, kLongest = 1e12;

bool usable(double value) {
  return value == 0 || (value >= kShortest && value <= kLongest);  // false for NaN
}

// Whether `value * scale` is a whole number but for the rounding of a double.
bool whole(double value, double scale) {
  const double scaled = value * scale;
  return std::abs(scaled - std::round(scaled)) <= 4e-16 * scaled;
}

}  // namespace

Result<Durations> parse_durations(std::string_view text) {
  Durations durations;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const std::string_view item = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    const std::size_t equals = item.find('=');
    const std::string_view name = item.substr(0, equals);
    const auto part = std::ranges::find(kParts, name, &Part::name);
    if (equals == std::string_view::npos || part == kParts.end()) {
      return Error{"times: \"" + std::string(item) + "\" is none of F=, I=, W=, comm=, FB="};
    }
    const std::string_view number = item.substr(equals + 1);
    double value = -1;
    const auto [end, code] = std::from_chars(number.data(), number.data() + number.size(), value);
    if (code != std::errc{} || end != number.data() + number.size() || !usable(value)) {
      return Error{"times: " + std::string(name) + ": \"" + std::string(number) +
                   "\" is not 0 or a number from 1e-12 to 1e12"};
    }
    durations.*(part->member) = value;
  }
  return durations;
}

Result<Ticks> to_ticks(const Durations& durations, std::int64_t parts, std::int64_t positions,
                       std::int64_t microbatches) {
  for (const Part& part : kParts) {
    const double value = durations.*(part.member);
    const bool left_out = part.member == &Durations::pair && value == -1;
    if (!left_out && !usable(value)) {
      return Error{"times: " + std::string(part.name) + ": not 0 or a number from 1e-12 to 1e12"};
    }
  }
  // All that a step can add up to, in the user's unit.
  const double chunks = static_cast<double>(parts);
  const double sum = (durations.forward + durations.input_gradient + durations.weight_gradient +
                      std::max(0.0, durations.pair) + 2 * chunks * durations.transfer) *
                     static_cast<double>(positions) * static_cast<double>(microbatches);
  const double most = 0x1p61 / chunks;
  Ticks ticks;
  if (sum > 0) {
    // Up to 15 digits behind the point; fewer where large numbers leave no room for them.
    double scale = 1;
    while (scale * sum > most) scale /= 10;
    const auto exact = [&] {
      return std::ranges::all_of(kParts, [&](const Part& part) {
        return durations.*(part.member) < 0 || whole(durations.*(part.member), scale);
      });
    };
    for (int digit = 0; digit < 300 && !exact() && scale * 10 * sum <= most; ++digit) scale *= 10;
    ticks.per_unit = scale * chunks;
  }
  const auto scaled = [&](double value) {
    return Nanoseconds{std::llround(value * (ticks.per_unit / chunks)) * parts};
  };
  ticks.times = {.forward = scaled(durations.forward),
                 .input_gradient = scaled(durations.input_gradient),
                 .weight_gradient = scaled(durations.weight_gradient),
                 .transfer = scaled(durations.transfer)};
  if (durations.pair >= 0) ticks.times.pair = scaled(durations.pair);
  return ticks;
}

}  // namespace rehearse
