// SPDX-License-Identifier: Apache-2.0
// The commands that answer, as tools of the Model Context Protocol. A tool's arguments are its
// command's options, read from the same table: "--global-batch" is `global_batch`, a positional its
// name in small letters, `--set` an object of keys and values. What names a file may also be the
// document itself. A tool writes no files and its answer is that of `--json`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/options.h"
#include "schedules/base/json_document.h"
#include "schedules/base/json_reader.h"

namespace rehearse::cli {

struct Tool {
  std::string_view name;  // of the command too
  std::string_view title;
  std::string_view about;  // what an agent should know of it beside the command's own help
  Command (*make)();
  std::vector<std::string_view> left_out;   // options that write, or shape text for people
  std::vector<std::string_view> documents;  // arguments that may be the document itself
  bool shows_schema = false;  // of a scenario, whole: the other tools refer to this one
};
const std::vector<Tool>& tools();
const Tool* find_tool(std::string_view name);

// An entry of tools/list. `scenario`: scenarios/schema/scenario.json.
Json tool_json(const Tool& tool, const Json& scenario);

// A document that stands in the arguments, and the word of the command line that will name its
// file: the word's text stands before that name.
struct Document {
  std::size_t word = 0;
  std::string name, text;
};
struct CommandLine {
  std::vector<std::string> words;  // "rehearse", the command, its options
  std::vector<Document> documents;
};
// Error: which argument is wrong, why, and what was probably meant.
Result<CommandLine> command_line(const Tool& tool, const JsonValue& arguments);

}  // namespace rehearse::cli
