// SPDX-License-Identifier: Apache-2.0
#include "schedules/config_files/shell/shell_expansion.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>

#include "schedules/config_files/shell/shell_arithmetic.h"

namespace rehearse {
namespace {

constexpr char kMark = '\x01', kMarkEnd = '\x02';
constexpr std::size_t kMostExpanded = 1'000'000;  // [B] of a word
constexpr std::size_t kMostWords = 200'000;
constexpr int kDeepestExpansion = 64;

// One word, whatever stands for it.
std::string unknown_mark(std::string_view name) {
  std::string word(name);
  std::ranges::replace_if(
      word, [](char c) { return c == ' ' || c == '\t' || c == '\n'; }, '_');
  return kMark + word + kMarkEnd;
}
// What a command would print, and nothing else.
bool is_printed(std::string_view text) {
  return text.size() > 2 && text[0] == kMark && text[1] == '(' &&
         text.find(kMarkEnd) == text.size() - 1;
}
bool is_index(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}
std::string named_unknown(const std::string& text) {
  const std::string name = unknown_in(text);
  return name.empty() ? text.substr(0, 40) : name;
}

}  // namespace

// What is being made of one word: several, where an unquoted value has blanks.
struct ShellExpansion::Words {
  std::vector<ShellWord> done;
  std::string current;
  bool begun = false;  // quotes make even nothing a word
  std::int32_t line = 0;

  void flush() {
    if (begun) done.push_back({current, line});
    current.clear();
    begun = false;
  }
  std::string joined() const {
    std::string text;
    for (const ShellWord& word : done) text += (text.empty() ? "" : " ") + word.text;
    return text;
  }
};

ShellExpansion::ShellExpansion(const std::map<std::string, std::string>& given,
                               ShellProblem& problem)
    : given_(given), problem_(problem) {
  for (const auto& [name, value] : given) scalars_[name] = {value, 0};
}

std::vector<ShellWord> ShellExpansion::words(std::string_view raw, std::int32_t line) {
  return expanded(raw, line, 0).done;
}

void ShellExpansion::set_unless_set(std::string_view name, const std::string& value) {
  scalars_.try_emplace(std::string(name), ShellWord{value, 0});
}

void ShellExpansion::forget(const std::string& name) {
  scalars_.erase(name);
  arrays_.erase(name);
}

// Behind NAME: "[i]", "[@]".
void ShellExpansion::element(Words& words, const std::string& name, std::string_view rest,
                             bool count, bool quoted, std::int32_t line) {
  const std::size_t close = rest.find(']');
  const std::string_view index = rest.substr(1, close == std::string_view::npos ? 0 : close - 1);
  const auto array = arrays_.find(name);
  rest.remove_prefix(close == std::string_view::npos ? rest.size() : close + 1);
  if (index == "@" || index == "*") {
    if (array == arrays_.end()) {
      // A scalar is an array of one; one that nobody set is empty, as in a shell.
      if (scalars_.contains(name))
        put(words, scalar(name), quoted, line_of(name, line));
      else if (count)
        put(words, "0", quoted, line);
      return;
    }
    if (count) return put(words, std::to_string(array->second.size()), quoted, line);
    if (!rest.empty()) return put(words, unknown_mark(name), quoted, line);
    return put_array(words, array->second, quoted);
  }
  if (array == arrays_.end() || !is_index(index))
    return put(words, unknown_mark(name), quoted, line);
  std::size_t number = 0;
  std::from_chars(index.data(), index.data() + index.size(), number);
  return put(words, number < array->second.size() ? array->second[number].text : "", quoted, line);
}

std::string ShellExpansion::scalar(const std::string& name) const {
  if (const auto found = scalars_.find(name); found != scalars_.end()) return found->second.text;
  if (const auto found = arrays_.find(name); found != arrays_.end()) {
    return found->second.empty() ? std::string() : found->second.front().text;
  }
  if (is_index(name) || name == "@" || name == "*") return "";
  if (name == "#") return "0";
  if (name == "?") return "0";
  return unknown_mark(name);
}
std::int32_t ShellExpansion::line_of(const std::string& name, std::int32_t otherwise) const {
  const auto found = scalars_.find(name);
  return found == scalars_.end() || found->second.line == 0 ? otherwise : found->second.line;
}
// Positional parameters that nobody gave are empty: a default takes their place.
bool ShellExpansion::is_set(const std::string& name) const {
  return scalars_.contains(name) || arrays_.contains(name);
}

void ShellExpansion::put(Words& words, std::string_view text, bool quoted, std::int32_t line) {
  if (quoted) {
    words.current += text;
    words.begun = true;
    words.line = line;
  } else {
    for (const char c : text) {
      if (c == ' ' || c == '\t' || c == '\n') {
        words.flush();
        continue;
      }
      words.current += c;
      words.begun = true;
      words.line = line;
    }
  }
  if (words.current.size() > kMostExpanded)
    problem_.say(line, "a word of more than a million characters");
}
void ShellExpansion::put_array(Words& words, const std::vector<ShellWord>& items, bool quoted) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) words.flush();
    put(words, items[i].text, quoted, items[i].line);
  }
  if (words.done.size() > kMostWords) problem_.say(words.line, "more than 200000 words");
}

// "${...}" without its braces.
void ShellExpansion::parameter(Words& words, std::string_view inside, bool quoted,
                               std::int32_t line, int depth) {
  if (depth > kDeepestExpansion) return problem_.say(line, "expansions nested deeper than 64");
  const bool count = inside.size() > 1 && inside.front() == '#';
  if (count) inside.remove_prefix(1);
  std::size_t end = 0;
  if (!inside.empty() && std::string_view("@*#?$!").find(inside[0]) != std::string_view::npos)
    end = 1;
  while (end < inside.size() &&
         (std::isalnum(static_cast<unsigned char>(inside[end])) != 0 || inside[end] == '_')) {
    ++end;
  }
  const std::string name(inside.substr(0, end));
  std::string_view rest = inside.substr(end);
  if (rest.starts_with("[")) return element(words, name, rest, count, quoted, line);
  if (count || end == 0 || name == "!") return put(words, unknown_mark(name), quoted, line);
  const std::string value = scalar(name);
  if (rest.empty()) return put(words, value, quoted, line_of(name, line));
  const bool colon = rest.front() == ':';
  const std::string_view op = rest.substr(0, colon ? 2 : 1);
  const std::string_view word = rest.substr(op.size());
  const bool has = is_set(name) && (!colon || !value.empty());
  if (op == ":-" || op == "-" || op == ":=" || op == "=") {
    if (has) return put(words, value, quoted, line_of(name, line));
    Words inner = expanded(word, line, depth + 1);
    std::string text;
    for (const ShellWord& one : inner.done) text += (text.empty() ? "" : " ") + one.text;
    if (op.back() == '=') scalars_[name] = {text, line};
    return put(words, text, quoted, line);
  }
  if (op == ":+" || op == "+") {
    if (!has) return;
    Words inner = expanded(word, line, depth + 1);
    put_array(words, inner.done, quoted);
    return;
  }
  if (op == ":?" || op == "?") return put(words, value, quoted, line);
  put(words, unknown_mark(name), quoted, line);  // patterns, substrings: not read
}

// From a $ at `at`; behind it afterwards.
void ShellExpansion::dollar(Words& words, std::string_view text, std::size_t& at, bool quoted,
                            std::int32_t line, int depth) {
  const std::string_view rest = text.substr(at + 1);
  if (rest.starts_with("((")) {
    const std::size_t end = end_of_quote(text, at);
    if (end == std::string_view::npos || end < at + 5) {
      at = text.size();
      return problem_.say(line, "$(( without its ))");
    }
    const std::string inside =
        expanded(text.substr(at + 3, end - at - 5), line, depth + 1).joined();
    const std::optional<std::int64_t> value =
        shell_arithmetic(inside, [this](const std::string& name) { return scalar(name); });
    put(words, value ? std::to_string(*value) : unknown_mark(named_unknown(inside)), quoted, line);
    at = end;
  } else if (rest.starts_with("(") || rest.starts_with("{")) {
    const std::size_t end = end_of_quote(text, at);
    if (end == std::string_view::npos) {
      at = text.size();
      return problem_.say(line, "a $ that does not end");
    }
    const std::string_view inside = text.substr(at + 2, end - at - 3);
    if (rest.starts_with("{"))
      parameter(words, inside, quoted, line, depth);
    else
      put(words, unknown_mark("(" + std::string(inside.substr(0, 40)) + ")"), quoted, line);
    at = end;
  } else {
    std::size_t end = at + 1;
    if (end < text.size() &&
        (std::isdigit(static_cast<unsigned char>(text[end])) != 0 ||
         std::string_view("@*#?$!").find(text[end]) != std::string_view::npos)) {
      ++end;
    } else {
      while (end < text.size() &&
             (std::isalnum(static_cast<unsigned char>(text[end])) != 0 || text[end] == '_')) {
        ++end;
      }
    }
    const std::string name(text.substr(at + 1, end - at - 1));
    at = end;
    if (name.empty()) return put(words, "$", true, line);
    put(words, scalar(name), quoted, line_of(name, line));
  }
}
ShellExpansion::Words ShellExpansion::expanded(std::string_view raw, std::int32_t line, int depth) {
  Words words{.done = {}, .current = {}, .begun = false, .line = line};
  if (depth > kDeepestExpansion) {
    problem_.say(line, "expansions nested deeper than 64");
    return words;
  }
  for (std::size_t at = 0; at < raw.size() && problem_.none();) {
    const char c = raw[at];
    if (c == '\n') ++line;
    if (c == '\\') {
      if (at + 1 < raw.size() && raw[at + 1] != '\n')
        put(words, raw.substr(at + 1, 1), true, line);
      else if (at + 1 < raw.size())
        ++line;
      at += 2;
    } else if (c == '\'') {
      const std::size_t end = std::min(raw.find('\'', at + 1), raw.size());
      put(words, raw.substr(at + 1, end - at - 1), true, line);
      at = end + 1;
    } else if (raw.substr(at, 4) == "\"$@\"" && !scalars_.contains("@")) {
      at += 4;  // no arguments: no word
    } else if (c == '"') {
      at = inside_quotes(words, raw, at + 1, line, depth);
    } else if (c == '`') {
      put(words, unknown_mark("(a command)"), false, line);
      at = std::min(end_of_quote(raw, at), raw.size());
    } else if (c == '$') {
      dollar(words, raw, at, false, line, depth);
    } else {
      put(words, raw.substr(at, 1), c != ' ' && c != '\t' && c != '\n', line);
      ++at;
    }
  }
  words.flush();
  return words;
}
std::size_t ShellExpansion::inside_quotes(Words& words, std::string_view raw, std::size_t at,
                                          std::int32_t line, int depth) {
  put(words, "", true, line);
  while (at < raw.size() && raw[at] != '"' && problem_.none()) {
    const char c = raw[at];
    if (c == '\\' && at + 1 < raw.size()) {
      const char next = raw[at + 1];
      if (std::string_view("$`\"\\").find(next) != std::string_view::npos) {
        put(words, raw.substr(at + 1, 1), true, line);
      } else if (next != '\n') {
        put(words, raw.substr(at, 2), true, line);
      } else {
        put(words, " ", true, line);
      }
      at += 2;
    } else if (c == '$') {
      dollar(words, raw, at, true, line, depth);
    } else if (c == '`') {
      put(words, unknown_mark("(a command)"), true, line);
      at = std::min(end_of_quote(raw, at), raw.size());
    } else {
      if (c == '\n') ++line;
      put(words, raw.substr(at, 1), true, line);
      ++at;
    }
  }
  return at + 1;
}
std::string ShellExpansion::text(std::string_view raw, std::int32_t line) {
  Words words{.done = {}, .current = {}, .begun = false, .line = line};
  for (std::size_t at = 0; at < raw.size() && problem_.none();) {
    const char c = raw[at];
    if (c == '\'') {
      const std::size_t end = std::min(raw.find('\'', at + 1), raw.size());
      put(words, raw.substr(at + 1, end - at - 1), true, line);
      at = end + 1;
    } else if (c == '"') {
      at = inside_quotes(words, raw, at + 1, line, 0);
    } else if (c == '`') {
      put(words, unknown_mark("(a command)"), true, line);
      at = std::min(end_of_quote(raw, at), raw.size());
    } else if (c == '$') {
      dollar(words, raw, at, true, line, 0);
    } else {
      if (c == '\\') ++at;
      if (at < raw.size()) put(words, raw.substr(at, 1), true, line);
      ++at;
    }
  }
  words.flush();
  return words.joined();
}

void ShellExpansion::hide(std::string_view raw) {
  const std::string name = assigned_name(raw);
  if (name.empty() || given_.contains(name)) return;
  arrays_.erase(name);
  scalars_[name] = {unknown_mark(name), 0};
}
void ShellExpansion::assign(std::string_view raw, std::int32_t line) {
  const std::string name = assigned_name(raw);
  if (given_.contains(name)) return;  // --var wins
  const std::size_t equals = raw.find('=');
  const bool more = equals > 0 && raw[equals - 1] == '+';
  const std::string_view value = raw.substr(equals + 1);
  if (!value.starts_with('(')) {
    std::string made = text(value, line);
    if (is_printed(made)) made = unknown_mark(name);  // --var says that variable
    if (more && arrays_.contains(name)) {
      arrays_[name].push_back({made, line});
    } else {
      const auto before = scalars_.find(name);
      const bool longer = more && before != scalars_.end();
      scalars_[name] = {(longer ? before->second.text : std::string()) + made, line};
      arrays_.erase(name);
    }
    if (scalars_[name].text.size() > kMostExpanded)
      problem_.say(line, "a word of more than a million characters");
    return;
  }
  std::vector<ShellWord> items;
  Result<std::vector<ShellToken>> tokens = shell_tokens(value.substr(1, value.size() - 2), line);
  if (!tokens) return problem_.say(line, "an array that cannot be read");
  for (const ShellToken& token : tokens.value()) {
    if (token.kind != ShellToken::Kind::Word) continue;
    for (ShellWord& word : expanded(token.text, token.line, 0).done)
      items.push_back(std::move(word));
  }
  std::vector<ShellWord>& array = arrays_[name];
  if (!more) array.clear();
  array.insert(array.end(), items.begin(), items.end());
  scalars_.erase(name);
  if (array.size() > kMostWords) problem_.say(line, "more than 200000 words");
}
std::string ShellExpansion::document(const ShellToken& document) {
  const std::string& text = document.text;
  std::string plain;
  for (std::size_t at = 0; at < text.size() && problem_.none();) {
    if (text[at] == '$') {
      Words one{.done = {}, .current = {}, .begun = false, .line = document.line};
      dollar(one, text, at, true, document.line, 0);
      one.flush();
      plain += one.joined();
    } else if (text[at] == '\\' && at + 1 < text.size() &&
               std::string_view("$`\\").find(text[at + 1]) != std::string_view::npos) {
      plain += text[at + 1];
      at += 2;
    } else {
      plain += text[at++];
    }
    if (plain.size() > kMostExpanded)
      problem_.say(document.line, "a text of more than a million characters");
  }
  return plain;
}

std::string assigned_name(std::string_view raw) {
  const std::size_t equals = raw.find('=');
  if (equals == std::string_view::npos) return "";
  std::string_view name = raw.substr(0, equals);
  if (name.ends_with('+')) name.remove_suffix(1);
  return is_shell_name(name) ? std::string(name) : "";
}

bool is_shell_name(std::string_view text) {
  if (text.empty() || std::isdigit(static_cast<unsigned char>(text[0])) != 0) return false;
  return std::ranges::all_of(
      text, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; });
}

std::string unknown_in(std::string_view text) {
  const std::size_t mark = text.find(kMark);
  if (mark == std::string_view::npos) return "";
  const std::size_t end = std::min(text.find(kMarkEnd, mark), text.size());
  return std::string(text.substr(mark + 1, end - mark - 1));
}

std::string shown_unknown(std::string_view text) {
  std::string made;
  for (const char c : text) {
    if (c == kMark)
      made += '$';
    else if (c != kMarkEnd)
      made += c;
  }
  return made;
}

}  // namespace rehearse
