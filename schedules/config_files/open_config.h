// SPDX-License-Identifier: Apache-2.0
// Files of a framework as its flags, whatever their form: which framework they are of, and what
// they say. No process starts; of files that are not named those alone are opened that a recipe
// imports, or a table of keys says that it lies over, from the same checkout.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "schedules/base/result.h"
#include "schedules/frameworks/framework_file.h"
#include "schedules/frameworks/setting.h"

namespace rehearse {

struct ConfigFiles {
  std::vector<std::string> files;      // the first is the main one, later ones lie over it
  std::vector<std::string> arguments;  // of the command line, behind --
  std::string framework;               // --from; empty: by what the files say
  std::map<std::string, std::string> variables;  // --var NAME=VALUE
  std::string recipe;                            // --recipe: a function of a Python file
  std::string stage;                             // --stage: of a file that has several
};

struct OpenedConfig {
  Framework framework;
  Settings settings;
};

// Those that files may be of: all that are shipped, or the one that is named.
Result<std::vector<Framework>> known_frameworks(const std::string& named);

// Errors: one line. A file that is already a scenario, or of a framework that trains otherwise, is
// named as that.
Result<OpenedConfig> open_config(const ConfigFiles& files,
                                 const std::vector<Framework>& frameworks);
Result<OpenedConfig> open_config(const ConfigFiles& files);  // of known_frameworks

}  // namespace rehearse
