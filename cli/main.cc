// SPDX-License-Identifier: Apache-2.0
// The command line: a table of sub-commands. Each is one file, cli/NAME.cc.
#include <fmt/format.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>

#include "cli/commands.h"
#include "exec/cuda/cuda_module.h"
#include "exec/messages/gloo_communicator.h"
#include "schedules/base/whole_file.h"
#include "viz/window/window.h"

namespace rehearse::cli {

namespace {

// Names of hundreds of characters are shown by their ends; a path by its file.
std::string with_short_words(const std::string& message) {
  constexpr std::size_t kLongest = 300, kBegin = 120, kEnd = 80;
  const auto whole_character = [&](std::size_t at) {  // of UTF-8
    while (at > 0 && (static_cast<unsigned char>(message[at]) & 0xC0) == 0x80) --at;
    return at;
  };
  std::string text;
  for (std::size_t i = 0; i < message.size();) {
    const std::size_t end = std::min(message.find(' ', i + 1), message.size());
    if (end - i <= kLongest) {
      text.append(message, i, end - i);
    } else {
      text.append(message, i, whole_character(i + kBegin) - i).append("...");
      const std::size_t rest = whole_character(end - kEnd);
      text.append(message, rest, end - rest);
    }
    i = end;
  }
  return text;
}

}  // namespace

void print_error(const std::string& message) {
  std::string line = with_short_words(message);  // names and library texts may hold anything
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  std::fprintf(stderr, "rehearse: %s\n", line.c_str());
}

int fail(const std::string& message, int code) {
  print_error(message);
  return code;
}

int exit_code(const Error& error) {
  return error.infeasible ? kNo : error.machine ? kRunFailed : kBadInput;
}

int fail(const Error& error) {
  return fail(error.message, exit_code(error));
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

int write_file(const std::string& path, const std::string& content) {
  const Result<> written = write_whole(path, content);
  return written ? kDone : fail(written.error());
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

// What ends a command that something was thrown in: one line, and its exit code. Ours are Results,
// so what else is thrown is a fault of rehearse.
int thrown() {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    std::fputs("rehearse: not enough memory on this machine\n", stderr);
  } catch (const std::length_error&) {  // a list longer than memory can be
    std::fputs("rehearse: not enough memory on this machine\n", stderr);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rehearse: internal error: %s\n", error.what());
  } catch (...) {
    std::fputs("rehearse: internal error\n", stderr);
  }
  return kRunFailed;
}

// In a thread that nobody waits for what it throws.
[[noreturn]] void end_thrown() {
  std::_Exit(std::current_exception() ? thrown() : kRunFailed);
}

int run(int argc, char** argv) {
  std::vector<Command> commands{plan_command(),     check_command(),   schedule_command(),
                                simulate_command(), search_command(),  validate_command(),
                                render_command(),   export_command(),  run_command(),
                                view_command(),     compare_command(), calibrate_command(),
                                list_command(),     groups_command()};
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
