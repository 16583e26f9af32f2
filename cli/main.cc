// The command line: a table of sub-commands. Each is one file, cli/NAME.cc.
#include <fmt/format.h>
#include <malloc.h>

#include <array>
#include <cstdio>
#include <exception>
#include <new>
#include <string>

#include "cli/commands.h"
#include "exec/cuda_module.h"
#include "exec/gloo_communicator.h"
#include "schedules/whole_file.h"
#include "viz/window.h"

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
  std::fprintf(stderr, "rehearse: %s\n", message.c_str());
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

int run(int argc, char** argv) {
  CLI::App app{"One schedule, two performances: predict a training step, then run it.", "rehearse"};
  app.set_version_flag("--version", version_text());
  app.require_subcommand(1);
  int exit_code = kDone;
  for (const AddCommand add : kCommands) add(app, exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {  // CLI11 reports by exception: it ends here
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    print_error(!app.get_subcommands().empty() ? error.what()
                : argc < 2
                    ? "no command; rehearse --help lists them"
                    : argv[1] + std::string(": no such command; rehearse --help lists them"));
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
    return rehearse::cli::run(argc, argv);
  } catch (const std::bad_alloc&) {
    std::fputs("rehearse: not enough memory on this machine\n", stderr);
  } catch (const std::exception& error) {  // ours are Results: this is a fault of rehearse
    std::fprintf(stderr, "rehearse: internal error: %s\n", error.what());
  }
  return rehearse::cli::kRunFailed;
}
