// SPDX-License-Identifier: Apache-2.0
// The only file that includes toml++.
#include "schedules/config_files/trees/read_trees.h"

#include <toml++/toml.h>

#include <algorithm>
#include <charconv>
#include <sstream>

namespace rehearse {
namespace {

JsonValue value_of(const toml::node& node) {
  JsonValue made{.line = static_cast<std::int32_t>(node.source().begin.line)};
  if (const auto* table = node.as_table()) {
    made.kind = JsonKind::Object;
    for (const auto& [key, value] : *table) {
      made.members.push_back({.key = std::string(key.str()),
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
    made.text = text->get();
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
  try {
    return value_of(toml::parse(text));
  } catch (const toml::parse_error& problem) {
    std::string what(problem.description());
    std::ranges::replace(what, '\n', ' ');
    return Error{path + ":" + std::to_string(problem.source().begin.line) + ": not TOML: " + what};
  }
}

}  // namespace rehearse
