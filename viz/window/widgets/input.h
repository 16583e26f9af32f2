// SPDX-License-Identifier: Apache-2.0
// Which events are the widgets', and how Dear ImGui is told of them: one frame for each, so that
// none is lost between two pictures.
#pragma once

#include <functional>

#include "viz/window/session.h"

namespace rehearse::viz {

class WidgetInput {
 public:
  // `frame`: has the widgets built once, nothing drawn.
  explicit WidgetInput(std::function<void()> frame);
  // True: the event was theirs; what they made of it came out of `frame`.
  bool takes(const Event& event, const ViewState& state);

 private:
  bool takes_mouse(const Event& event, const ViewState& state);
  bool takes_key(const Event& event);
  void press_key(Key key);

  std::function<void()> frame_;
  bool held_[3] = {false, false, false};  // buttons that went down over a widget
};

}  // namespace rehearse::viz
