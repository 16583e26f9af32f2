// SPDX-License-Identifier: Apache-2.0
#include "schedules/config_files/edited_file.h"

#include "schedules/config_files/shell/shell_script.h"

namespace rehearse {
namespace {

constexpr std::size_t kLongestEdited = 1 << 20;  // [B]

// Up to the separator, which a backslash before it makes a letter; nothing: there is none.
std::optional<std::string> up_to(std::string_view& rest, char separator) {
  std::string part;
  for (std::size_t at = 0; at < rest.size(); ++at) {
    if (rest[at] == separator) {
      rest.remove_prefix(at + 1);
      return part;
    }
    const bool escapes = rest[at] == '\\' && at + 1 < rest.size();
    if (escapes && rest[at + 1] == separator) ++at;
    part += rest[at];
  }
  return {};
}

std::string replaced(std::string_view text, const TextEdit& edit) {
  std::string made;
  bool here = false;  // in this line
  for (std::size_t at = 0; at < text.size();) {
    const bool found = text.substr(at, edit.from.size()) == edit.from;
    if (found && (edit.everywhere || !here)) {
      made += edit.to;
      at += edit.from.size();
      here = true;
      continue;
    }
    if (text[at] == '\n') here = false;
    made += text[at++];
  }
  return made;
}

}  // namespace

std::optional<TextEdit> text_edit(std::string_view command) {
  if (command.size() < 2 || command[0] != 's') return {};
  const char separator = command[1];
  command.remove_prefix(2);
  const std::optional<std::string> from = up_to(command, separator);
  const std::optional<std::string> to = from ? up_to(command, separator) : std::nullopt;
  const bool pattern = !from || from->empty() ||
                       from->find_first_of("*[]^$\\") != std::string::npos ||
                       !unknown_in(*from).empty();
  const bool plain = to && to->find_first_of("&\\") == std::string::npos;
  if (pattern || !plain || (!command.empty() && command != "g")) return {};
  return TextEdit{.from = *from, .to = *to, .everywhere = command == "g"};
}

Result<std::string> edited(std::string_view text, const std::vector<TextEdit>& edits) {
  std::string made(text);
  for (const TextEdit& edit : edits) {
    if (made.find(edit.from) == std::string::npos) continue;
    if (const std::string name = unknown_in(edit.to); !name.empty()) {
      return Error{edit.from + " becomes $" + name + ", which only a run knows: --var " + name +
                   "=VALUE"};
    }
    made = replaced(made, edit);
    if (made.size() > kLongestEdited) return Error{"more than 1 MiB after " + edit.from};
  }
  return made;
}

}  // namespace rehearse
