// SPDX-License-Identifier: Apache-2.0
#include "cli/run/exchange_report.h"

#include <fmt/format.h>

#include <algorithm>

namespace rehearse::cli {

std::string exchanges_text(const std::vector<exec::HeldExchange>& held) {
  if (held.empty()) return {};
  std::string text =
      "who holds what, before and after: a letter for whose it was, a number for which part, "
      "\u03a3 "
      "for the sum\n";
  std::vector<std::string> names;
  for (const exec::HeldExchange& one : held) {
    if (std::ranges::find(names, one.name) == names.end()) names.push_back(one.name);
  }
  // As many columns as the longest has; a sigma is two bytes.
  const auto columns = [](const std::string& word) {
    return word.size() - static_cast<std::size_t>(std::ranges::count(word, '\xce'));
  };
  std::size_t width = 1;
  for (const exec::HeldExchange& one : held) width = std::max(width, columns(one.before));
  for (const std::string& name : names) {
    text += "  " + name + '\n';
    for (const exec::HeldExchange& one : held) {
      if (one.name != name) continue;
      const std::string before = one.before.empty() ? "." : one.before;
      text += fmt::format("    rank {:<3} {}{}  ->  {}\n", one.rank, before,
                          std::string(width - columns(before), ' '),
                          one.after.empty() ? "." : one.after);
    }
  }
  return text;
}

Json collectives_json(const std::vector<exec::CollectiveCount>& counts) {
  Json list = Json::array();
  for (const exec::CollectiveCount& one : counts) {
    const std::string op =
        one.kind == OpKind::Send ? "SEND_RECV" : std::string(traits(one.kind).name);
    list.push_back({{"group", traits(one.group).name},
                    {"op", op},
                    {"ranks", one.ranks},
                    {"count", one.count},
                    {"bytes", one.bytes}});
  }
  return list;
}

Json exchanges_json(const std::vector<exec::HeldExchange>& held) {
  Json list = Json::array();
  for (const exec::HeldExchange& one : held) {
    list.push_back(
        {{"op", one.name}, {"rank", one.rank}, {"before", one.before}, {"after", one.after}});
  }
  return list;
}

}  // namespace rehearse::cli
