// SPDX-License-Identifier: Apache-2.0
// Colours by meaning: the eight of Okabe and Ito, told apart by colour-blind eyes.
// Source: Okabe & Ito, "Color Universal Design" (2008), https://jfly.uni-koeln.de/color/
//
// Work is a full colour. Idle is pale with a hatch, so that its cause rests on a pattern and not on
// a hue alone.
#pragma once

#include <cstdint>
#include <string_view>

#include "schedules/ir/op.h"
#include "viz/analysis/index.h"

namespace rehearse::viz {

struct Color {
  std::uint8_t red = 0, green = 0, blue = 0;
  bool operator==(const Color&) const = default;
};

enum class Theme : std::uint8_t { Light, Dark };

struct Palette {
  Color background, lane, text, faint_text, grid, outline, accent;
};
const Palette& palette(Theme theme);

Color color_of(OpKind kind);

enum class Hatch : std::uint8_t {
  None,
  Slash,
  Backslash,
  Cross,
  Dots,
  Horizontal,
  Vertical,
  Dense
};

struct KindStyle {
  Color fill, ink;  // ink: of the hatch
  Hatch hatch = Hatch::None;
  std::string_view name;  // "forward", "warmup"
};
KindStyle style_of(Kind kind, Theme theme);
// The same op on an odd micro-batch is a little lighter, so that neighbours are told apart.
Color shade(Color color, std::int32_t microbatch);
// Black or white, whichever is easier to read on `background`.
Color text_on(Color background);

// Linear light: mixing and luminance are only right there (IEC 61966-2-1).
float to_linear(std::uint8_t srgb);
std::uint8_t to_srgb(float linear);
// WCAG 2 contrast ratio, 1 to 21.
double contrast(Color a, Color b);

}  // namespace rehearse::viz
