// SPDX-License-Identifier: Apache-2.0
// What a window is told: keys, text, mouse, size, time, and commands by their names.
#pragma once

#include <cstdint>
#include <string>

namespace rehearse::viz {

enum class Key : std::uint8_t {
  None,
  A,
  B,
  C,
  D,
  E,
  F,
  G,
  H,
  I,
  J,
  K,
  L,
  M,
  N,
  O,
  P,
  Q,
  R,
  S,
  T,
  U,
  V,
  W,
  X,
  Y,
  Z,
  Plus,
  Minus,
  Zero,
  Slash,
  Comma,
  Period,
  BracketLeft,
  BracketRight,
  Space,
  Escape,
  Enter,
  Backspace,
  Tab,
  Delete,
  Home,
  End,
  Left,
  Right,
  Up,
  Down,
  Question,
  One,
  Two,
  Three,
};

struct Event {
  enum class Type : std::uint8_t {
    Key,
    Text,
    Move,
    Press,
    Release,
    DoubleClick,
    Wheel,
    Resize,
    Tick,
    Command
  };
  Type type{};
  Key key{};
  bool shift = false, control = false;
  double x = 0, y = 0;  // of the mouse [px]; Wheel: steps, up is positive; Resize: the size [px]
  double scale = 0;     // Resize: pixels per unit of this screen; 0: as before
  std::int32_t button = 0;  // 0 left, 1 right, 2 middle
  double seconds = 0;       // Tick: since the last one
  // Text, and a key that is a character: typed, UTF-8. Command: a name and what it is given, as
  // commands.h has them.
  std::string text;
};

}  // namespace rehearse::viz
