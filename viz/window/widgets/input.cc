// SPDX-License-Identifier: Apache-2.0
#include "viz/window/widgets/input.h"

#include <imgui.h>

#include <array>

#include "viz/window/widgets/widgets.h"

namespace rehearse::viz {
namespace {

constexpr std::array<std::pair<ImGuiKey, Key>, 17> kKeyMap{{{ImGuiKey_Tab, Key::Tab},
                                                            {ImGuiKey_LeftArrow, Key::Left},
                                                            {ImGuiKey_RightArrow, Key::Right},
                                                            {ImGuiKey_UpArrow, Key::Up},
                                                            {ImGuiKey_DownArrow, Key::Down},
                                                            {ImGuiKey_Home, Key::Home},
                                                            {ImGuiKey_End, Key::End},
                                                            {ImGuiKey_Delete, Key::Delete},
                                                            {ImGuiKey_Backspace, Key::Backspace},
                                                            {ImGuiKey_Space, Key::Space},
                                                            {ImGuiKey_Enter, Key::Enter},
                                                            {ImGuiKey_Escape, Key::Escape},
                                                            {ImGuiKey_A, Key::A},
                                                            {ImGuiKey_C, Key::C},
                                                            {ImGuiKey_V, Key::V},
                                                            {ImGuiKey_X, Key::X},
                                                            {ImGuiKey_Z, Key::Z}}};

// Of a field that takes letters: the others are the state's (state/reducer.h).
bool edits_text(const Event& e) {
  switch (e.key) {
    case Key::A:
    case Key::C:
    case Key::V:
    case Key::X:
    case Key::Z:
      return e.control;
    case Key::Left:
    case Key::Right:
    case Key::Home:
    case Key::End:
    case Key::Delete:
    case Key::Backspace:
      return true;
    default:
      return false;
  }
}

}  // namespace

WidgetInput::WidgetInput(std::function<void()> frame) : frame_(std::move(frame)) {
  for (const auto& [theirs, ours] : kKeyMap) ImGui::GetIO().KeyMap[theirs] = static_cast<int>(ours);
}

void WidgetInput::press_key(Key key) {
  bool& down = ImGui::GetIO().KeysDown[static_cast<int>(key)];
  down = true;
  frame_();
  down = false;
  frame_();
}

bool WidgetInput::takes(const Event& event, const ViewState& state) {
  ImGuiIO& io = ImGui::GetIO();
  io.KeyCtrl = event.control;
  io.KeyShift = event.shift;
  switch (event.type) {
    case Event::Type::Key:
      return takes_key(event);
    case Event::Type::Text:
      if (!io.WantTextInput) return false;
      io.AddInputCharactersUTF8(event.text.c_str());
      frame_();
      return true;
    case Event::Type::Move:
    case Event::Type::Press:
    case Event::Type::Release:
    case Event::Type::DoubleClick:
    case Event::Type::Wheel:
      return takes_mouse(event, state);
    default:
      return false;
  }
}

// Keys move within an open menu; in a field they move in its text.
bool WidgetInput::takes_key(const Event& event) {
  ImGuiIO& io = ImGui::GetIO();
  if (Widgets::menu_open()) {
    io.ConfigFlags |= ImGuiConfigFlags_NavEnableKeyboard;
    press_key(event.key);
    if (!Widgets::menu_open()) io.ConfigFlags &= ~ImGuiConfigFlags_NavEnableKeyboard;
    return true;
  }
  if (!io.WantTextInput) return false;
  if (edits_text(event)) {
    press_key(event.key);
    return true;
  }
  // A character that is a key as well is text there.
  const bool character = !event.control && !event.text.empty();
  if (character) {
    io.AddInputCharactersUTF8(event.text.c_str());
    frame_();
  }
  const bool letter = !event.control && event.key != Key::Escape && event.key != Key::Enter &&
                      event.key != Key::Up && event.key != Key::Down && event.key != Key::Tab;
  return character || letter;
}

bool WidgetInput::takes_mouse(const Event& event, const ViewState& state) {
  if (state.drag != Drag::None) return false;  // over the lanes
  ImGuiIO& io = ImGui::GetIO();
  const auto button = static_cast<std::size_t>(event.button);
  if (event.type != Event::Type::Wheel) {
    io.MousePos = {static_cast<float>(event.x), static_cast<float>(event.y)};
    frame_();
  }
  const bool theirs = io.WantCaptureMouse || Widgets::menu_open();
  switch (event.type) {
    case Event::Type::Press:
    case Event::Type::DoubleClick:
      if (!theirs) return false;
      held_[button] = io.MouseDown[button] = true;
      frame_();
      return true;
    case Event::Type::Release:
      if (!std::exchange(held_[button], false)) return false;
      io.MouseDown[button] = false;
      frame_();
      return true;
    case Event::Type::Wheel:
      if (!theirs) return false;
      io.MouseWheel += static_cast<float>(event.y);
      frame_();
      return true;
    default:
      return theirs;
  }
}

}  // namespace rehearse::viz
