// One function per sub-command: it declares its options on `app` and sets what happens when chosen.
#pragma once

#include <CLI/CLI.hpp>

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
// Writes by atomic rename; false after printing the error.
bool write_file(const std::string& path, const std::string& content);

}  // namespace rehearse::cli
