// SPDX-License-Identifier: Apache-2.0
// A command line as flags with their values, and how many GPUs its launcher starts.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/base/result.h"
#include "schedules/config_files/shell/shell_script.h"
#include "schedules/frameworks/setting.h"

namespace rehearse {

// "--flag value value", "--flag=value"; numbers below zero are values. `takes_nothing`: of a flag.
std::vector<Setting> flags_of_words(std::span<const ShellWord> words, const std::string& file,
                                    const std::function<bool(std::string_view)>& takes_nothing,
                                    std::vector<std::string>& warnings);

// What a launch consists of: the launcher's words, the program, its flags.
struct LaunchCommand {
  std::string program;  // "pretrain_gpt.py", "torchtitan.train"
  std::vector<ShellWord> launcher, arguments;
};

// The command of a script that starts training: that with most flags of which `known` is true.
// Errors: "FILE: no command ...".
Result<LaunchCommand> launch_command(const ShellScript& script, const std::string& path,
                                     const std::function<bool(std::string_view)>& known);

// GPUs by torchrun, srun, mpirun, deepspeed, accelerate and their kin; where none says it, by
// Slurm's variables. 0: nobody says it.
Launch launched(const LaunchCommand& command, const ShellScript& script,
                std::vector<std::string>& warnings);

}  // namespace rehearse
