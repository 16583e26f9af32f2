// SPDX-License-Identifier: Apache-2.0
// Launch scripts are read, not run: variables, arrays and defaults are expanded as a shell would,
// tests on what is known are decided; no process starts, no file that the script names is opened.
// What only a run could tell is unknown: a mark in a text that stands for the variable. Branches
// behind unknown tests, loops, functions and subshells are left out; what they assign is unknown.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/base/result.h"
#include "schedules/config_files/edited_file.h"

namespace rehearse {

struct ShellWord {
  std::string text;
  std::int32_t line = 0;
};

// A command that the script would start, its words expanded.
struct ShellCommand {
  std::vector<ShellWord> words;
};

struct ShellScript {
  std::vector<ShellCommand> commands;
  std::map<std::string, ShellWord> variables, exported;
  std::map<std::string, std::string> documents;  // here-documents by the file they go to
  std::map<std::string, EditedFile> edited;      // what sed makes of others, likewise
  std::vector<std::string> warnings;
};

// `variables`: --var NAME=VALUE, over what the script says; positional ones by number. Errors: one
// line, "FILE:LINE: what is wrong".
Result<ShellScript> read_shell_script(std::string_view text, const std::string& path,
                                      const std::map<std::string, std::string>& variables);

// The variable that a text cannot do without; empty: all of it is known.
std::string unknown_in(std::string_view text);
// With $NAME for what is unknown.
std::string shown_unknown(std::string_view text);

constexpr std::int64_t kMostScript = 1 << 20;  // [B] of a file

}  // namespace rehearse
