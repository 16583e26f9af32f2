// SPDX-License-Identifier: Apache-2.0
// Letters of the fonts that are installed, for text that the built-in font lacks and for sizes at
// which it has no bitmaps. A module (schedules/base/installed/module.h), loaded when such a letter
// is first met: pictures of ASCII ask no font of the machine, and are the same on each.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "viz/picture/font.h"

namespace rehearse::viz {

// One letter, in pixels of the picture that it is for.
struct Letter {
  std::int32_t width = 0, height = 0;
  std::int32_t left = 0, top = 0;  // of the bitmap from the pen; up is positive
  double advance = 0;
  std::vector<std::uint8_t> coverage;  // 0 to 255, row by row
};

class Letters {
 public:
  virtual ~Letters() = default;
  // Of the first font that has it, `scale` times the size; null: none has. Stays where it is.
  virtual const Letter* find(std::uint32_t code, TextSize size, double scale) = 0;
};

struct LettersModule {
  static constexpr const char* kName = "letters";
  static constexpr const char* kMissing =
      "no letters beyond the built-in ones: install rehearse-viewer, or build with libfreetype-dev "
      "and libfontconfig-dev";
  static constexpr int kVersion = 1;
  int version = 0;
  Letters* (*installed)() = nullptr;  // null: no font is installed
};

// Null: there are none, and `why_no_letters` says why.
Letters* installed_letters();
std::string why_no_letters();

// Code points as ImGui's fonts, our pictures and the window want them: from the built-in font at
// its own sizes, else from an installed one, else the built-in one drawn larger or smaller. Stays
// where it is.
const Letter& letter_of(std::uint32_t code, TextSize size, double scale);

}  // namespace rehearse::viz
