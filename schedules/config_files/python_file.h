// SPDX-License-Identifier: Apache-2.0
// A Python file as functions and what it imports, and the files of the same checkout that those
// imports name: a relative one from where the file lies, any other from a folder above it that
// holds the package. Files are opened as text, 64 of them at most; nothing outside such a package
// is.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/config_files/python_text.h"
#include "schedules/config_files/python_value.h"

namespace rehearse {

// "def NAME(ARGUMENTS):" and the statements under it.
struct PythonFunction {
  std::string name, arguments;
  std::size_t first = 0, last = 0;  // of the statements; last: behind it
};

// "from MODULE import NAME": dots before MODULE say how many folders up. NAME empty: MODULE itself;
// "*": all of it.
struct PythonImport {
  std::string module, name;
};

struct PythonFile {
  std::string path;
  std::vector<PythonStatement> statements;
  std::vector<PythonFunction> functions;
  std::map<std::string, PythonImport, std::less<>> imports;  // by the name that they have here
  std::vector<PythonImport> all_of;                          // of "*"
  std::map<std::string, std::string, std::less<>> aliases;   // NAME = OTHER, both functions
  PythonNames names;                                         // constants, modules

  const PythonFunction* find(std::string_view name) const;
  // Behind the statements that stand under a head.
  std::size_t end_of_block(std::size_t head) const;
};

// "megatron.bridge.recipes.common": megatron/bridge/recipes/common.py.
std::string python_path(std::string_view module);

class PythonFiles {
 public:
  // `variables`: values of names, over the files' own constants.
  explicit PythonFiles(const std::map<std::string, std::string>& variables)
      : variables_(variables) {}

  // `main`: the recipe itself, of which statements outside of functions may be the configuration.
  const PythonFile& add(std::string_view text, const std::string& path, bool main = true);
  // The file that an import names; nullptr: it is not there, or one too many.
  const PythonFile* imported(const PythonFile& from, std::string_view module);

  // A function by the name that it has in `file`, "m.f" of a module m too; no function: none is
  // found, and `wanted` is the file that should have it, where an import says so.
  struct Found {
    const PythonFile* file = nullptr;
    const PythonFunction* function = nullptr;
    std::string wanted;
  };
  Found find(const PythonFile& file, std::string_view name, int depth = 0);

 private:
  const PythonFile* open_import(const PythonFile& from, std::string_view module);
  void read_imports(PythonFile& file, std::string_view row);

  const std::map<std::string, std::string>& variables_;
  std::map<std::string, std::unique_ptr<PythonFile>> files_;
  std::map<std::string, const PythonFile*> imported_;  // by the folder it is asked from, and module
};

}  // namespace rehearse
