// SPDX-License-Identifier: Apache-2.0
#include "cli/completion.h"

#include <fmt/format.h>

#include "cli/commands.h"
#include "schedules/base/files.h"
#include "sim/search/space/framework.h"

namespace rehearse::cli {
namespace {

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

bool is_positional(const Option& option) {
  return !option.name.starts_with('-');
}

// "-o,--output" -> "-o", "--output"
std::vector<std::string> spellings(const Option& option) {
  std::vector<std::string> names;
  for (std::size_t at = 0; at <= option.name.size();) {
    const std::size_t end = std::min(option.name.find(',', at), option.name.size());
    names.push_back(option.name.substr(at, end - at));
    at = end + 1;
  }
  return names;
}

bool takes_value(const Option& option) {
  return !std::holds_alternative<bool*>(option.to);
}

std::vector<std::string> frameworks() {
  std::vector<std::string> all;
  const Result<std::vector<sim::Framework>> shipped = sim::shipped_frameworks();
  if (!shipped) return all;
  for (const sim::Framework& framework : shipped.value()) all.push_back(framework.name);
  return all;
}

// Words that may stand where the option's value does; empty: a file, or anything.
std::vector<std::string> values(const Option& option) {
  if (const auto* words = std::get_if<Choices>(&option.takes)) return *words;
  if (option.name == "SCENARIO" || option.name == "--scenario") return shipped_names("");
  if (option.name == "--cluster" || option.name == "--on") return shipped_names("clusters");
  if (option.name == "CONFIG") return shipped_names("models");
  if (option.name == "--framework") return frameworks();
  if (option.name == "--for") {
    std::vector<std::string> all = frameworks();
    for (std::string& profile : shipped_names("runtimes")) all.push_back(std::move(profile));
    return all;
  }
  return {};
}

std::vector<std::string> flags(const Command& command) {
  std::vector<std::string> all{"--help"};
  for (const Option& option : command.options) {
    if (is_positional(option)) continue;
    for (std::string& name : spellings(option)) all.push_back(std::move(name));
  }
  return all;
}

std::vector<std::string> positional_values(const Command& command) {
  std::vector<std::string> all;
  for (const Option& option : command.options) {
    if (!is_positional(option)) continue;
    for (std::string& word : values(option)) all.push_back(std::move(word));
  }
  return all;
}

std::vector<std::string> names(const std::vector<Command>& commands) {
  std::vector<std::string> all{"--help", "--version"};
  for (const Command& command : commands) all.push_back(command.name);
  return all;
}

// The same function serves zsh, through its own bridge to bash's completions.
std::string bash(const std::vector<Command>& commands) {
  std::string text =
      "_rehearse() {\n"
      "  local cur=\"${COMP_WORDS[COMP_CWORD]}\" prev=\"${COMP_WORDS[COMP_CWORD-1]}\" words=\"\"\n"
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n";
  text += "    COMPREPLY=( $(compgen -W \"" + joined(names(commands)) + "\" -- \"$cur\") )\n";
  text += "    return\n  fi\n  case \"${COMP_WORDS[1]} $prev\" in\n";
  for (const Command& command : commands) {
    for (const Option& option : command.options) {
      if (is_positional(option) || !takes_value(option)) continue;
      const std::string words = joined(values(option));
      for (const std::string& flag : spellings(option)) {
        text += fmt::format(
            "    \"{} {}\") COMPREPLY=( $(compgen{} -W \"{}\" -- \"$cur\") ); return ;;\n",
            command.name, flag, std::holds_alternative<Choices>(option.takes) ? "" : " -f", words);
      }
    }
  }
  text += "  esac\n  case \"${COMP_WORDS[1]}\" in\n";
  for (const Command& command : commands) {
    text += fmt::format("    {}) case \"$cur\" in -*) words=\"{}\" ;; *) words=\"{}\" ;; esac ;;\n",
                        command.name, joined(flags(command)), joined(positional_values(command)));
  }
  return text +
         "  esac\n"
         "  COMPREPLY=( $(compgen -f -W \"$words\" -- \"$cur\") )\n"
         "}\n"
         "complete -o filenames -F _rehearse rehearse\n";
}

std::string fish_quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text)
    quoted += c == '\'' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  return quoted + "'";
}

std::string fish(const std::vector<Command>& commands) {
  std::string text;
  for (const Command& command : commands) {
    text += fmt::format("complete -c rehearse -n __fish_use_subcommand -f -a {} -d {}\n",
                        command.name, fish_quoted(command.help));
    const std::string inside = fish_quoted("__fish_seen_subcommand_from " + command.name);
    for (const Option& option : command.options) {
      if (is_positional(option)) {
        const auto words = values(option);
        if (words.empty()) continue;
        text +=
            fmt::format("complete -c rehearse -n {} -a {}\n", inside, fish_quoted(joined(words)));
        continue;
      }
      text += fmt::format("complete -c rehearse -n {}", inside);
      for (const std::string& flag : spellings(option)) {
        text += flag.starts_with("--") ? " -l " + flag.substr(2) : " -s " + flag.substr(1);
      }
      if (takes_value(option)) text += " -r";
      const auto words = values(option);
      if (!words.empty()) text += " -a " + fish_quoted(joined(words));
      text += " -d " + fish_quoted(option.help) + "\n";
    }
  }
  return text;
}

std::string roff(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    if (c == '-') {
      safe += "\\-";
    } else if (c == '\\') {
      safe += "\\e";
    } else {
      safe += c;
    }
  }
  return safe.starts_with('.') || safe.starts_with('\'') ? "\\&" + safe : safe;
}

}  // namespace

std::string completion_script(Shell shell, const std::vector<Command>& commands) {
  switch (shell) {
    case Shell::Bash:
      return bash(commands);
    case Shell::Zsh:
      return "#compdef rehearse\nautoload -Uz bashcompinit && bashcompinit\n" + bash(commands);
    case Shell::Fish:
      break;
  }
  return fish(commands);
}

std::string man_page(const std::vector<Command>& commands, const std::string& version) {
  std::string text = ".TH REHEARSE 1 \"\" \"rehearse " + roff(version) + "\"\n.SH NAME\n";
  text +=
      "rehearse \\- one schedule, two performances: predict a training step, then run it\n"
      ".SH SYNOPSIS\n.B rehearse\n.I COMMAND\n[\\fIarguments\\fR]\n.SH COMMANDS\n";
  for (const Command& command : commands) {
    std::string arguments;
    for (const Option& option : command.options) {
      if (is_positional(option)) arguments += " " + option.name;
    }
    text += ".SS rehearse " + roff(command.name + arguments) + "\n" + roff(command.help) + "\n";
    for (const Option& option : command.options) {
      text += ".TP\n\\fB" + roff(option.name) + "\\fR";
      if (const auto* words = std::get_if<Choices>(&option.takes)) {
        text += " " + roff(joined(*words));
      } else if (takes_value(option) && !is_positional(option)) {
        text += " \\fIVALUE\\fR";
      }
      text += "\n" + roff(option.help) + "\n";
    }
    if (!command.footer.empty()) text += ".PP\n" + roff(command.footer) + "\n";
  }
  text +=
      ".SH EXIT STATUS\n0: done; 1: the answer is no; 2: bad usage or input; 3: a run failed, or "
      "the "
      "answer could not be written; 130, 143, 129: stopped by a signal.\n";
  return text;
}

}  // namespace rehearse::cli
