// SPDX-License-Identifier: Apache-2.0
#include "viz/window/script.h"

#include <charconv>
#include <utility>

#include "viz/analysis/units_text.h"
#include "viz/window/state/commands.h"

namespace rehearse::viz {
namespace {

using Type = Event::Type;

constexpr std::pair<Type, std::string_view> kTypes[] = {
    {Type::Key, "key"},     {Type::Text, "text"},       {Type::Move, "move"},
    {Type::Press, "press"}, {Type::Release, "release"}, {Type::DoubleClick, "double"},
    {Type::Wheel, "wheel"}, {Type::Resize, "resize"},   {Type::Tick, "tick"},
    {Type::Command, "do"}};

std::string_view next_word(std::string_view& line) {
  const std::size_t begin = std::min(line.find_first_not_of(" \t\r"), line.size());
  line.remove_prefix(begin);
  const std::string_view word = line.substr(0, std::min(line.find_first_of(" \t\r"), line.size()));
  line.remove_prefix(word.size());
  return word;
}

bool number(std::string_view word, double& value) {
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  return error == std::errc{} && end == word.data() + word.size() && value > -1e9 && value < 1e9;
}

// What is wrong with the line; empty: nothing, and `event` is filled.
std::string parse_line(std::string_view line, Event& event) {
  const std::string_view verb = next_word(line);
  bool known = false;
  for (const auto& [type, name] : kTypes) {
    if (name != verb) continue;
    event.type = type;
    known = true;
  }
  if (!known) return "no such event: " + std::string(verb);
  if (event.type == Type::Text || event.type == Type::Command) {
    if (!line.empty()) line.remove_prefix(1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    event.text = line;
    const std::string_view name = line.substr(0, line.find(' '));
    if (event.type == Type::Command && command_named(name) == nullptr)
      return "no such command: " + std::string(name);
    return {};
  }
  if (event.type == Type::Key) {
    const std::string_view name = next_word(line);
    event.key = key_named(name);
    if (event.key == Key::None) return "no such key: " + std::string(name);
  } else if (event.type == Type::Tick) {
    if (!number(next_word(line), event.seconds)) return "a time in seconds was expected";
  } else if (!number(next_word(line), event.x) || !number(next_word(line), event.y)) {
    return "two numbers were expected";
  }
  for (std::string_view word = next_word(line); !word.empty(); word = next_word(line)) {
    if (event.type == Type::Resize) {
      if (!number(word, event.scale) || event.scale <= 0) return "a scale was expected";
    } else if (word == "shift") {
      event.shift = true;
    } else if (word == "ctrl") {
      event.control = true;
    } else if (word == "0" || word == "1" || word == "2") {
      event.button = word[0] - '0';
    } else {
      return "not understood: " + std::string(word);
    }
  }
  return {};
}

}  // namespace

Result<std::vector<Event>> parse_script(std::string_view text, const std::string& name) {
  std::vector<Event> events;
  for (int line = 1; !text.empty(); ++line) {
    const std::size_t end = text.find('\n');
    const std::string_view content = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    const std::size_t first = content.find_first_not_of(" \t\r");
    if (first == std::string_view::npos || content[first] == '#') continue;
    Event event;
    if (const std::string wrong = parse_line(content, event); !wrong.empty()) {
      return Error{name + ":" + std::to_string(line) + ": " + wrong};
    }
    events.push_back(std::move(event));
  }
  return events;
}

std::string to_script(const Event& event) {
  std::string line;
  for (const auto& [type, name] : kTypes) {
    if (type == event.type) line = name;
  }
  switch (event.type) {
    case Type::Key:
      line.append(" ").append(name_of(event.key));
      break;
    case Type::Text:
    case Type::Command:
      return line + " " + event.text + "\n";
    case Type::Tick:
      return line + " " + fixed_text(event.seconds, 4) + "\n";
    case Type::Resize:
      line += " " + fixed_text(event.x, 1) + " " + fixed_text(event.y, 1);
      return (event.scale > 0 ? line + " " + fixed_text(event.scale, 2) : line) + "\n";
    default:
      line += " " + fixed_text(event.x, 1) + " " + fixed_text(event.y, 1);
  }
  if (event.button != 0) line += " " + std::to_string(event.button);
  if (event.shift) line += " shift";
  if (event.control) line += " ctrl";
  return line + "\n";
}

}  // namespace rehearse::viz
