// SPDX-License-Identifier: Apache-2.0
// What a command may be asked for, as data: its positionals and flags, what each takes, and where
// the value goes. cli/parse.cc alone knows the parser.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <variant>
#include <vector>

namespace rehearse::cli {

// What a value must be: one of these words, or a number in [least, most].
using Choices = std::vector<std::string>;
struct Whole {
  int least, most;
};
struct Number {
  double least, most;
};

// One value, a yes, or a list; as it was where the option is not given.
using Target =
    std::variant<bool*, std::string*, std::int32_t*, std::int64_t*, std::size_t*, double*,
                 std::vector<std::string>*, std::vector<std::int32_t>*, std::vector<double>*>;

struct Option {
  std::string name;  // "--json", "-o,--output"; without a dash a positional
  Target to;
  std::string help;
  std::variant<std::monostate, Choices, Whole, Number> takes = {};
  bool required = false;
  bool one_each = false;       // a list that takes one value each time it is named
  bool shows_default = false;  // in the help
  bool writes = false;         // names a file that the command writes: no file that it reads
};

inline Option writes(Option option) {
  option.writes = true;
  return option;
}

inline Option required(Option option) {
  option.required = true;
  return option;
}
inline Option one_each(Option option) {
  option.one_each = true;
  return option;
}
inline Option shows_default(Option option) {
  option.shows_default = true;
  return option;
}

// The words of a table with a column `name`.
template <class Table>
Choices names_of(const Table& table) {
  Choices names;
  for (const auto& row : table) names.emplace_back(row.name);
  return names;
}

// Names of the options that the command line gives, in the command's order.
using Given = std::vector<std::string>;

struct Command {
  std::string name, help;
  std::vector<Option> options;
  std::string footer;  // of the help: an example
  // With every target set; returns the exit code. REQUIRES: it owns what the targets point to.
  std::function<int(const Given&)> perform;
};

// Performs the command that the command line names, or answers --help and --version; usage that is
// wrong is said in one line. Returns the exit code.
int perform(int argc, char** argv, const std::string& version,
            const std::vector<Command>& commands);

}  // namespace rehearse::cli
