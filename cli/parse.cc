// SPDX-License-Identifier: Apache-2.0
// The only file that includes CLI11, whose headers take longer to compile than any command.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <sstream>
#include <type_traits>

#include "cli/commands.h"
#include "cli/options.h"
#include "schedules/base/json_reader.h"

namespace rehearse::cli {
namespace {

// CLI::Range lets "nan" pass.
CLI::Validator number_within(const Number& number) {
  const std::string range = fmt::format("from {} to {}", number.least, number.most);
  const auto check = [=](const std::string& text) -> std::string {
    double value = 0;
    const bool within =
        CLI::detail::lexical_cast(text, value) && value >= number.least && value <= number.most;
    return within ? "" : "must be a number " + range + ", not " + text;
  };
  return CLI::Validator(check, range, "");
}

void add(CLI::App& command, const Option& option) {
  CLI::Option* added = std::visit(
      [&](auto* to) -> CLI::Option* {
        if constexpr (std::is_same_v<decltype(to), bool*>) {
          return command.add_flag(option.name, *to, option.help);
        } else {
          return command.add_option(option.name, *to, option.help);
        }
      },
      option.to);
  if (const auto* words = std::get_if<Choices>(&option.takes)) added->check(CLI::IsMember(*words));
  if (const auto* whole = std::get_if<Whole>(&option.takes)) {
    added->check(CLI::Range(whole->least, whole->most));
  }
  if (const auto* number = std::get_if<Number>(&option.takes)) added->check(number_within(*number));
  if (option.required) added->required();
  if (option.one_each) added->take_all()->allow_extra_args(false);
  if (option.shows_default) added->capture_default_str();
}

std::string no_such_command(const std::vector<Command>& commands, const std::string& word) {
  std::vector<std::string_view> known;
  for (const Command& command : commands) known.push_back(command.name);
  const std::string_view best = nearest(word, known);
  const bool near = 2 * edit_distance(word.substr(0, 64), best) <=
                    static_cast<std::int32_t>(std::max(word.size(), best.size()));
  return word + ": no such command; " +
         (near ? "the nearest is " + std::string(best) + "; " : std::string()) +
         "rehearse --help lists them";
}

// The first flag that the command does not have, with the nearest one that it has; empty: another
// thing is wrong.
std::string no_such_option(const Command& command, int argc, char** argv) {
  std::vector<std::string_view> known{"--help"};
  for (const Option& option : command.options) {
    const std::string_view names = option.name;
    for (std::size_t at = 0; at < names.size();) {
      const std::size_t end = std::min(names.find(',', at), names.size());
      if (names[at] == '-') known.push_back(names.substr(at, end - at));
      at = end + 1;
    }
  }
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i], flag = word.substr(0, word.find('='));
    if (flag == "--") break;
    if (!flag.starts_with("--") || std::ranges::find(known, flag) != known.end()) continue;
    const std::string_view best = nearest(flag, known);
    const bool near = 2 * edit_distance(flag.substr(0, 64), best) <=
                      static_cast<std::int32_t>(std::max(flag.size(), best.size()));
    return command.name + ": " + flag + ": no such option; " +
           (near ? "the nearest is " + std::string(best) + "; " : std::string()) + "rehearse " +
           command.name + " --help lists them";
  }
  return {};
}

const std::string* text_of(const Option& option) {
  const auto* target = std::get_if<std::string*>(&option.to);
  return target == nullptr || (*target)->empty() ? nullptr : *target;
}

// The first file that the command would write over one that it reads or writes too; empty: none.
std::string written_over(const Command& command) {
  for (const Option& one : command.options) {
    const std::string* path = text_of(one);
    if (!one.writes || path == nullptr) continue;
    for (const Option& other : command.options) {
      const std::string* also = text_of(other);
      if (&one == &other || also == nullptr) continue;
      std::error_code none;
      const bool same = *path == *also || (std::filesystem::is_regular_file(*path, none) &&
                                           std::filesystem::equivalent(*path, *also, none));
      if (!same || std::filesystem::is_character_file(*path, none)) continue;
      return command.name + ": " + one.name.substr(one.name.rfind(',') + 1) + " " + *path +
             ": would be written over " + other.name + " " + *also;
    }
  }
  return {};
}

// The option of a command that takes the words behind "--", which are somebody else's: a list.
constexpr std::string_view kRest = "--";

void take_rest(int& argc, char** argv, const std::vector<Command>& commands) {
  for (const Command& command : commands) {
    if (argc < 2 || command.name != argv[1]) continue;
    for (const Option& option : command.options) {
      auto* const* words = std::get_if<std::vector<std::string>*>(&option.to);
      if (option.name != kRest || words == nullptr) continue;
      char** const end = argv + argc;
      char** const dashes = std::find(argv, end, std::string_view(kRest));
      if (dashes == end) continue;
      (*words)->assign(dashes + 1, end);
      argc = static_cast<int>(dashes - argv);
    }
  }
}

}  // namespace

int perform(int argc, char** argv, const std::string& version,
            const std::vector<Command>& commands) {
  CLI::App app{"One schedule, two performances: predict a training step, then run it.", "rehearse"};
  app.set_version_flag("--version", version);
  app.require_subcommand(1);
  const bool names_one = argc > 1 && std::ranges::find(commands, std::string_view(argv[1]),
                                                       &Command::name) != commands.end();
  for (const Command& command : commands) {
    CLI::App* added = app.add_subcommand(command.name, command.help);
    if (names_one && command.name != argv[1]) continue;  // its options are not asked for
    for (const Option& option : command.options) {
      if (option.name != kRest) add(*added, option);
    }
    added->footer(command.footer);
  }
  take_rest(argc, argv, commands);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {  // CLI11 reports by exception: it ends here
    if (error.get_exit_code() == 0) {       // --help, --version
      std::ostringstream text;
      const int code = app.exit(error, text, text);
      print_text(text.str());
      return code;
    }
    if (!app.get_subcommands().empty()) {
      const std::string chosen = app.get_subcommands().front()->get_name();
      const Command& command = *std::ranges::find(commands, chosen, &Command::name);
      const std::string option = no_such_option(command, argc, argv);
      return fail(option.empty() ? chosen + ": " + error.what() : option);
    }
    return fail(argc < 2 ? "no command; rehearse --help lists them"
                         : no_such_command(commands, argv[1]));
  }
  const CLI::App* chosen = app.get_subcommands().front();
  Given given;
  for (const CLI::Option* option : chosen->get_options()) {
    if (option->count() > 0) given.push_back(option->get_name());
  }
  const Command& command = *std::ranges::find(commands, chosen->get_name(), &Command::name);
  if (const std::string over = written_over(command); !over.empty()) return fail(over);
  return command.perform(given);
}

}  // namespace rehearse::cli
