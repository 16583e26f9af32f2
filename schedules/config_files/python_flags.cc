// SPDX-License-Identifier: Apache-2.0
#include "schedules/config_files/python_flags.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <vector>

#include "schedules/base/json_reader.h"
#include "schedules/frameworks/formula.h"

namespace rehearse {
namespace {

constexpr int kDeepestCall = 64;

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.';
}

// A statement on one line, its brackets closed and its comments gone.
struct Statement {
  std::string text;
  std::int32_t line = 0;
  std::size_t indent = 0;
};

std::vector<Statement> statements_of(std::string_view text) {
  std::vector<Statement> made;
  Statement current;
  bool begun = false;
  int depth = 0;
  std::int32_t line = 1;
  std::size_t indent = 0;
  const auto finish = [&] {
    while (!current.text.empty() && current.text.back() == ' ') current.text.pop_back();
    if (!current.text.empty()) made.push_back(current);
    current = {};
    begun = false;
    indent = 0;
  };
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (!begun && c == ' ') {
      ++indent;
      ++at;
    } else if (!begun && c == '\t') {
      indent += 8;
      ++at;
    } else if (c == '#') {
      at = std::min(text.find('\n', at), text.size());
    } else if (c == '\'' || c == '"') {
      if (!begun) current.line = line, current.indent = indent, begun = true;
      const std::string three(3, c);
      const bool block = text.substr(at, 3) == three;
      const std::size_t open = at;
      if (block) {
        const std::size_t end = text.find(three, at + 3);
        at = end == std::string_view::npos ? text.size() : end + 3;
      } else {
        for (++at; at < text.size() && text[at] != c && text[at] != '\n'; ++at) {
          if (text[at] == '\\') ++at;
        }
        at = std::min(at + 1, text.size());
      }
      const std::string_view word = text.substr(open, at - open);
      line += static_cast<std::int32_t>(std::ranges::count(word, '\n'));
      current.text += word;
    } else if (c == '\n') {
      ++line;
      ++at;
      if (depth == 0)
        finish();
      else
        current.text += ' ';
    } else if (c == '\\' && at + 1 < text.size() && text[at + 1] == '\n') {
      ++line;
      at += 2;
    } else {
      if (!begun && c != '\r') current.line = line, current.indent = indent, begun = true;
      depth += c == '(' || c == '[' || c == '{' ? 1 : c == ')' || c == ']' || c == '}' ? -1 : 0;
      depth = std::max(depth, 0);
      if (c != '\r') current.text += c;
      ++at;
    }
  }
  finish();
  return made;
}

// The right side of a statement, flag by flag.
class Value {
 public:
  Value(std::string_view text, std::string file, std::int32_t line,
        const std::map<std::string, std::string>& variables, std::vector<Setting>& flags)
      : text_(text), file_(std::move(file)), line_(line), variables_(variables), flags_(flags) {}

  void take(const std::string& name) { take(name, 0); }

 private:
  void skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool at(char c) {
    skip();
    return at_ < text_.size() && text_[at_] == c;
  }
  // Up to a comma or a closing bracket that belongs to nobody inside.
  std::string_view whole() {
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
  Setting& add(const std::string& name) {
    flags_.push_back({.flag = name, .values = {}, .file = file_, .line = line_});
    return flags_.back();
  }

  // A value without brackets around it. False: it has to be computed.
  bool scalar(std::string_view word, std::string& to) const {
    const bool quoted = word.size() >= 2 && (word.front() == '"' || word.front() == '\'') &&
                        word.back() == word.front();
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
    if (const auto given = variables_.find(to); given != variables_.end()) {
      to = given->second;
      return true;
    }
    return false;
  }

  void take(const std::string& name, int depth) {
    skip();
    if (depth > kDeepestCall) return;
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
    while (end < text_.size() && is_word(text_[end])) ++end;
    if (end > first && end < text_.size() && text_[end] == '(' && keywords(end)) {
      at_ = end + 1;
      while (at_ < text_.size() && !at(')')) {
        const std::size_t equals = keyword();
        if (equals == std::string_view::npos) {
          whole();
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
    if (name.empty()) return;
    Setting& flag = add(name);
    if (word == "None") {
      flag.null = true;
      return;
    }
    std::string text;
    if (!scalar(word, text)) flag.unknown = word.find('(') == std::string_view::npos ? text : "";
    flag.values.push_back(std::move(text));
  }
  // Whether a call's first argument is KEY=VALUE.
  bool keywords(std::size_t open) {
    const std::size_t before = at_;
    at_ = open + 1;
    const bool found = keyword() != std::string_view::npos;
    at_ = before;
    return found;
  }
  // The = of KEY=VALUE that begins here; npos: none does.
  std::size_t keyword() {
    skip();
    std::size_t end = at_;
    while (end < text_.size() && (is_word(text_[end]) && text_[end] != '.')) ++end;
    const bool one =
        end > at_ && end + 1 < text_.size() && text_[end] == '=' && text_[end + 1] != '=';
    return one ? end : std::string_view::npos;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::string file_;
  std::int32_t line_;
  const std::map<std::string, std::string>& variables_;
  std::vector<Setting>& flags_;
};

// "def NAME(": the name; empty: another statement.
std::string defined(const Statement& statement) {
  std::string_view text = statement.text;
  if (statement.indent > 0 || !text.starts_with("def ")) return "";
  text.remove_prefix(4);
  return std::string(text.substr(0, text.find('(')));
}

// "llama3_8b_pretrain_64gpu_h100": 64; 0: the name does not say.
std::int32_t gpus_in(std::string_view name) {
  for (std::size_t at = name.find("gpu"); at != std::string_view::npos;
       at = name.find("gpu", at + 1)) {
    std::size_t first = at;
    while (first > 0 && std::isdigit(static_cast<unsigned char>(name[first - 1])) != 0) --first;
    std::int32_t gpus = 0;
    std::from_chars(name.data() + first, name.data() + at, gpus);
    if (gpus > 0 && gpus <= 1 << 20) return gpus;
  }
  return 0;
}

}  // namespace

Result<Settings> flags_of_python(std::string_view text, const std::string& file,
                                 const std::string& recipe,
                                 const std::map<std::string, std::string>& variables) {
  const std::vector<Statement> all = statements_of(text);
  std::vector<std::string> names;
  for (const Statement& statement : all) {
    if (std::string name = defined(statement); !name.empty()) names.push_back(std::move(name));
  }
  const std::vector<std::string_view> known(names.begin(), names.end());
  std::string chosen = recipe;
  if (chosen.empty() && names.size() == 1) chosen = names.front();
  if (chosen.empty() && !names.empty()) {
    return Error{file + ": has " + std::to_string(names.size()) + " functions: --recipe " +
                 names.front() + ", ..."};
  }
  if (!names.empty() && std::ranges::find(names, chosen) == names.end()) {
    return Error{file + ": no function " + json_excerpt(chosen) + what_is_known(chosen, known)};
  }
  Settings made;
  const std::size_t stem = file.rfind('/') == std::string::npos ? 0 : file.rfind('/') + 1;
  if (chosen.empty()) chosen = file.substr(stem, file.rfind('.') - stem);  // statements alone
  made.flags.push_back({.flag = "recipe", .values = {chosen}, .file = file, .line = 1});
  made.launch.gpus = gpus_in(chosen);
  bool inside = names.empty();
  for (const Statement& statement : all) {
    if (const std::string name = defined(statement); !name.empty()) inside = name == chosen;
    if (!inside || (statement.indent == 0 && !names.empty())) continue;
    std::string_view row = statement.text;
    if (row.starts_with("return ")) {
      Value(row.substr(7), file, statement.line, variables, made.flags).take("");
      continue;
    }
    std::size_t end = 0;
    while (end < row.size() && is_word(row[end])) ++end;
    const std::size_t dot = row.find('.');
    std::size_t equals = end;
    while (equals < row.size() && row[equals] == ' ') ++equals;
    const bool assigns = equals + 1 < row.size() && row[equals] == '=' && row[equals + 1] != '=';
    if (!assigns || dot >= end) {
      const bool plain = row.starts_with("\"") || row.starts_with("'") || row.starts_with("def ") ||
                         row.starts_with("cfg = ") || row.starts_with("import ") ||
                         row.starts_with("from ") || row == "pass";
      if (!plain && made.warnings.size() < 50) {
        made.warnings.push_back(file + ":" + std::to_string(statement.line) +
                                ": not read: " + std::string(row.substr(0, 60)));
      }
      continue;
    }
    const std::string name(row.substr(dot + 1, end - dot - 1));
    Value(row.substr(equals + 1), file, statement.line, variables, made.flags).take(name);
  }
  return made;
}

}  // namespace rehearse
