// SPDX-License-Identifier: Apache-2.0
// Menus, fields and tables by Dear ImGui, over the picture. They keep nothing that matters: what
// they show is the state's, what a person does with them are commands (state/commands.h).
#pragma once

#include <string>
#include <vector>

#include "viz/window/geometry.h"
#include "viz/window/session.h"
#include "viz/window/state/table.h"
#include "viz/window/widgets/fonts.h"

namespace rehearse::viz {

class Widgets {
 public:
  explicit Widgets(Fonts& fonts) : fonts_(fonts) {}
  // Within a frame of Dear ImGui: builds all of them. What a person did comes back as events.
  std::vector<Event> build(const Session& session, const ViewState& state);
  // A field of the state is not yet one that takes letters.
  bool unsettled(const ViewState& state) const;
  // A menu is open.
  static bool menu_open();

 private:
  void style(const ViewState& state);
  void menus(const Session& session, const ViewState& state);
  void heats(const Session& session, const ViewState& state);
  void fields(const Session& session, const ViewState& state, const Geometry& at);
  void table(const Session& session, const ViewState& state, const Geometry& at);
  void lines(const ViewState& state, const Table& table);
  void sorted(const ViewState& state);
  void send(std::string_view name, std::string_view argument = {});

  Fonts& fonts_;
  TableCache tables_;
  std::vector<Event> events_;
  Field focused_ = Field::None;  // takes letters
  OpRef shown_;                  // was scrolled to
  bool dark_ = false;
  double scale_ = 0;
};

}  // namespace rehearse::viz
