// SPDX-License-Identifier: Apache-2.0
// In place of offscreen.cc where the build found no Dear ImGui or EGL.
#include "viz/window/offscreen.h"

namespace rehearse::viz {

Result<std::vector<std::uint32_t>> draw_offscreen(const Scene&) {
  return Error{"this build draws nothing by OpenGL: install libimgui-dev and libegl-dev"};
}

}  // namespace rehearse::viz
