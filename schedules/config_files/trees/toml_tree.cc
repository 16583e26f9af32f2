// SPDX-License-Identifier: Apache-2.0
// The only file that includes toml++.
#include "schedules/config_files/trees/read_trees.h"

// Its assertions are about what a file says: `[=]` breaks one, and is an error behind it.
#define TOML_ASSERT(expression) static_assert(true)
#include <toml++/impl/preprocessor.h>
#undef TOML_ASSUME
#define TOML_ASSUME(...) static_assert(true)
#include <toml++/toml.h>

#include <algorithm>
#include <charconv>
#include <sstream>

namespace rehearse {
namespace {

// toml++ 3.3.0 asks whether a character is a space, and between U+00A0 and U+FEFF its answer is for
// most of them no value at all (is_non_ascii_horizontal_whitespace). So it is given the characters
// of two and three bytes as private ones of four, c as U+F0000 + c, about which it knows.
bool continues(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

std::string as_private(std::string_view text) {
  std::string made;
  made.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const auto next = [&](std::size_t k) { return i + k < text.size() && continues(text[i + k]); };
    const auto second = next(1) ? static_cast<unsigned char>(text[i + 1]) : 0;
    if (lead >= 0xC2 && lead < 0xE0 && next(1)) {
      made += {'\xF3', '\xB0', static_cast<char>(0x80 | (lead & 0x1F)), text[i + 1]};
      i += 1;
    } else if ((lead & 0xF0) == 0xE0 && next(1) && next(2) && (lead != 0xE0 || second >= 0xA0) &&
               (lead != 0xED || second < 0xA0) && i > 0) {  // a byte order mark stays
      made += {'\xF3', static_cast<char>(0xB0 | (lead & 0x0F)), text[i + 1], text[i + 2]};
      i += 2;
    } else {
      made += text[i];  // ASCII, four bytes, or what toml++ refuses
    }
  }
  return made;
}

bool is_private(std::string_view text, std::size_t at) {
  return text[at] == '\xF3' && at + 3 < text.size() &&
         static_cast<unsigned char>(text[at + 1]) >= 0xB0;
}

std::string as_written(std::string_view text) {
  std::string made;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (!is_private(text, i)) {
      made += text[i];
      continue;
    }
    const auto high = static_cast<unsigned char>(text[i + 1]) & 0x0F;
    const auto middle = static_cast<unsigned char>(text[i + 2]);
    if (high == 0 && middle < 0xA0) {
      made += static_cast<char>(0xC0 | (middle & 0x1F));
    } else {
      made += {static_cast<char>(0xE0 | high), text[i + 2]};
    }
    made += text[i + 3];
    i += 3;
  }
  return made;
}

JsonValue value_of(const toml::node& node) {
  JsonValue made{.line = static_cast<std::int32_t>(node.source().begin.line)};
  if (const auto* table = node.as_table()) {
    made.kind = JsonKind::Object;
    for (const auto& [key, value] : *table) {
      made.members.push_back({.key = as_written(key.str()),
                              .line = static_cast<std::int32_t>(key.source().begin.line),
                              .value = value_of(value)});
    }
    // In the file's order; toml++ sorts them.
    std::ranges::stable_sort(made.members, {}, &JsonMember::line);
  } else if (const auto* array = node.as_array()) {
    made.kind = JsonKind::Array;
    for (const toml::node& item : *array) made.items.push_back(value_of(item));
  } else if (const auto* text = node.as_string()) {
    made.kind = JsonKind::String;
    made.text = as_written(text->get());
  } else if (const auto* flag = node.as_boolean()) {
    made.kind = JsonKind::Bool;
    made.boolean = flag->get();
  } else if (const auto* whole = node.as_integer()) {
    made.kind = JsonKind::Integer;
    made.integer = whole->get();
    made.number = static_cast<double>(made.integer);
  } else if (const auto* number = node.as_floating_point()) {
    made.kind = JsonKind::Number;
    made.number = number->get();
  } else {  // dates
    made.kind = JsonKind::String;
    std::ostringstream out;
    node.visit([&](const auto& one) {
      if constexpr (!toml::is_table<decltype(one)> && !toml::is_array<decltype(one)>) out << one;
    });
    made.text = out.str();
  }
  return made;
}

}  // namespace

Result<JsonValue> read_toml_tree(std::string_view text, const std::string& path) {
  // A key of thousands of parts would be as many tables, one inside the other.
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    if (std::ranges::count(text.substr(at, end - at), '.') > 1000) {
      return Error{path + ": a line with more than a thousand dots"};
    }
    at = end + 1;
  }
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (is_private(text, at)) return Error{path + ": a private character beyond U+F0000"};
  }
  try {
    return value_of(toml::parse(as_private(text)));
  } catch (const toml::parse_error& problem) {
    std::string what = as_written(problem.description());
    std::ranges::replace(what, '\n', ' ');
    return Error{path + ":" + std::to_string(problem.source().begin.line) + ": not TOML: " + what};
  }
}

}  // namespace rehearse
