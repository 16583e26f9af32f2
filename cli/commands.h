// SPDX-License-Identifier: Apache-2.0
// One function per sub-command: it declares its options on `app` and sets what happens when chosen.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>

namespace rehearse::cli {

// Exit codes (docs/commands.md): the only place where they have numbers.
enum ExitCode : int {
  kDone = 0,
  kNo = 1,           // the answer is no: invalid schedule, does not fit, error beyond the bound
  kBadInput = 2,     // bad usage or bad input
  kRunFailed = 3,    // a rank died, timed out, device error
  kSignalled = 128,  // plus the signal that ended a run: 130 for Ctrl-C
};

// `exit_code` outlives the parse; a command's callback writes it.
using AddCommand = void (*)(CLI::App& app, int& exit_code);

void add_check(CLI::App& app, int& exit_code);
void add_schedule(CLI::App& app, int& exit_code);
void add_simulate(CLI::App& app, int& exit_code);
void add_search(CLI::App& app, int& exit_code);
void add_validate(CLI::App& app, int& exit_code);
void add_render(CLI::App& app, int& exit_code);
void add_export(CLI::App& app, int& exit_code);
void add_run(CLI::App& app, int& exit_code);
void add_view(CLI::App& app, int& exit_code);
void add_compare(CLI::App& app, int& exit_code);
void add_calibrate(CLI::App& app, int& exit_code);

// For ->check(): a number in [least, most]. CLI::Range lets "nan" pass.
CLI::Validator number_within(double least, double most);

// One line "rehearse: MESSAGE" on stderr.
void print_error(const std::string& message);
// Whether standard output takes colours: a terminal, without NO_COLOR (no-color.org).
bool takes_color();
// A command's answer, to standard output, at once. A write that fails (a full disk) is said in one
// line; main then exits 3, whatever the answer was.
void print_text(std::string_view text);
// Whether the name `path` given to `flag`, which writes `ending` (".svg"), ends as another kind of
// file; false after printing the error.
bool ends_as(const std::string& path, std::string_view flag, std::string_view ending);
// Writes by atomic rename; false after printing the error.
bool write_file(const std::string& path, const std::string& content);

}  // namespace rehearse::cli
