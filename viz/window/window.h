// SPDX-License-Identifier: Apache-2.0
// The timeline window: the only place that knows GLFW. Thin: it turns input into events, hands them
// to reduce(), and has a GlCanvas draw the scene that view_scene() makes.
#pragma once

#include <functional>
#include <string>

#include "schedules/base/result.h"
#include "viz/window/session.h"

namespace rehearse::viz {

struct WindowOptions {
  std::int32_t width = 0, height = 0;  // [px]; 0: as they were last, else 1440 x 900
  double scale = 0;                    // pixels per unit; 0: as the screen has it
  std::string record;                  // write the events there, as a script
  std::string settings_file;           // what a person chose (settings.h); empty: not kept
  std::string export_file = "rehearse-view.svg";  // of Ctrl + E
  // Handled before the first frame, as if a person had made them.
  std::vector<Event> events;
  // For tests and screenshots: take input for so long, then until `until` says so, hand over the
  // window's pixels, close.
  bool capture = false;
  double linger_s = 0;
  std::function<bool()> until;
};

// Its module is installed (viz/window/window_module.h). Loads nothing.
bool has_window();
struct WindowResult {
  ViewState state;                    // when it closed
  std::vector<std::uint32_t> pixels;  // with capture: what it showed, 0xAABBGGRR
  std::int32_t width = 0, height = 0;
  std::int64_t frames = 0;  // drawn
};
// Runs until the window is closed. Errors: no display, no OpenGL 3.3.
Result<WindowResult> run_window(const Session& session, const WindowOptions& options);

}  // namespace rehearse::viz
