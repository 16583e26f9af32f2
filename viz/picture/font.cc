// SPDX-License-Identifier: Apache-2.0
#include "viz/picture/font.h"

#include <algorithm>
#include <array>

namespace rehearse::viz {
namespace {

// Code points after ASCII, in the order of font_data.cc.
constexpr std::array<std::uint32_t, 6> kExtra{0xB5, 0xB7, 0xD7, 0x2013, 0x2026, 0x2192};

// Decodes the code point at the front; broken UTF-8 gives one '?' per byte.
std::uint32_t next_code_point(std::string_view& text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  std::size_t length = lead < 0x80 ? 1 : lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 0;
  if (length == 0 || length > text.size()) {
    text.remove_prefix(1);
    return '?';
  }
  std::uint32_t code = length == 1 ? lead : lead & (0x7Fu >> length);
  for (std::size_t i = 1; i < length; ++i) {
    code = code << 6 | (static_cast<unsigned char>(text[i]) & 0x3Fu);
  }
  text.remove_prefix(length);
  return code;
}

}  // namespace

const Glyph& next_glyph(const FontData& font, std::string_view& text) {
  const std::uint32_t code = next_code_point(text);
  if (code >= 32 && code < 127) return font.glyphs[code - 32];
  for (std::size_t i = 0; i < kExtra.size(); ++i) {
    if (kExtra[i] == code) return font.glyphs[95 + i];
  }
  return font.glyphs['?' - 32];
}

bool font_has(std::string_view text) {
  while (!text.empty()) {
    const bool question = text[0] == '?';
    const Glyph& glyph = next_glyph(kFontData[0], text);
    if (!question && &glyph == &kFontData[0].glyphs['?' - 32]) return false;
  }
  return true;
}

std::int32_t text_width(std::string_view text, TextSize size) {
  std::int32_t width = 0;
  while (!text.empty()) width += next_glyph(font(size), text).advance;
  return width;
}

std::string_view fitting(std::string_view text, TextSize size, double width) {
  std::string_view rest = text;
  std::int32_t sum = 0;
  while (!rest.empty()) {
    sum += next_glyph(font(size), rest).advance;
    if (sum > width) return {};
  }
  return text;
}

std::string clipped(std::string_view text, TextSize size, double width) {
  if (text_width(text, size) <= width) return std::string(text);
  while (!text.empty() && text_width(text, size) + text_width("…", size) > width) {
    while (text.size() > 1 && (static_cast<unsigned char>(text.back()) & 0xC0) == 0x80) {
      text.remove_suffix(1);
    }
    text.remove_suffix(1);  // a whole code point
  }
  return std::string(text) + "…";
}

std::vector<std::string> wrapped(std::string_view text, TextSize size, double width) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    if (!lines.empty()) {
      const std::string longer = lines.back() + ' ' + std::string(word);
      if (text_width(longer, size) <= width) {
        lines.back() = longer;
        continue;
      }
    }
    lines.push_back(clipped(word, size, width));
  }
  return lines;
}

}  // namespace rehearse::viz
