// SPDX-License-Identifier: Apache-2.0
// All that a person can have the viewer do, by name: keys, menus, the help and scripts of events
// read this one table.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "viz/window/session.h"

namespace rehearse::viz {

enum class Menu : std::uint8_t { None, File, View, Tables, Go, Help };
inline constexpr std::array<std::string_view, 6> kMenuNames{"",       "File", "View",
                                                            "Tables", "Go",   "Help"};

struct Chord {
  Key key = Key::None;  // None: there is no key for it
  bool control = false, shift = false;
};
std::string chord_text(const Chord& chord);  // "Ctrl + E"

class Reducer;
struct Command {
  std::string_view name;  // of a line `do NAME` in a script
  Menu menu = Menu::None;
  std::string_view words;  // in the menu and the help
  Chord chord;
  Key also = Key::None;            // does the same, without control or shift
  std::string_view argument = {};  // what it is given, as an example; empty: nothing
  // Where `argument` is refused, says so in the state.
  void (*perform)(Reducer& on, std::string_view argument) = nullptr;
  bool (*on)(const ViewState& state) = nullptr;  // null: it is no switch
  // Whether it does anything to these traces as they are shown; null: always.
  bool (*possible)(const Session& session, const ViewState& state) = nullptr;
};
bool is_possible(const Command& one, const Session& session, const ViewState& state);

std::span<const Command> commands();
const Command* command_named(std::string_view name);  // null: there is none
// Shift that no command asks for changes nothing. Null: the key does nothing.
const Command* command_of(Key key, bool control, bool shift);

// The event that has a command done.
Event command_event(std::string_view name, std::string_view argument = {});

}  // namespace rehearse::viz
