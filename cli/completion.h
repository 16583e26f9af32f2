// SPDX-License-Identifier: Apache-2.0
// What shells and man know of the command line, made from the table of commands.
#pragma once

#include <string>
#include <vector>

#include "cli/options.h"

namespace rehearse::cli {

enum class Shell { Bash, Zsh, Fish };
// A script that completes commands, flags, their words, shipped names and files.
std::string completion_script(Shell shell, const std::vector<Command>& commands);
// One page, rehearse(1), in troff's man macros.
std::string man_page(const std::vector<Command>& commands, const std::string& version);

}  // namespace rehearse::cli
