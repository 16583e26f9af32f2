// SPDX-License-Identifier: Apache-2.0
// The command's side of the module.
#include "schedules/base/installed/module.h"
#include "viz/window/window_module.h"

namespace rehearse::viz {

bool has_window() {
  return has_module<WindowModule>();
}

Result<WindowResult> run_window(const Session& session, const WindowOptions& options) {
  const auto module = load_module<WindowModule>();
  if (!module) return module.error();
  return module.value()->run(session, options);
}

Result<std::vector<std::uint32_t>> draw_offscreen(const Session& session, const ViewState& state) {
  const auto module = load_module<WindowModule>();
  if (!module) return module.error();
  return module.value()->draw(session, state);
}

}  // namespace rehearse::viz
