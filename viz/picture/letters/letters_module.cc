// SPDX-License-Identifier: Apache-2.0
// Letters by fontconfig and FreeType: the module alone knows both.
#include <fontconfig/fontconfig.h>
#include <ft2build.h>
#include FT_FREETYPE_H

#include <array>
#include <map>
#include <memory>
#include <tuple>

#include "schedules/base/installed/module.h"
#include "viz/picture/letters/letters.h"

namespace rehearse::viz {
namespace {

// Fonts in the order in which fontconfig would take them for one weight: that of the built-in font
// first. A font is opened when a letter of it is first asked for.
class FontList {
 public:
  FontList(FT_Library library, bool bold) : library_(library) {
    FcPattern* wanted = FcPatternCreate();
    FcPatternAddString(wanted, FC_FAMILY, reinterpret_cast<const FcChar8*>("DejaVu Sans"));
    FcPatternAddString(wanted, FC_FAMILY, reinterpret_cast<const FcChar8*>("sans-serif"));
    FcPatternAddInteger(wanted, FC_WEIGHT, bold ? FC_WEIGHT_BOLD : FC_WEIGHT_REGULAR);
    FcPatternAddBool(wanted, FC_SCALABLE, FcTrue);
    FcConfigSubstitute(nullptr, wanted, FcMatchPattern);
    FcDefaultSubstitute(wanted);
    FcResult result{};
    sorted_.reset(FcFontSort(nullptr, wanted, FcTrue, nullptr, &result));
    FcPatternDestroy(wanted);
    if (sorted_ != nullptr) faces_.resize(static_cast<std::size_t>(sorted_->nfont));
  }

  std::size_t count() const { return faces_.size(); }

  // Null: no font has it.
  FT_Face face_with(std::uint32_t code) {
    for (std::size_t i = 0; i < faces_.size(); ++i) {
      FcPattern* font = sorted_->fonts[i];
      FcCharSet* letters = nullptr;
      if (FcPatternGetCharSet(font, FC_CHARSET, 0, &letters) != FcResultMatch ||
          FcCharSetHasChar(letters, code) == FcFalse) {
        continue;
      }
      if (FT_Face face = open(i); face != nullptr && FT_Get_Char_Index(face, code) != 0)
        return face;
    }
    return nullptr;
  }

 private:
  FT_Face open(std::size_t i) {
    if (faces_[i].tried) return faces_[i].face;
    faces_[i].tried = true;
    FcChar8* file = nullptr;
    int index = 0;
    if (FcPatternGetString(sorted_->fonts[i], FC_FILE, 0, &file) != FcResultMatch) return nullptr;
    FcPatternGetInteger(sorted_->fonts[i], FC_INDEX, 0, &index);
    FT_Face face = nullptr;
    if (FT_New_Face(library_, reinterpret_cast<const char*>(file), index, &face) != 0)
      return nullptr;
    if (FT_IS_SCALABLE(face)) faces_[i].face = face;  // else pictures of one size
    return faces_[i].face;
  }

  struct Freed {
    void operator()(FcFontSet* set) const { FcFontSetDestroy(set); }
  };
  struct Opened {
    bool tried = false;
    FT_Face face = nullptr;
  };
  FT_Library library_;
  std::unique_ptr<FcFontSet, Freed> sorted_;
  std::vector<Opened> faces_;
};

// What both libraries hold from the first letter to the process' end. Without fonts, or without one
// of the libraries, there are no letters.
class Libraries {
 public:
  Libraries() : fonts_(FcInit() == FcTrue) {
    if (FT_Init_FreeType(&freetype_) != 0) freetype_ = nullptr;
  }
  // Given back, because fontconfig keeps offsets for pointers: a checker of leaks would not find
  // its way.
  ~Libraries() {
    if (freetype_ != nullptr) FT_Done_FreeType(freetype_);
    if (fonts_) FcFini();
  }
  Libraries(const Libraries&) = delete;
  Libraries& operator=(const Libraries&) = delete;
  bool opened() const { return fonts_ && freetype_ != nullptr; }
  FT_Library freetype() const { return freetype_; }

 private:
  bool fonts_ = false;
  FT_Library freetype_ = nullptr;
};

class FreeTypeLetters : public Letters {
 public:
  explicit FreeTypeLetters(FT_Library library)
      : lists_{FontList(library, false), FontList(library, true)} {}
  bool any() const { return lists_[0].count() > 0; }

  const Letter* find(std::uint32_t code, TextSize size, double scale) override {
    const auto [at, fresh] = known_.try_emplace({code, size, scale});
    if (fresh) at->second = drawn(code, size, scale);
    return at->second.get();
  }

 private:
  // Of the built-in font [px]: font_data.cc.
  static constexpr std::array<double, 3> kPixels{11, 13, 17};

  std::unique_ptr<Letter> drawn(std::uint32_t code, TextSize size, double scale) {
    FT_Face face = lists_[size == TextSize::Title ? 1 : 0].face_with(code);
    if (face == nullptr) return nullptr;
    constexpr FT_UInt kPixelsPerPoint = 72;  // a point is a pixel
    const auto height =
        static_cast<FT_F26Dot6>(kPixels[static_cast<std::size_t>(size)] * scale * 64 + 0.5);
    if (FT_Set_Char_Size(face, 0, height, kPixelsPerPoint, kPixelsPerPoint) != 0 ||
        FT_Load_Char(face, code, FT_LOAD_RENDER | FT_LOAD_TARGET_LIGHT | FT_LOAD_NO_BITMAP) != 0) {
      return nullptr;
    }
    const FT_GlyphSlot slot = face->glyph;
    const FT_Bitmap& bitmap = slot->bitmap;
    if (bitmap.pixel_mode != FT_PIXEL_MODE_GRAY && bitmap.rows > 0) return nullptr;
    auto letter =
        std::make_unique<Letter>(Letter{.width = static_cast<std::int32_t>(bitmap.width),
                                        .height = static_cast<std::int32_t>(bitmap.rows),
                                        .left = slot->bitmap_left,
                                        .top = slot->bitmap_top,
                                        .advance = static_cast<double>(slot->advance.x) / 64,
                                        .coverage = {}});
    for (unsigned y = 0; y < bitmap.rows; ++y) {
      const std::uint8_t* row = bitmap.buffer + static_cast<std::ptrdiff_t>(y) * bitmap.pitch;
      letter->coverage.insert(letter->coverage.end(), row, row + bitmap.width);
    }
    return letter;
  }

  std::array<FontList, 2> lists_;  // regular, bold
  std::map<std::tuple<std::uint32_t, TextSize, double>, std::unique_ptr<Letter>> known_;
};

Letters* open_installed() {
  static const Libraries libraries;
  if (!libraries.opened()) return nullptr;
  static FreeTypeLetters letters(libraries.freetype());  // gone before what it stands on
  return letters.any() ? &letters : nullptr;
}

}  // namespace
}  // namespace rehearse::viz

REHEARSE_MODULE(letters, rehearse::viz::LettersModule, .installed = rehearse::viz::open_installed)
