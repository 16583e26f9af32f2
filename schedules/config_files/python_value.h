// SPDX-License-Identifier: Apache-2.0
// The right side of a statement of a Python recipe as flags: a number, a text, True, False, None, a
// product, a list of those, a name that is known, NAME(KEY=VALUE, ...). Another one is taken as it
// is written.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/frameworks/setting.h"

namespace rehearse {

inline constexpr int kDeepestPythonCall = 64;

// What names stand for where a statement is read: what --var gives, constants of the file,
// arguments of the function (`values`); right sides of its own assignments, as they are written
// (`expressions`, empty: something that is not read); modules that the file imports, whose names
// are taken as they are written, and what else it imports; names of the configuration that is made,
// and of its parts with the part's ("model.", `parts`).
struct PythonNames {
  std::map<std::string, std::string> values, expressions;
  std::set<std::string> modules, imported;  // functions of the file stand among the latter
  std::map<std::string, std::string, std::less<>> parts;
  bool returns = true;  // what the function returns is the configuration
};

class PythonValue {
 public:
  PythonValue(std::string_view text, std::string file, std::int32_t line, const PythonNames& names,
              std::vector<Setting>& flags, int depth = 0);

  // Adds what is said under this name.
  void take(const std::string& name);
  // The value of a word without brackets around it. False: it has to be computed.
  bool scalar(std::string_view word, std::string& to) const;

 private:
  void skip();
  bool at(char c);
  std::string_view whole();
  Setting& add(const std::string& name);
  void take(const std::string& name, int depth);
  void put_in_argument(std::string& call) const;
  bool keywords(std::size_t open);
  std::size_t keyword();

  std::string_view text_;
  std::size_t at_ = 0;
  std::string file_;
  std::int32_t line_;
  const PythonNames& names_;
  std::vector<Setting>& flags_;
  int depth_;
};

}  // namespace rehearse
