// SPDX-License-Identifier: Apache-2.0
#include "viz/picture/letters/letters.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

namespace rehearse::viz {
namespace {

std::uint8_t level_of_digit(char digit) {
  return static_cast<std::uint8_t>(17 * (digit <= '9' ? digit - '0' : digit - 'a' + 10));
}

// How much of [from, from + size) lies within pixel [i, i + 1).
double part_of(std::int32_t i, double from, double size) {
  return std::max(0.0, std::min<double>(i + 1, from + size) - std::max<double>(i, from));
}

// A bitmap of the built-in font, `factor` times as large.
Letter scaled_letter(const Glyph& glyph, const char* pixels, double factor) {
  const auto small = [factor](double value) {
    return static_cast<std::int32_t>(std::floor(value * factor));
  };
  const auto large = [factor](double value) {
    return static_cast<std::int32_t>(std::ceil(value * factor));
  };
  Letter out{.left = small(glyph.left), .top = large(glyph.top), .advance = glyph.advance * factor};
  out.width = large(glyph.left + glyph.width) - out.left;
  out.height = out.top - small(glyph.top - glyph.height);
  const double size = 1 / factor;
  for (std::int32_t y = 0; y < out.height; ++y) {
    for (std::int32_t x = 0; x < out.width; ++x) {
      const double from_x = (x + out.left) * size - glyph.left,
                   from_y = glyph.top - (out.top - y) * size;
      double sum = 0;
      for (std::int32_t row = 0; row < glyph.height; ++row) {
        const double tall = part_of(row, from_y, size);
        if (tall == 0) continue;
        for (std::int32_t column = 0; column < glyph.width; ++column) {
          sum += tall * part_of(column, from_x, size) *
                 level_of_digit(pixels[row * glyph.width + column]);
        }
      }
      out.coverage.push_back(static_cast<std::uint8_t>(std::lround(sum / (size * size))));
    }
  }
  return out;
}

}  // namespace

const Letter& letter_of(std::uint32_t code, TextSize size, double scale) {
  static std::map<std::tuple<std::uint32_t, TextSize, double>, Letter> known;
  const auto [at, fresh] = known.try_emplace({code, size, scale});
  if (!fresh) return at->second;
  const ScaledFont scaled = font(size, scale);
  const Glyph* built_in = built_in_glyph(*scaled.data, code);
  if (built_in == nullptr || scaled.factor != 1) {
    Letters* installed = installed_letters();
    if (const Letter* found = installed == nullptr ? nullptr : installed->find(code, size, scale))
      return at->second = *found;
  }
  if (built_in == nullptr) built_in = built_in_glyph(*scaled.data, '?');
  return at->second =
             scaled_letter(*built_in, scaled.data->pixels + built_in->offset, scaled.factor);
}

}  // namespace rehearse::viz
