// SPDX-License-Identifier: Apache-2.0
// Text as coverage bitmaps, so that pictures need no font on the machine that draws them. Letters
// that this font lacks come from an installed one, where there is one (letters/letters.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace rehearse::viz {

enum class TextSize : std::uint8_t { Small, Normal, Title };  // 11, 13 and 17 px, the last bold

inline constexpr int kNumGlyphs = 101;
struct Glyph {
  std::int32_t offset = 0;  // into FontData::pixels
  std::int16_t width = 0, height = 0;
  std::int16_t left = 0, top = 0;  // of the bitmap from the pen; up is positive
  std::int16_t advance = 0;        // [px]
};
struct FontData {
  Glyph glyphs[kNumGlyphs];
  const char* pixels = nullptr;  // one hexadecimal digit each
};
extern const FontData kFontData[3], kLargeFontData[3];  // the large ones are twice as tall

inline const FontData& font(TextSize size) {
  return kFontData[static_cast<int>(size)];
}
// The bitmaps for pictures of `scale` pixels per unit, and what they are to be scaled by.
struct ScaledFont {
  const FontData* data = nullptr;
  double factor = 1;
};
inline ScaledFont font(TextSize size, double scale) {
  return scale > 1 ? ScaledFont{&kLargeFontData[static_cast<int>(size)], scale / 2}
                   : ScaledFont{&kFontData[static_cast<int>(size)], scale};
}

// Removes the code point at the front of UTF-8 text that is not empty; broken UTF-8 gives one '?'
// per byte.
std::uint32_t next_code_point(std::string_view& text);
// The font has ASCII and a few signs; null: it has no such letter.
const Glyph* built_in_glyph(const FontData& font, std::uint32_t code);
// Whether this font or an installed one has every letter of UTF-8 text.
bool font_has(std::string_view text);
// Width of UTF-8 text, in pixels of a picture that is not scaled.
std::int32_t text_width(std::string_view text, TextSize size);
// `text` if it is at most `width` px wide, else nothing: half a label misleads.
std::string_view fitting(std::string_view text, TextSize size, double width);
// The beginning of a text, with an ellipsis, where all of it is wider than `width` px.
std::string clipped(std::string_view text, TextSize size, double width);
// The text in lines of whole words that are at most `width` px wide; a word that is wider alone is
// clipped.
std::vector<std::string> wrapped(std::string_view text, TextSize size, double width);

}  // namespace rehearse::viz
