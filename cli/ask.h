// SPDX-License-Identifier: Apache-2.0
// The commands that answer, asked in this process. An answer's bytes are those that the command
// prints.
#pragma once

#include <string>
#include <vector>

#include "cli/options.h"
#include "cli/words.h"

namespace rehearse::cli {

// All but those that act on this machine (run, view, calibrate) or for others (serve).
std::vector<Command> answering_commands();

struct Answer {
  int code = 0;  // the command's exit code (cli/commands.h)
  Words words;
};

// Performs the command line `arguments`, "rehearse" left out; `input` is what its `-` names. From
// any thread; throws nothing.
Answer ask(const std::vector<std::string>& arguments, std::string input = {});

}  // namespace rehearse::cli
