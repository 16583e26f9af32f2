// SPDX-License-Identifier: Apache-2.0
// The command line: a table of sub-commands. Each is one file, cli/NAME.cc.
#include <fmt/format.h>
#include <malloc.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <sstream>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "exec/cuda/cuda_module.h"
#include "exec/messages/gloo_communicator.h"
#include "schedules/base/json_reader.h"
#include "schedules/base/whole_file.h"
#include "viz/window/window.h"

namespace rehearse::cli {

CLI::Validator number_within(double least, double most) {
  const std::string range = fmt::format("from {} to {}", least, most);
  const auto check = [=](const std::string& text) -> std::string {
    double number = 0;
    const bool within =
        CLI::detail::lexical_cast(text, number) && number >= least && number <= most;
    return within ? "" : "must be a number " + range + ", not " + text;
  };
  return CLI::Validator(check, range, "");
}

void print_error(const std::string& message) {
  std::string line = message;  // names and library texts may hold anything
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  std::fprintf(stderr, "rehearse: %s\n", line.c_str());
}

bool takes_color() {
  const char* no_color = std::getenv("NO_COLOR");
  return isatty(STDOUT_FILENO) != 0 && (no_color == nullptr || *no_color == '\0');
}

void print_text(std::string_view text) {
  const bool failed_before = std::ferror(stdout) != 0;
  errno = 0;
  const bool written =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (written || failed_before) return;
  print_error(std::string("standard output: cannot write: ") + std::strerror(errno));
}

bool ends_as(const std::string& path, std::string_view flag, std::string_view ending) {
  constexpr std::array<std::string_view, 9> kKinds{".svg",  ".png", ".json", ".csv", ".html",
                                                   ".jpeg", ".jpg", ".pdf",  ".txt"};
  for (const std::string_view kind : kKinds) {
    if (kind == ending || !path.ends_with(kind)) continue;
    print_error(fmt::format("{}: {}: it writes {}, not {}: name a file that ends in {}", flag, path,
                            ending.substr(1), kind.substr(1), ending));
    return false;
  }
  return true;
}

bool write_file(const std::string& path, const std::string& content) {
  const Result<> written = write_whole(path, content);
  if (written) return true;
  print_error(written.error().message);
  return false;
}

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

constexpr std::array kCommands{
    add_check,  add_schedule, add_simulate, add_search,  add_validate,  add_render,
    add_export, add_run,      add_view,     add_compare, add_calibrate,
};

std::string no_such_command(const CLI::App& app, const std::string& word) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  const std::vector<std::string_view> known(names.begin(), names.end());
  const std::string_view best = nearest(word, known);
  const bool near = 2 * edit_distance(word.substr(0, 64), best) <=
                    static_cast<std::int32_t>(std::max(word.size(), best.size()));
  return word + ": no such command; " +
         (near ? "the nearest is " + std::string(best) + "; " : std::string()) +
         "rehearse --help lists them";
}

int run(int argc, char** argv) {
  CLI::App app{"One schedule, two performances: predict a training step, then run it.", "rehearse"};
  app.set_version_flag("--version", version_text());
  app.require_subcommand(1);
  int exit_code = kDone;
  for (const AddCommand add : kCommands) add(app, exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {  // CLI11 reports by exception: it ends here
    if (error.get_exit_code() == 0) {       // --help, --version
      std::ostringstream text;
      const int code = app.exit(error, text, text);
      print_text(text.str());
      return code;
    }
    print_error(!app.get_subcommands().empty() ? error.what()
                : argc < 2                     ? "no command; rehearse --help lists them"
                                               : no_such_command(app, argv[1]));
    return kBadInput;
  }
  return exit_code;
}

}  // namespace
}  // namespace rehearse::cli

int main(int argc, char** argv) {
  // Schedules are large arrays that come and go: without this glibc hands each back to the system
  // and a third of the time goes into clearing fresh pages.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  try {
    const int code = rehearse::cli::run(argc, argv);
    return std::ferror(stdout) == 0 ? code : rehearse::cli::kRunFailed;
  } catch (const std::bad_alloc&) {
    std::fputs("rehearse: not enough memory on this machine\n", stderr);
  } catch (const std::exception& error) {  // ours are Results: this is a fault of rehearse
    std::fprintf(stderr, "rehearse: internal error: %s\n", error.what());
  }
  return rehearse::cli::kRunFailed;
}
