// SPDX-License-Identifier: Apache-2.0
#include "schedules/config_files/document_flags.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "schedules/frameworks/formula.h"

namespace rehearse {
namespace {

bool is_scalar(const JsonValue& value) {
  return !value.is(JsonKind::Object) && !value.is(JsonKind::Array);
}

void walk(const JsonValue& value, const std::string& name, const std::string& file,
          std::vector<Setting>& flags) {
  if (value.is(JsonKind::Object)) {  // an empty one says nothing
    for (const JsonMember& member : value.members) {
      walk(member.value, name.empty() ? member.key : name + "." + member.key, file, flags);
    }
    return;
  }
  if (value.is(JsonKind::Array) && !std::ranges::all_of(value.items, is_scalar)) {
    for (std::size_t i = 0; i < value.items.size(); ++i) {
      walk(value.items[i], name + "." + std::to_string(i), file, flags);
    }
    return;
  }
  Setting flag{.flag = name, .file = file, .line = value.line};
  if (value.is(JsonKind::Array)) {
    for (const JsonValue& item : value.items) flag.values.push_back(scalar_text(item));
  } else if (value.is(JsonKind::Null)) {
    flag.null = true;
  } else {
    flag.values.push_back(scalar_text(value));
  }
  flags.push_back(std::move(flag));
}

}  // namespace

std::string scalar_text(const JsonValue& value) {
  switch (value.kind) {
    case JsonKind::Bool:
      return json_bool(value.boolean);
    case JsonKind::Integer:
      return std::to_string(value.integer);
    case JsonKind::Number:
      return json_number(value.number);
    case JsonKind::String:
      return value.text;
    case JsonKind::Null:
    case JsonKind::Array:
    case JsonKind::Object:
      break;
  }
  return "null";
}

std::vector<Setting> flags_of_document(const JsonValue& document, const std::string& file) {
  std::vector<Setting> flags;
  walk(document, "", file, flags);
  return flags;
}

void keep_last(std::vector<Setting>& flags) {
  std::set<std::string_view> later;
  std::vector<bool> stays(flags.size());
  for (std::size_t i = flags.size(); i-- > 0;) stays[i] = later.insert(flags[i].flag).second;
  std::vector<Setting> kept;
  for (std::size_t i = 0; i < flags.size(); ++i) {
    if (stays[i]) kept.push_back(std::move(flags[i]));
  }
  flags = std::move(kept);
}

namespace {

constexpr int kMostSteps = 1000;  // of one value: references that go round end
constexpr std::size_t kLongestValue = 4096;

std::string trimmed(std::string_view text) {
  const std::size_t first = std::min(text.find_first_not_of(' '), text.size());
  text.remove_prefix(first);
  return std::string(text.substr(0, text.find_last_not_of(' ') + 1));
}

class Interpolations {
 public:
  Interpolations(const std::vector<Setting>& flags,
                 const std::map<std::string, std::string>& variables)
      : variables_(variables) {
    for (const Setting& flag : flags) {
      if (flag.values.size() == 1) values_[flag.flag] = flag.values[0];
    }
  }

  // The innermost first. False: `text` begins to hang on what `unknown` names.
  bool resolve(std::string& text, const std::string& flag, std::string& unknown) const {
    for (int step = 0; step < kMostSteps && text.size() < kLongestValue; ++step) {
      const std::size_t open = text.rfind("${");
      if (open == std::string::npos) return true;
      const std::size_t close = text.find('}', open);
      if (close == std::string::npos) break;
      const std::string inside = text.substr(open + 2, close - open - 2);
      const std::optional<std::string> value = of(inside, flag);
      unknown = inside;
      if (!value) return false;
      text.replace(open, close + 1 - open, *value);
    }
    unknown = text;
    return false;
  }

 private:
  std::optional<std::string> of(const std::string& inside, const std::string& flag) const {
    const std::size_t colon = inside.find(':');
    if (colon != std::string::npos)
      return called(inside.substr(0, colon), inside.substr(colon + 1));
    if (const auto given = variables_.find(inside); given != variables_.end()) return given->second;
    std::string name = inside, parent = flag;
    while (name.starts_with('.')) {  // ".key" stands beside, "..key" one level up
      name.erase(0, 1);
      const std::size_t dot = parent.rfind('.');
      parent = dot == std::string::npos ? "" : parent.substr(0, dot);
    }
    if (name.size() != inside.size() && !parent.empty()) name = parent + "." + name;
    const auto found = values_.find(name);
    return found == values_.end() ? std::nullopt : std::optional(found->second);
  }
  std::optional<std::string> called(const std::string& name, const std::string& arguments) const {
    const std::size_t comma = arguments.find(',');
    const std::string first = trimmed(arguments.substr(0, comma));
    const std::string second =
        comma == std::string::npos ? "" : trimmed(arguments.substr(comma + 1));
    if (name == "oc.env") {
      const auto given = variables_.find(first);
      if (given != variables_.end()) return given->second;
      return comma == std::string::npos ? std::nullopt : std::optional(second);
    }
    const std::optional<double> a = number_of(first), b = number_of(second);
    if (!a || !b) return {};
    if (name == "multiply") return number_value(*a * *b).dump();
    if (*b == 0) return {};
    if (name == "divide_ceil") return number_value(std::ceil(*a / *b)).dump();
    if (name == "divide_floor") return number_value(std::floor(*a / *b)).dump();
    return {};
  }

  std::map<std::string, std::string> values_;
  const std::map<std::string, std::string>& variables_;
};

}  // namespace

void resolve_interpolations(std::vector<Setting>& flags,
                            const std::map<std::string, std::string>& variables) {
  const Interpolations known(flags, variables);
  for (Setting& flag : flags) {
    for (std::string& value : flag.values) {
      if (value.find("${") == std::string::npos) continue;
      std::string unknown;
      if (!known.resolve(value, flag.flag, unknown)) flag.unknown = unknown;
    }
  }
}

std::string plain_json(std::string_view text) {
  std::string made(text);
  const auto blank = [&](std::size_t from, std::size_t to) {
    for (std::size_t i = from; i < to; ++i) {
      if (made[i] != '\n') made[i] = ' ';
    }
  };
  std::size_t comma = std::string::npos;  // the last thing that counts, where it is a comma
  for (std::size_t at = 0; at < made.size();) {
    const char c = made[at];
    const bool line = c == '#' || made.compare(at, 2, "//") == 0;
    if (c == '"') {
      comma = std::string::npos;
      for (++at; at < made.size() && made[at] != '"'; ++at) {
        if (made[at] == '\\') ++at;
      }
      ++at;
    } else if (line || made.compare(at, 2, "/*") == 0) {
      const std::size_t end = line ? made.find('\n', at) : made.find("*/", at);
      const std::size_t behind = end == std::string::npos ? made.size() : end + (line ? 0 : 2);
      blank(at, behind);
      at = behind;
    } else {
      if ((c == '}' || c == ']') && comma != std::string::npos) made[comma] = ' ';
      if (c == ',')
        comma = at;
      else if (c != ' ' && c != '\n' && c != '\t' && c != '\r')
        comma = std::string::npos;
      ++at;
    }
  }
  return made;
}

}  // namespace rehearse
