// SPDX-License-Identifier: Apache-2.0
// The window's picture without a display: its own OpenGL drawing on a surfaceless EGL context, as
// Mesa gives one on any machine, GPU or not. png.h draws the same scene without OpenGL.
#pragma once

#include <cstdint>
#include <vector>

#include "schedules/base/result.h"
#include "viz/picture/scene.h"

namespace rehearse::viz {

// Pixels 0xAABBGGRR, row by row, scene.width * scene.height of them. Error: why there is no such
// context here (no EGL, no surfaceless platform, no OpenGL 3.3, no module).
Result<std::vector<std::uint32_t>> draw_offscreen(const Scene& scene);

}  // namespace rehearse::viz
