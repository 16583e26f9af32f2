// SPDX-License-Identifier: Apache-2.0
#include "schedules/frameworks/emitted_files.h"

#include <algorithm>
#include <cctype>

#include "schedules/base/json_reader.h"

namespace rehearse {
namespace {

// A flag's value in a tree, as JSON, which YAML and TOML read alike but for null.
std::string scalar(const std::string& text) {
  if (text == "true" || text == "false" || number_of(text)) return text;
  return json_quoted(text);
}
std::string value_text(const Setting& setting) {
  if (setting.values.empty()) return "true";
  if (setting.values.size() == 1) return scalar(setting.values[0]);
  std::string text;
  for (const std::string& value : setting.values)
    text += (text.empty() ? "" : ", ") + scalar(value);
  return "[" + text + "]";
}

// Flags whose names begin with the same words stand together, in the order of the first.
struct Branch {
  std::string name;
  std::string value;  // of a leaf
  std::vector<Branch> branches;
};
void grow(std::vector<Branch>& branches, std::string_view path, const std::string& value) {
  const std::size_t dot = path.find('.');
  const std::string name(path.substr(0, dot));
  auto found = std::ranges::find(branches, name, &Branch::name);
  if (found == branches.end()) {
    branches.push_back({.name = name, .value = {}, .branches = {}});
    found = branches.end() - 1;
  }
  if (dot == std::string_view::npos)
    found->value = value;
  else
    grow(found->branches, path.substr(dot + 1), value);
}
std::vector<Branch> tree_of(const std::vector<Setting>& flags) {
  std::vector<Branch> tree;
  for (const Setting& flag : flags) grow(tree, flag.flag, value_text(flag));
  return tree;
}

std::string yaml(const std::vector<Branch>& tree, const std::string& indent) {
  std::string text;
  for (const Branch& one : tree) {
    text += indent + one.name + ":";
    text +=
        one.branches.empty() ? " " + one.value + "\n" : "\n" + yaml(one.branches, indent + "  ");
  }
  return text;
}
std::string json(const std::vector<Branch>& tree, const std::string& indent) {
  std::string text;
  for (const Branch& one : tree) {
    text += (text.empty() ? "\n" : ",\n") + indent + "  " + json_quoted(one.name) + ": ";
    text += one.branches.empty() ? one.value : json(one.branches, indent + "  ");
  }
  return "{" + text + "\n" + indent + "}";
}
// Leaves before tables, as TOML demands.
std::string toml(const std::vector<Branch>& tree, const std::string& path) {
  std::string text;
  for (const Branch& one : tree) {
    if (one.branches.empty()) text += one.name + " = " + one.value + "\n";
  }
  for (const Branch& one : tree) {
    if (one.branches.empty()) continue;
    const std::string table = path.empty() ? one.name : path + "." + one.name;
    text += (text.empty() ? "[" : "\n[") + table + "]\n" + toml(one.branches, table);
  }
  return text;
}

// One line a group, each but the last with a backslash.
std::string grouped(const std::vector<Setting>& flags, const std::vector<std::string>& groups) {
  std::vector<std::string> order;
  for (const std::string& group : groups) {
    if (std::ranges::find(order, group) == order.end()) order.push_back(group);
  }
  std::string text;
  for (const std::string& group : order) {
    text += "  ";
    for (std::size_t i = 0; i < flags.size(); ++i) {
      if (groups[i] == group) text += command_words(flags[i]) + " ";
    }
    text += "\\\n";
  }
  return text;
}

}  // namespace

std::string shell_quoted(std::string_view text) {
  const auto plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("-_./,:=+@%").find(c) != std::string_view::npos;
  };
  if (!text.empty() && std::ranges::all_of(text, plain)) return std::string(text);
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string command_words(const Setting& flag) {
  std::string text = (flag.flag.starts_with('-') ? "" : "--") + flag.flag;
  for (const std::string& value : flag.values) text += " " + shell_quoted(value);
  return text;
}

Result<std::string> emitted_text(
    const EmittedFile& file, const std::vector<Setting>& all,
    const std::vector<std::string>& groups_of_all,
    const std::vector<std::pair<std::string, std::string>>& environment, const Names& names) {
  std::vector<Setting> flags;
  std::vector<std::string> groups;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool here = file.groups.empty() ||
                      std::ranges::find(file.groups, groups_of_all[i]) != file.groups.end();
    if (!here) continue;
    flags.push_back(all[i]);
    groups.push_back(groups_of_all[i]);
  }
  if (file.shape == "yaml") return yaml(tree_of(flags), "");
  if (file.shape == "json") return json(tree_of(flags), "") + "\n";
  if (file.shape == "toml") return toml(tree_of(flags), "");
  std::string text;
  for (const Sentence& line : file.lines) {
    const Result<std::string> written = line.written(names);
    if (!written) return written;
    if (written.value() == "@flags") {
      text += grouped(flags, groups);
    } else if (written.value() == "@environment") {
      for (const auto& [name, value] : environment) {
        text += value.empty() ? "unset " + name + "\n"
                              : "export " + name + "=" + shell_quoted(value) + "\n";
      }
    } else {
      text += written.value() + "\n";
    }
  }
  return text;
}

}  // namespace rehearse
