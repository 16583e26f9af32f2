// SPDX-License-Identifier: Apache-2.0
#include "schedules/config_files/python_value.h"

#include <algorithm>
#include <optional>

#include "schedules/base/json_reader.h"
#include "schedules/config_files/python_text.h"
#include "schedules/config_files/shell/shell_arithmetic.h"
#include "schedules/frameworks/formula.h"

namespace rehearse {
namespace {

constexpr std::size_t kMostFlags = 10'000;

std::string number_text(std::string_view number) {
  std::string made(number);
  std::erase(made, '_');
  return made;
}

}  // namespace

PythonValue::PythonValue(std::string_view text, std::string file, std::int32_t line,
                         const PythonNames& names, std::vector<Setting>& flags, int depth)
    : text_(text),
      file_(std::move(file)),
      line_(line),
      names_(names),
      flags_(flags),
      depth_(depth) {}

void PythonValue::take(const std::string& name) {
  take(name, depth_);
}

bool PythonValue::scalar(std::string_view word, std::string& to) const {
  const bool quoted = word.size() >= 2 && (word.front() == '"' || word.front() == '\'') &&
                      word.find(word.front(), 1) == word.size() - 1;
  if (quoted) {
    to = std::string(word.substr(1, word.size() - 2));
    return true;
  }
  if (word == "True" || word == "False") {
    to = word == "True" ? "true" : "false";
    return true;
  }
  to = std::string(word);
  if (number_of(word)) return true;
  if (word.find_first_not_of("0123456789_ +-*()") == std::string_view::npos) {
    const auto no_names = [](const std::string&) { return std::string(); };
    const std::optional<std::int64_t> value = shell_arithmetic(number_text(word), no_names);
    if (value) to = std::to_string(*value);
    return value.has_value();
  }
  if (const auto given = names_.values.find(to); given != names_.values.end()) {
    to = given->second;
    return true;
  }
  if (names_.imported.contains(to)) return true;
  const bool one = std::ranges::all_of(word, is_python_word);
  return one && names_.modules.contains(to.substr(0, to.find('.'))) &&
         to.find('.') != std::string::npos;
}

void PythonValue::skip() {
  while (at_ < text_.size() && text_[at_] == ' ') ++at_;
}

bool PythonValue::at(char c) {
  skip();
  return at_ < text_.size() && text_[at_] == c;
}

// Up to a comma or a closing bracket that belongs to nobody inside.
std::string_view PythonValue::whole() {
  skip();
  const std::size_t first = at_;
  int depth = 0;
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c == '\'' || c == '"') {
      const std::size_t end = text_.find(c, at_ + 1);
      at_ = end == std::string_view::npos ? text_.size() : end + 1;
      continue;
    }
    if (depth == 0 && (c == ',' || c == ')' || c == ']' || c == '}')) break;
    depth += c == '(' || c == '[' || c == '{' ? 1 : c == ')' || c == ']' || c == '}' ? -1 : 0;
    ++at_;
  }
  std::size_t end = at_;
  while (end > first && text_[end - 1] == ' ') --end;
  return text_.substr(first, end - first);
}

Setting& PythonValue::add(const std::string& name) {
  flags_.push_back({.flag = name, .values = {}, .file = file_, .line = line_});
  return flags_.back();
}

void PythonValue::take(const std::string& name, int depth) {
  skip();
  if (depth > kDeepestPythonCall || flags_.size() > kMostFlags) return;
  if (at('[') || (at('(') && !name.empty())) {
    const char close = text_[at_] == '[' ? ']' : ')';
    ++at_;
    Setting list{.flag = name, .values = {}, .file = file_, .line = line_};
    while (at_ < text_.size() && !at(close)) {
      std::string item;
      const std::string_view word = whole();
      if (!scalar(word, item) && list.unknown.empty()) list.unknown = item;
      list.values.push_back(std::move(item));
      if (at(','))
        ++at_;
      else if (!at(close))
        break;
    }
    if (at_ < text_.size()) ++at_;
    flags_.push_back(std::move(list));
    return;
  }
  const std::size_t first = at_;
  std::size_t end = first;
  while (end < text_.size() && is_python_word(text_[end])) ++end;
  if (end > first && end < text_.size() && text_[end] == '(' && keywords(end)) {
    at_ = end + 1;
    while (at_ < text_.size() && !at(')')) {
      const std::size_t equals = keyword();
      if (equals == std::string_view::npos) {
        const std::string_view word = whole();
        const bool text = word.starts_with('"') || word.starts_with('\'');
        if (text && !name.empty()) {  // load("x", key=value): load("x")
          add(name).values.push_back(std::string(text_.substr(first, end - first)) + "(" +
                                     std::string(word) + ")");
        }
      } else {
        const std::string key(text_.substr(at_, equals - at_));
        at_ = equals + 1;
        take(name.empty() ? key : name + "." + key, depth + 1);
      }
      if (at(','))
        ++at_;
      else if (!at(')'))
        break;
    }
    if (at_ < text_.size()) ++at_;
    return;
  }
  const std::string_view word = whole();
  const auto expression = names_.expressions.find(std::string(word));
  if (expression != names_.expressions.end()) {
    if (!expression->second.empty()) {
      PythonValue(expression->second, file_, line_, names_, flags_, depth + 1).take(name);
    }
    return;
  }
  if (name.empty()) return;
  Setting& flag = add(name);
  std::string text;
  const bool known = scalar(word, text);
  const bool quoted = word.starts_with('"') || word.starts_with('\'');
  if (word == kPythonNone || (text == kPythonNone && !quoted)) {
    flag.null = true;
    return;
  }
  if (!known) flag.unknown = word.find('(') == std::string_view::npos ? text : "";
  if (!known) put_in_argument(text);
  flag.values.push_back(std::move(text));
}

// load(NAME) with the text that NAME stands for: load("x").
void PythonValue::put_in_argument(std::string& call) const {
  const std::size_t open = call.find('(');
  if (open == std::string::npos) return;
  std::size_t end = open + 1;
  while (end < call.size() && is_python_word(call[end])) ++end;
  const auto given = names_.values.find(call.substr(open + 1, end - open - 1));
  if (given == names_.values.end() || (end < call.size() && call[end] != ')' && call[end] != ',')) {
    return;
  }
  call.replace(open + 1, end - open - 1, "\"" + given->second + "\"");
}

// Whether an argument of a call is KEY=VALUE.
bool PythonValue::keywords(std::size_t open) {
  const std::size_t before = at_;
  at_ = open + 1;
  bool found = false;
  while (!found && at_ < text_.size() && !at(')')) {
    found = keyword() != std::string_view::npos;
    whole();
    if (!at(',')) break;
    ++at_;
  }
  at_ = before;
  return found;
}

// The = of KEY=VALUE that begins here; npos: none does.
std::size_t PythonValue::keyword() {
  skip();
  std::size_t end = at_;
  while (end < text_.size() && (is_python_word(text_[end]) && text_[end] != '.')) ++end;
  const bool one =
      end > at_ && end + 1 < text_.size() && text_[end] == '=' && text_[end + 1] != '=';
  return one ? end : std::string_view::npos;
}

}  // namespace rehearse
