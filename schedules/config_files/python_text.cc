// SPDX-License-Identifier: Apache-2.0
#include "schedules/config_files/python_text.h"

#include <algorithm>

namespace rehearse {

std::vector<PythonStatement> python_statements(std::string_view text) {
  std::vector<PythonStatement> made;
  PythonStatement current;
  bool begun = false;
  int depth = 0;
  std::int32_t line = 1;
  std::size_t indent = 0;
  const auto finish = [&] {
    while (!current.text.empty() && current.text.back() == ' ') current.text.pop_back();
    if (!current.text.empty()) made.push_back(current);
    current = {};
    begun = false;
    indent = 0;
  };
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (!begun && c == ' ') {
      ++indent;
      ++at;
    } else if (!begun && c == '\t') {
      indent += 8;
      ++at;
    } else if (c == '#') {
      at = std::min(text.find('\n', at), text.size());
    } else if (c == '\'' || c == '"') {
      if (!begun) current.line = line, current.indent = indent, begun = true;
      const std::string three(3, c);
      const bool block = text.substr(at, 3) == three;
      const std::size_t open = at;
      if (block) {
        const std::size_t end = text.find(three, at + 3);
        at = end == std::string_view::npos ? text.size() : end + 3;
      } else {
        for (++at; at < text.size() && text[at] != c && text[at] != '\n'; ++at) {
          if (text[at] == '\\') ++at;
        }
        at = std::min(at + 1, text.size());
      }
      const std::string_view word = text.substr(open, at - open);
      line += static_cast<std::int32_t>(std::ranges::count(word, '\n'));
      current.text += word;
    } else if (c == '\n') {
      ++line;
      ++at;
      if (depth == 0)
        finish();
      else
        current.text += ' ';
    } else if (c == '\\' && at + 1 < text.size() && text[at + 1] == '\n') {
      ++line;
      at += 2;
    } else {
      if (!begun && c != '\r') current.line = line, current.indent = indent, begun = true;
      depth += c == '(' || c == '[' || c == '{' ? 1 : c == ')' || c == ']' || c == '}' ? -1 : 0;
      depth = std::max(depth, 0);
      if (c != '\r') current.text += c;
      ++at;
    }
  }
  finish();
  return made;
}

std::string_view inside_brackets(std::string_view text, std::size_t open) {
  int depth = 0;
  for (std::size_t at = open; at < text.size(); ++at) {
    const char c = text[at];
    depth += c == '(' || c == '[' || c == '{' ? 1 : c == ')' || c == ']' || c == '}' ? -1 : 0;
    if (depth == 0) return text.substr(open + 1, at - open - 1);
  }
  return text.substr(std::min(open + 1, text.size()));
}

std::vector<std::string_view> parts_of(std::string_view text) {
  std::vector<std::string_view> made;
  int depth = 0;
  std::size_t first = 0;
  const auto take = [&](std::size_t end) {
    std::string_view part = text.substr(first, end - first);
    while (part.starts_with(' ')) part.remove_prefix(1);
    while (part.ends_with(' ')) part.remove_suffix(1);
    if (!part.empty()) made.push_back(part);
    first = end + 1;
  };
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '"' || c == '\'') {
      const std::size_t end = text.find(c, at + 1);
      at = end == std::string_view::npos ? text.size() : end;
      continue;
    }
    depth += c == '(' || c == '[' || c == '{' ? 1 : c == ')' || c == ']' || c == '}' ? -1 : 0;
    if (c == ',' && depth == 0) take(at);
  }
  if (first < text.size()) take(text.size());
  return made;
}

PythonAssignment assignment_of(std::string_view row) {
  std::size_t end = 0;
  while (end < row.size() && is_python_word(row[end])) ++end;
  std::size_t equals = end;
  while (equals < row.size() && row[equals] == ' ') ++equals;
  if (equals < row.size() && row[equals] == ':') equals = row.find('=', equals);
  const bool one = end > 0 && equals != std::string_view::npos && equals + 1 < row.size() &&
                   row[equals] == '=' && row[equals + 1] != '=';
  if (!one) return {};
  std::string_view right = row.substr(equals + 1);
  while (right.starts_with(' ')) right.remove_prefix(1);
  return {row.substr(0, end), right};
}

}  // namespace rehearse
