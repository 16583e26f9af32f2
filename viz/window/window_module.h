// SPDX-License-Identifier: Apache-2.0
// The window and its pictures without a display: a module (schedules/base/installed/module.h),
// whose files alone know OpenGL, Dear ImGui, GLFW and EGL.
#pragma once

#include "viz/window/offscreen.h"
#include "viz/window/window.h"

namespace rehearse::viz {

struct WindowModule {
  static constexpr const char* kName = "window";
  static constexpr const char* kMissing =
      "no window here: install rehearse-viewer, or build with libimgui-dev, libglfw3-dev and "
      "libegl-dev; rehearse render TRACE --png FILE draws without it, --html FILE makes a page to "
      "look "
      "into";
  static constexpr int kVersion = 3;
  int version = 0;
  decltype(&run_window) run = nullptr;
  decltype(&draw_offscreen) draw = nullptr;
};

// What the module's two entries do.
namespace window_module {
Result<WindowResult> run(const Session& session, const WindowOptions& options);
Result<std::vector<std::uint32_t>> draw(const Session& session, const ViewState& state);
}  // namespace window_module

}  // namespace rehearse::viz
