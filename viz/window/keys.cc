// SPDX-License-Identifier: Apache-2.0
#include "viz/window/keys.h"

#include <utility>

namespace rehearse::viz {
namespace {

constexpr std::pair<Key, std::string_view> kKeyNames[] = {{Key::A, "A"},
                                                          {Key::B, "B"},
                                                          {Key::C, "C"},
                                                          {Key::D, "D"},
                                                          {Key::E, "E"},
                                                          {Key::F, "F"},
                                                          {Key::G, "G"},
                                                          {Key::H, "H"},
                                                          {Key::L, "L"},
                                                          {Key::M, "M"},
                                                          {Key::N, "N"},
                                                          {Key::O, "O"},
                                                          {Key::R, "R"},
                                                          {Key::S, "S"},
                                                          {Key::T, "T"},
                                                          {Key::V, "V"},
                                                          {Key::W, "W"},
                                                          {Key::X, "X"},
                                                          {Key::Slash, "/"},
                                                          {Key::Comma, ","},
                                                          {Key::Period, "."},
                                                          {Key::BracketLeft, "["},
                                                          {Key::BracketRight, "]"},
                                                          {Key::K, "K"},
                                                          {Key::Q, "Q"},
                                                          {Key::U, "U"},
                                                          {Key::Plus, "+"},
                                                          {Key::Minus, "-"},
                                                          {Key::Zero, "0"},
                                                          {Key::I, "I"},
                                                          {Key::J, "J"},
                                                          {Key::P, "P"},
                                                          {Key::Y, "Y"},
                                                          {Key::Z, "Z"},
                                                          {Key::Space, "Space"},
                                                          {Key::Escape, "Escape"},
                                                          {Key::Enter, "Enter"},
                                                          {Key::Backspace, "Backspace"},
                                                          {Key::Tab, "Tab"},
                                                          {Key::Delete, "Delete"},
                                                          {Key::Home, "Home"},
                                                          {Key::End, "End"},
                                                          {Key::Left, "Left"},
                                                          {Key::Right, "Right"},
                                                          {Key::Up, "Up"},
                                                          {Key::Down, "Down"},
                                                          {Key::Question, "?"},
                                                          {Key::One, "1"},
                                                          {Key::Two, "2"},
                                                          {Key::Three, "3"}};

}  // namespace

Key key_named(std::string_view name) {
  for (const auto& [key, known] : kKeyNames) {
    if (known == name) return key;
  }
  return Key::None;
}

std::string_view name_of(Key key) {
  for (const auto& [known, name] : kKeyNames) {
    if (known == key) return name;
  }
  return {};
}

}  // namespace rehearse::viz
