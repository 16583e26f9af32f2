// SPDX-License-Identifier: Apache-2.0
// Python as text: statements, each on one line, and what they are made of. Nothing is run here.
#pragma once

#include <cctype>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace rehearse {

inline constexpr std::string_view kPythonNone = "None";

// Whether names, dotted ones too, and numbers may have the letter.
inline bool is_python_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.';
}

// A statement on one line, its brackets closed and its comments gone.
struct PythonStatement {
  std::string text;
  std::int32_t line = 0;
  std::size_t indent = 0;
};

std::vector<PythonStatement> python_statements(std::string_view text);

// What stands in the brackets that open at `open`.
std::string_view inside_brackets(std::string_view text, std::size_t open);
// "a: int = 1, b=(2, 3)" at its commas.
std::vector<std::string_view> parts_of(std::string_view text);

// "NAME = RIGHT", "NAME: TYPE = RIGHT"; an empty name: another statement.
struct PythonAssignment {
  std::string_view name, right;
};
PythonAssignment assignment_of(std::string_view row);

}  // namespace rehearse
