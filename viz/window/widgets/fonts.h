// SPDX-License-Identifier: Apache-2.0
// Dear ImGui's fonts, made of the viewer's own letters: canvas and widgets share them. Internal to
// the window's module.
#pragma once

#include <imgui.h>

#include <array>
#include <set>
#include <string_view>

#include "viz/picture/font.h"

namespace rehearse::viz {

class Fonts {
 public:
  // Makes the fonts anew where the scale is another one or letters were missed since.
  // REQUIRES: outside a frame; an OpenGL context is current.
  void prepare(double scale);
  // Letters beyond those of the built-in font that a text has are wanted from the next frame on.
  void want(std::string_view text);
  bool incomplete() const { return !missed_.empty(); }  // prepare() has something to do

  ImFont* font(TextSize size) const { return fonts_[static_cast<std::size_t>(size)]; }
  // From a line's top to the base of its letters [px].
  double base(TextSize size) const;

 private:
  void make();
  double scale_ = 0;
  std::array<ImFont*, 3> fonts_{};
  std::set<std::uint32_t> codes_, missed_;
};

}  // namespace rehearse::viz
