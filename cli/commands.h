// SPDX-License-Identifier: Apache-2.0
// The sub-commands, one function and one file each, and how they answer.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "cli/options.h"
#include "schedules/base/result.h"

namespace rehearse::cli {

// Exit codes (docs/commands.md): the only place where they have numbers.
enum ExitCode : int {
  kDone = 0,
  kNo = 1,           // the answer is no: invalid schedule, does not fit, error beyond the bound
  kBadInput = 2,     // bad usage or bad input
  kRunFailed = 3,    // a rank died, timed out, device error
  kSignalled = 128,  // plus the signal that ended a run: 130 for Ctrl-C
};

Command check_command();
Command schedule_command();
Command simulate_command();
Command search_command();
Command validate_command();
Command render_command();
Command export_command();
Command run_command();
Command view_command();
Command compare_command();
Command explain_command();
Command calibrate_command();
Command plan_command();
Command import_command();
Command emit_command();
Command list_command();
Command groups_command();
Command cluster_command();
Command support_command();
// The command that completes these commands.
Command completion_command(const std::vector<Command>& commands);
Command man_command(const std::vector<Command>& commands);

// One line "rehearse: MESSAGE" on stderr.
void print_error(const std::string& message);
int exit_code(const Error& error);
// The line, and the exit code.
int fail(const std::string& message, int code = kBadInput);
int fail(const Error& error);
// Whether standard output takes colours: a terminal, without NO_COLOR (no-color.org).
bool takes_color();
// A command's answer, to standard output, at once. A write that fails (a full disk) is said in one
// line; main then exits 3, whatever the answer was.
void print_text(std::string_view text);
// Whether the name `path` given to `flag`, which writes `ending` (".svg"), ends as another kind of
// file; false after printing the error.
bool ends_as(const std::string& path, std::string_view flag, std::string_view ending);
// Writes by atomic rename. kDone, or the exit code after printing the error: kRunFailed for a disk
// that is full or fails, kBadInput for a place that cannot be written to.
int write_file(const std::string& path, const std::string& content);

}  // namespace rehearse::cli
