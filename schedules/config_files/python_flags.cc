// SPDX-License-Identifier: Apache-2.0
#include "schedules/config_files/python_flags.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <set>
#include <vector>

#include "schedules/base/json_reader.h"
#include "schedules/config_files/shell_arithmetic.h"
#include "schedules/frameworks/formula.h"

namespace rehearse {
namespace {

constexpr int kDeepestCall = 64;
constexpr std::size_t kMostFlags = 10'000, kMostStatements = 100'000;  // read again at every call

constexpr std::string_view kPythonNone = "None";

std::string without_underscores(std::string_view number) {
  std::string made(number);
  std::erase(made, '_');
  return made;
}

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

// What names stand for where a statement is read: what --var gives, constants of the file, arguments
// of the function (`values`); right sides of its own assignments, as they are written
// (`expressions`); modules that the file imports, whose names are taken as they are written.
struct PythonNames {
  std::map<std::string, std::string> values, expressions;
  std::set<std::string> modules;
};

// The right side of a statement, flag by flag.
class Value {
 public:
  Value(std::string_view text, std::string file, std::int32_t line, const PythonNames& names,
        std::vector<Setting>& flags, int depth = 0)
      : text_(text),
        file_(std::move(file)),
        line_(line),
        names_(names),
        flags_(flags),
        depth_(depth) {}

  void take(const std::string& name) { take(name, depth_); }
  // Without brackets around it. False: it has to be computed.
  bool scalar(std::string_view word, std::string& to) const {
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
      const std::optional<std::int64_t> value = shell_arithmetic(without_underscores(word), no_names);
      if (value) to = std::to_string(*value);
      return value.has_value();
    }
    if (const auto given = names_.values.find(to); given != names_.values.end()) {
      to = given->second;
      return true;
    }
    const bool one = std::ranges::all_of(word, is_word);
    return one && names_.modules.contains(to.substr(0, to.find('.'))) &&
           to.find('.') != std::string::npos;
  }

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

  void take(const std::string& name, int depth) {
    skip();
    if (depth > kDeepestCall || flags_.size() > kMostFlags) return;
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
      Value(expression->second, file_, line_, names_, flags_, depth + 1).take(name);
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
    flag.values.push_back(std::move(text));
  }
  // Whether an argument of a call is KEY=VALUE.
  bool keywords(std::size_t open) {
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
  const PythonNames& names_;
  std::vector<Setting>& flags_;
  int depth_;
};

// A function of the file: "def NAME(ARGUMENTS):" and the statements under it.
struct PythonFunction {
  std::string name, arguments;
  std::size_t first = 0, last = 0;  // of the statements; last: behind it
};

// What stands in the brackets that open at `open`.
std::string_view inside_brackets(std::string_view text, std::size_t open) {
  int depth = 0;
  for (std::size_t at = open; at < text.size(); ++at) {
    const char c = text[at];
    depth += c == '(' || c == '[' || c == '{' ? 1 : c == ')' || c == ']' || c == '}' ? -1 : 0;
    if (depth == 0) return text.substr(open + 1, at - open - 1);
  }
  return text.substr(std::min(open + 1, text.size()));
}

// "a: int = 1, b=(2, 3)" at its commas.
std::vector<std::string_view> parts_of(std::string_view text) {
  std::vector<std::string_view> made;
  int depth = 0;
  std::size_t first = 0;
  const auto take = [&](std::size_t end) {
    std::string_view part = text.substr(first, end - first);
    while (part.starts_with(' ')) part.remove_prefix(1);
    while (part.ends_with(' ')) part.remove_suffix(1);
    if (!part.empty()) made.push_back(part);
    first = end + 1;
  };
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '"' || c == '\'') {
      const std::size_t end = text.find(c, at + 1);
      at = end == std::string_view::npos ? text.size() : end;
      continue;
    }
    depth += c == '(' || c == '[' || c == '{' ? 1 : c == ')' || c == ']' || c == '}' ? -1 : 0;
    if (c == ',' && depth == 0) take(at);
  }
  if (first < text.size()) take(text.size());
  return made;
}

// "NAME = RIGHT", "NAME: TYPE = RIGHT"; an empty name: another statement.
struct Assignment {
  std::string_view name, right;
};
Assignment assignment_of(std::string_view row) {
  std::size_t end = 0;
  while (end < row.size() && is_word(row[end])) ++end;
  std::size_t equals = end;
  while (equals < row.size() && row[equals] == ' ') ++equals;
  if (equals < row.size() && row[equals] == ':') equals = row.find('=', equals);
  const bool one = end > 0 && equals != std::string_view::npos && equals + 1 < row.size() &&
                   row[equals] == '=' && row[equals + 1] != '=';
  if (!one) return {};
  std::string_view right = row.substr(equals + 1);
  while (right.starts_with(' ')) right.remove_prefix(1);
  return {row.substr(0, end), right};
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

// Reads one function of a file, and those of the file that it calls.
class Recipe {
 public:
  Recipe(std::string_view text, const std::string& file,
         const std::map<std::string, std::string>& variables)
      : file_(file), statements_(statements_of(text)) {
    given_.insert(variables.begin(), variables.end());
    for (std::size_t i = 0; i < statements_.size(); ++i) {
      const Statement& statement = statements_[i];
      if (statement.indent > 0) continue;
      std::string_view row = statement.text;
      if (row.starts_with("def ")) {
        const std::size_t open = std::min(row.find('('), row.size());
        functions_.push_back({.name = std::string(row.substr(4, open - 4)),
                              .arguments = std::string(inside_brackets(row, open)),
                              .first = i + 1,
                              .last = end_of_block(i)});
      }
      if (row.starts_with("import ")) {
        const std::string_view module = row.substr(7);
        names_.modules.emplace(module.substr(0, module.find_first_of(" .,")));
      }
    }
    names_.values = variables;
    for (const Statement& statement : statements_) {  // constants of the file
      const Assignment one = assignment_of(statement.text);
      if (statement.indent > 0 || one.name.empty() || functions_.empty()) continue;
      std::vector<Setting> none;
      std::string value;
      if (Value("", file_, statement.line, names_, none).scalar(one.right, value)) {
        names_.values.emplace(one.name, value);
      }
    }
  }

  std::vector<std::string_view> names() const {
    std::vector<std::string_view> made;
    for (const PythonFunction& function : functions_) made.push_back(function.name);
    return made;
  }

  // Of the function, or of statements that stand in none.
  Settings read(const std::string& name) {
    if (const PythonFunction* function = find(name))
      call(*function, "", 0);
    else
      block(0, statements_.size(), names_, 0);
    return std::move(made_);
  }

 private:
  const PythonFunction* find(std::string_view name) const {
    const auto found = std::ranges::find(functions_, name, &PythonFunction::name);
    return found == functions_.end() ? nullptr : &*found;
  }
  std::size_t end_of_block(std::size_t head) const {
    std::size_t end = head + 1;
    while (end < statements_.size() && statements_[end].indent > statements_[head].indent) ++end;
    return end;
  }
  void warn(const Statement& statement, const std::string& what) {
    if (made_.warnings.size() < 50) {
      made_.warnings.push_back(file_ + ":" + std::to_string(statement.line) + ": " + what +
                               statement.text.substr(0, 60));
    }
  }

  // The function with its defaults, and over them the arguments of the call.
  void call(const PythonFunction& function, std::string_view arguments, int depth,
            const PythonNames* caller = nullptr) {
    if (depth > kDeepestCall) return;
    PythonNames inner = names_;
    const auto bind = [&](std::string_view name, std::string_view right, const PythonNames& from) {
      std::vector<Setting> none;
      std::string value;
      if (right == kPythonNone)
        inner.values[std::string(name)] = std::string(kPythonNone);
      else if (Value("", file_, 0, from, none).scalar(right, value) && !given_.contains(name))
        inner.values[std::string(name)] = value;
    };
    std::vector<std::string_view> places;
    for (const std::string_view part : parts_of(function.arguments)) {
      const std::string_view name = part.substr(0, part.find_first_of(":= "));
      places.push_back(name);
      if (const Assignment one = assignment_of(part); !one.name.empty()) {
        bind(name, one.right, names_);
      }
    }
    std::size_t place = 0;
    for (const std::string_view part : parts_of(arguments)) {
      const Assignment one = assignment_of(part);
      const PythonNames& from = caller == nullptr ? names_ : *caller;
      if (!one.name.empty())
        bind(one.name, one.right, from);
      else if (place < places.size())
        bind(places[place++], part, from);
    }
    block(function.first, function.last, inner, depth);
  }

  // "NAME(ARGUMENTS)", NAME a function of the file, which is read. False: it is none.
  bool calls(std::string_view text, const PythonNames& names, int depth) {
    const std::size_t open = text.find('(');
    if (open == std::string_view::npos) return false;
    const PythonFunction* function = find(text.substr(0, open));
    const std::string_view arguments = inside_brackets(text, open);
    if (function == nullptr || open + arguments.size() + 2 != text.size()) return false;
    call(*function, arguments, depth + 1, &names);
    return true;
  }

  // A test on what is known: nothing, where it is another one.
  static std::optional<bool> decided(std::string_view test, const PythonNames& names) {
    const auto value = [&](std::string_view name) -> const std::string* {
      const auto found = names.values.find(std::string(name));
      return found == names.values.end() ? nullptr : &found->second;
    };
    const bool negated = test.starts_with("not ");
    if (negated) test.remove_prefix(4);
    constexpr std::string_view kIs = " is None", kIsNot = " is not None";
    bool truth = false;
    if (test.ends_with(kIsNot) || test.ends_with(kIs)) {
      const bool not_none = test.ends_with(kIsNot);
      test.remove_suffix(not_none ? kIsNot.size() : kIs.size());
      const std::string* one = value(test);
      if (one == nullptr) return {};
      truth = (*one == kPythonNone) != not_none;
    } else if (test == "True" || test == "False") {
      truth = test == "True";
    } else {
      const std::string* one = value(test);
      if (one == nullptr) return {};
      truth = *one != "false" && *one != kPythonNone && *one != "0" && !one->empty();
    }
    return truth != negated;
  }

  // Of if, elif and else: none of them runs yet, one did, or nobody knows.
  enum class Branches : std::uint8_t { Open, Taken, Unknown };

  // Whether it ended with a return.
  bool block(std::size_t first, std::size_t last, PythonNames& names, int depth) {
    Branches taken = Branches::Open;
    for (std::size_t i = first; i < last; ++i) {
      const Statement& statement = statements_[i];
      const std::string_view row = statement.text;
      const bool opens = row.ends_with(':');
      if (opens && !row.starts_with("with ")) {
        const std::size_t end = std::min(end_of_block(i), last);
        const bool otherwise = row == "else:", next = row.starts_with("elif ");
        if (row.starts_with("if ") || next) {
          if (!next) taken = Branches::Open;
          const std::string_view test = row.substr(next ? 5 : 3, row.size() - (next ? 6 : 4));
          const std::optional<bool> holds = decided(test, names);
          if (taken == Branches::Open && !holds) taken = Branches::Unknown;
          if (taken == Branches::Open && holds.value_or(false)) {
            if (block(i + 1, end, names, depth)) return true;
            taken = Branches::Taken;
          }
          if (taken == Branches::Unknown) warn(statement, "left out: ");
        } else if (otherwise && taken == Branches::Open) {
          if (block(i + 1, end, names, depth)) return true;
        } else if (!(otherwise && taken == Branches::Taken) && !row.starts_with("def ")) {
          warn(statement, "left out: ");
        }
        i = end - 1;
        continue;
      }
      if (++read_ > kMostStatements) return true;
      one(statement, names, depth);
      if (row.starts_with("return")) return true;
    }
    return false;
  }

  void one(const Statement& statement, PythonNames& names, int depth) {
    std::string_view row = statement.text;
    if (row.starts_with("return ")) {
      row.remove_prefix(7);
      if (!calls(row, names, depth))
        Value(row, file_, statement.line, names, made_.flags).take("");
      return;
    }
    if (calls(row, names, depth)) return;
    const Assignment given = assignment_of(row);
    const std::size_t dot = given.name.find('.');
    if (dot != std::string_view::npos) {
      const auto base = names.expressions.find(std::string(given.name.substr(0, dot)));
      if (base != names.expressions.end()) {
        warn(statement, "what " + base->second + " sets is not read, what follows is: ");
        names.expressions.erase(base);
      }
      Value(given.right, file_, statement.line, names, made_.flags)
          .take(std::string(given.name.substr(dot + 1)));
      return;
    }
    if (!given.name.empty()) {
      if (calls(given.right, names, depth)) return;
      std::string value;
      if (Value("", file_, statement.line, names, made_.flags).scalar(given.right, value))
        names.values[std::string(given.name)] = value;
      else if (given.right.find(given.name) == std::string_view::npos)
        names.expressions[std::string(given.name)] = std::string(given.right);
      return;
    }
    const bool plain = row.starts_with("\"") || row.starts_with("'") || row.starts_with("import ") ||
                       row.starts_with("from ") || row == "pass" || row.starts_with("with ");
    if (!plain) warn(statement, "not read: ");
  }

  std::string file_;
  std::vector<Statement> statements_;
  std::vector<PythonFunction> functions_;
  std::map<std::string, std::string, std::less<>> given_;
  PythonNames names_;
  Settings made_;
  std::size_t read_ = 0;  // statements
};

}  // namespace

Result<Settings> flags_of_python(std::string_view text, const std::string& file,
                                 const std::string& recipe,
                                 const std::map<std::string, std::string>& variables) {
  Recipe whole(text, file, variables);
  const std::vector<std::string_view> known = whole.names();
  std::string chosen = recipe;
  if (chosen.empty() && known.size() == 1) chosen = known.front();
  if (chosen.empty() && !known.empty()) {
    return Error{file + ": has " + std::to_string(known.size()) + " functions: --recipe " +
                 std::string(known.front()) + ", ..."};
  }
  if (!known.empty() && std::ranges::find(known, chosen) == known.end()) {
    return Error{file + ": no function " + json_excerpt(chosen) + what_is_known(chosen, known)};
  }
  const std::size_t stem = file.rfind('/') == std::string::npos ? 0 : file.rfind('/') + 1;
  if (chosen.empty()) chosen = file.substr(stem, file.rfind('.') - stem);  // statements alone
  Settings made = whole.read(chosen);
  if (made.flags.empty()) {
    return Error{file + ": nothing in it sets a value" +
                 (made.warnings.empty() ? "" : ", " + made.warnings.front())};
  }
  made.flags.insert(made.flags.begin(),
                    {.flag = "recipe", .values = {chosen}, .file = file, .line = 1});
  made.launch.gpus = gpus_in(chosen);
  return made;
}

}  // namespace rehearse
