// SPDX-License-Identifier: Apache-2.0
// rehearse completion, rehearse man.
#include "cli/commands.h"
#include "cli/completion.h"

namespace rehearse::cli {

Command completion_command(const std::vector<Command>& commands) {
  const auto shell = std::make_shared<std::string>();
  Command command{"completion",
                  "a script with which a shell completes rehearse's commands and flags"};
  command.options = {
      required({"SHELL", shell.get(), "bash, zsh or fish", Choices{"bash", "zsh", "fish"}}),
  };
  command.footer = "Example: rehearse completion bash > rehearse.bash";
  command.perform = [shell, commands](const Given&) {
    print_text(completion_script(*shell == "bash"  ? Shell::Bash
                                 : *shell == "zsh" ? Shell::Zsh
                                                   : Shell::Fish,
                                 commands));
    return kDone;
  };
  return command;
}

Command man_command(const std::vector<Command>& commands) {
  Command command{"man", "the manual page, for man -l"};
  command.footer = "Example: rehearse man > rehearse.1";
  command.perform = [commands](const Given&) {
    print_text(man_page(commands, REHEARSE_VERSION));
    return kDone;
  };
  return command;
}

}  // namespace rehearse::cli
