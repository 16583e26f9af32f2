// SPDX-License-Identifier: Apache-2.0
// PNG files from pixels. Own encoder: signature, IHDR, IDAT, IEND; compressed by zlib where the
// build found it, stored otherwise.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "viz/picture/scene.h"

namespace rehearse::viz {

// Pixels 0xAABBGGRR, row by row. REQUIRES: pixels.size() == width * height, both > 0.
std::string encode_png(std::int32_t width, std::int32_t height,
                       std::span<const std::uint32_t> pixels, bool with_alpha);

// Ink of a hatch at a pixel of the picture, 0 to 255. Repeats every kHatchPeriod pixels.
inline constexpr std::int32_t kHatchPeriod = 40;
std::uint32_t hatch_ink(Hatch hatch, std::int32_t x, std::int32_t y);

// Draws a scene, pixel_width() by pixel_height(): edges are smoothed, hatches are tied to the
// picture's own grid.
std::vector<std::uint32_t> rasterize(const Scene& scene);
std::string png(const Scene& scene);

}  // namespace rehearse::viz
