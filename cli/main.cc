// SPDX-License-Identifier: Apache-2.0
// The command line: a table of sub-commands, those that answer (cli/ask.h) and those that act on
// this machine. Each is one file, cli/NAME.cc.
#include <malloc.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <utility>

#include "cli/ask.h"
#include "cli/commands.h"
#include "cli/serve/serve.h"
#include "cli/words.h"
#include "exec/cuda/cuda_module.h"
#include "exec/messages/gloo_communicator.h"
#include "viz/window/window.h"

namespace rehearse::cli {
namespace {

// The version, and which optional parts this build has.
std::string version_text() {
  std::string parts;
  if (exec::has_cuda_module()) parts += " cuda nccl";
  if (exec::has_gloo()) parts += " gloo";
  if (viz::has_window()) parts += " viewer";
  return std::string(REHEARSE_VERSION) +
         "\nbuilt in:" + (parts.empty() ? " nothing optional" : parts);
}

// In a thread that nobody waits for what it throws.
[[noreturn]] void end_thrown() {
  std::_Exit(std::current_exception() ? thrown() : kRunFailed);
}

int run(int argc, char** argv) {
  std::vector<Command> commands = answering_commands();
  for (Command& command :
       std::vector{run_command(), view_command(), calibrate_command(), serve_command()}) {
    commands.push_back(std::move(command));
  }
  commands.push_back(completion_command(commands));
  commands.push_back(man_command(commands));
  return perform(argc, argv, version_text(), commands);
}

}  // namespace
}  // namespace rehearse::cli

int main(int argc, char** argv) {
  // Schedules are large arrays that come and go: without this glibc hands each back to the system
  // and a third of the time goes into clearing fresh pages.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  std::signal(SIGXFSZ, SIG_IGN);  // a write beyond `ulimit -f` fails, as on a full disk
  std::set_terminate(rehearse::cli::end_thrown);
  try {
    const int code = rehearse::cli::run(argc, argv);
    return std::ferror(stdout) == 0 ? code : rehearse::cli::kRunFailed;
  } catch (...) {
    return rehearse::cli::thrown();
  }
}
