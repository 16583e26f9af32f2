// SPDX-License-Identifier: Apache-2.0
// In place of window.cc where the build found no Dear ImGui or GLFW.
#include "viz/window/window.h"

namespace rehearse::viz {

bool has_window() {
  return false;
}

Result<WindowResult> run_window(const Session&, const WindowOptions&) {
  return Error{
      "this build has no window: install libimgui-dev and libglfw3-dev and build again, or "
      "draw with: rehearse render TRACE --png FILE"};
}

}  // namespace rehearse::viz
