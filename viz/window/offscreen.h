// SPDX-License-Identifier: Apache-2.0
// The window's picture without a display: its own OpenGL drawing on a surfaceless EGL context, as
// Mesa gives one on any machine, GPU or not. png.h draws the same scene without OpenGL.
#pragma once

#include <cstdint>
#include <vector>

#include "schedules/base/result.h"
#include "viz/window/session.h"

namespace rehearse::viz {

// What a window of that state shows, with its menus, fields and tables where `state.widgets` is
// set. Pixels 0xAABBGGRR, row by row. Error: why there is no such context here (no EGL, no
// surfaceless platform, no OpenGL 3.3, no module).
Result<std::vector<std::uint32_t>> draw_offscreen(const Session& session, const ViewState& state);

}  // namespace rehearse::viz
