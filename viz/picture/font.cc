// SPDX-License-Identifier: Apache-2.0
#include "viz/picture/font.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "viz/picture/letters/letters.h"

namespace rehearse::viz {
namespace {

// Code points after ASCII, in the order of font_data.cc.
constexpr std::array<std::uint32_t, 6> kExtra{0xB5, 0xB7, 0xD7, 0x2013, 0x2026, 0x2192};

// [px], of a picture that is not scaled.
std::int32_t advance_of(std::uint32_t code, TextSize size) {
  if (const Glyph* glyph = built_in_glyph(font(size), code)) return glyph->advance;
  return static_cast<std::int32_t>(std::lround(letter_of(code, size, 1).advance));
}

}  // namespace

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

const Glyph* built_in_glyph(const FontData& font, std::uint32_t code) {
  if (code >= 32 && code < 127) return &font.glyphs[code - 32];
  for (std::size_t i = 0; i < kExtra.size(); ++i) {
    if (kExtra[i] == code) return &font.glyphs[95 + i];
  }
  return nullptr;
}

bool font_has(std::string_view text) {
  while (!text.empty()) {
    const std::uint32_t code = next_code_point(text);
    if (built_in_glyph(kFontData[0], code) != nullptr) continue;
    Letters* installed = installed_letters();
    if (installed == nullptr || installed->find(code, TextSize::Normal, 1) == nullptr) return false;
  }
  return true;
}

std::int32_t text_width(std::string_view text, TextSize size) {
  std::int32_t width = 0;
  while (!text.empty()) width += advance_of(next_code_point(text), size);
  return width;
}

std::string_view fitting(std::string_view text, TextSize size, double width) {
  std::string_view rest = text;
  std::int32_t sum = 0;
  while (!rest.empty()) {
    sum += advance_of(next_code_point(rest), size);
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
