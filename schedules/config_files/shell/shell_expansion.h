// SPDX-License-Identifier: Apache-2.0
// What a shell makes of a word: variables, arrays and their defaults, quotes, $(( )). What only a
// run could tell is unknown: a mark in the text that stands for the variable.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/config_files/shell/shell_script.h"
#include "schedules/config_files/shell/shell_tokens.h"

namespace rehearse {

// The first thing that cannot be read, and its line.
struct ShellProblem {
  std::int32_t line = 0;
  std::string what;

  bool none() const { return what.empty(); }
  void say(std::int32_t at, const std::string& text) {
    if (none()) *this = {at, text};
  }
};

class ShellExpansion {
 public:
  // `given`: --var NAME=VALUE, which no assignment of the script changes.
  ShellExpansion(const std::map<std::string, std::string>& given, ShellProblem& problem);

  // A word of a command: several, where an unquoted value has blanks.
  std::vector<ShellWord> words(std::string_view raw, std::int32_t line);
  // The right side of an assignment: nothing is split.
  std::string text(std::string_view raw, std::int32_t line);
  // A here-document, in which quotes mean nothing.
  std::string document(const ShellToken& document);

  void assign(std::string_view raw, std::int32_t line);  // NAME=..., NAME+=..., NAME=( ... )
  void set_unless_set(std::string_view name, const std::string& value);
  void forget(const std::string& name);
  // What is assigned here is unknown from here on.
  void hide(std::string_view raw);
  const std::map<std::string, ShellWord>& scalars() const { return scalars_; }

 private:
  struct Words;
  std::string scalar(const std::string& name) const;
  std::int32_t line_of(const std::string& name, std::int32_t otherwise) const;
  bool is_set(const std::string& name) const;
  void put(Words& words, std::string_view text, bool quoted, std::int32_t line);
  void put_array(Words& words, const std::vector<ShellWord>& items, bool quoted);
  void element(Words& words, const std::string& name, std::string_view rest, bool count,
               bool quoted, std::int32_t line);
  void parameter(Words& words, std::string_view inside, bool quoted, std::int32_t line, int depth);
  void dollar(Words& words, std::string_view text, std::size_t& at, bool quoted, std::int32_t line,
              int depth);
  std::size_t inside_quotes(Words& words, std::string_view raw, std::size_t at, std::int32_t line,
                            int depth);
  Words expanded(std::string_view raw, std::int32_t line, int depth);

  const std::map<std::string, std::string>& given_;
  ShellProblem& problem_;
  std::map<std::string, ShellWord> scalars_;
  std::map<std::string, std::vector<ShellWord>> arrays_;
};

// NAME of an assignment "NAME=...", "NAME+=..."; empty: it is none.
std::string assigned_name(std::string_view raw);
bool is_shell_name(std::string_view text);

}  // namespace rehearse
