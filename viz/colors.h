// Colours by meaning: the eight of Okabe and Ito, told apart by colour-blind eyes.
// Source: Okabe & Ito, "Color Universal Design" (2008), https://jfly.uni-koeln.de/color/
#pragma once

#include <cstdint>

#include "schedules/op.h"

namespace rehearse::viz {

struct Color {
  std::uint8_t red = 0, green = 0, blue = 0;
  bool operator==(const Color&) const = default;
};

Color color_of(OpKind kind);

}  // namespace rehearse::viz
