// SPDX-License-Identifier: Apache-2.0
// `plan` and `simulate` behind functions that a page's script calls, compiled to WebAssembly. The
// shipped files lie where the Debian package puts them (worker.js); the answer's bytes are those
// that the command prints.
//
// A question is asked of a fresh instance: what it leaves in memory, and where it was when it was
// ended, is dropped with it.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>
#include <typeinfo>
#include <vector>

#include "cli/commands.h"
#include "cli/words.h"
#include "schedules/base/installed/module.h"
#include "schedules/base/installed/own_folder.h"
#include "viz/picture/letters/letters.h"

#define PAGE_FUNCTION(name) extern "C" __attribute__((export_name(#name)))

namespace rehearse {

std::string own_folder() {
  return "/usr/bin";
}
std::string module_path(std::string_view) {
  return {};
}
Result<const void*> module_table(std::string_view, const char* missing) {
  return Error{.message = missing, .machine = true};
}
viz::Letters* viz::installed_letters() {  // those that are built in
  return nullptr;
}

namespace {

cli::Words words;
std::string command;  // the question's first word

// What --help says here: the parser's own text comes with an exception.
std::string help_of(const cli::Command& asked) {
  std::string text = asked.help + "\n\n";
  for (const cli::Option& option : asked.options) text += option.name + ": " + option.help + "\n";
  return text + "\n" + asked.footer + "\n";
}

}  // namespace
}  // namespace rehearse

using namespace rehearse;

// The parser says by an exception that usage is wrong, and nothing else throws: it is said in one
// line, and ends the question. (The compiler leaves handlers out: -fignore-exceptions.)
extern "C" void* __cxa_allocate_exception(std::size_t bytes) noexcept {
  return std::malloc(bytes);
}
extern "C" [[noreturn]] void __cxa_throw(void* thing, std::type_info*, void (*)(void*)) {
  std::_Exit(cli::fail(command + ": " + static_cast<std::exception*>(thing)->what()));
}

PAGE_FUNCTION(allocate) void* page_allocate(std::size_t bytes) {
  return std::malloc(bytes);
}

// `question`: the words of a command line, "rehearse" left out, each with a zero byte behind it.
// Returns the command's exit code; or does not return: then the instance calls proc_exit with it.
PAGE_FUNCTION(ask) std::int32_t page_ask(char* question, std::size_t bytes) {
  const cli::KeepWords keep(words);
  std::string name = "rehearse";
  std::vector<char*> argv{name.data()};
  for (char* at = question; at < question + bytes; at += std::char_traits<char>::length(at) + 1) {
    argv.push_back(at);
  }
  if (argv.size() > 1) command = argv[1];
  const std::vector<cli::Command> commands{cli::plan_command(), cli::simulate_command()};
  const auto asked = std::ranges::find(commands, command, &cli::Command::name);
  if (asked == commands.end()) {
    return cli::fail(command + ": not in this page, which answers plan and simulate");
  }
  if (std::ranges::find(argv, std::string_view("--help")) != argv.end()) {
    cli::print_text(help_of(*asked));
    return cli::kDone;
  }
  const int argc = static_cast<int>(argv.size());
  argv.push_back(nullptr);
  return cli::perform(argc, argv.data(), REHEARSE_VERSION, commands);
}

// What it has printed.
PAGE_FUNCTION(text) const char* page_text() {
  return words.text.data();
}
PAGE_FUNCTION(text_bytes) std::size_t page_text_bytes() {
  return words.text.size();
}
PAGE_FUNCTION(errors) const char* page_errors() {
  return words.errors.data();
}
PAGE_FUNCTION(errors_bytes) std::size_t page_errors_bytes() {
  return words.errors.size();
}
