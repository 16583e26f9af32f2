// SPDX-License-Identifier: Apache-2.0
#include "schedules/config_files/shell_script.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <optional>
#include <set>

#include "schedules/config_files/shell_arithmetic.h"
#include "schedules/config_files/shell_tokens.h"

namespace rehearse {
namespace {

constexpr char kMark = '\x01', kMarkEnd = '\x02';
constexpr std::size_t kMostExpanded = 1'000'000;  // [B] of a word
constexpr std::size_t kMostWords = 200'000;
constexpr int kDeepest = 64;

enum class Truth : std::uint8_t { No, Yes, Unknown };
Truth truth(bool value) {
  return value ? Truth::Yes : Truth::No;
}

std::string unknown(std::string_view name) {
  return kMark + std::string(name) + kMarkEnd;
}
bool is_name(std::string_view text) {
  if (text.empty() || std::isdigit(static_cast<unsigned char>(text[0])) != 0) return false;
  return std::ranges::all_of(
      text, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; });
}
bool is_number(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

class Script {
 public:
  Script(std::string path, const std::map<std::string, std::string>& given)
      : path_(std::move(path)), given_(given) {
    for (const auto& [name, value] : given) scalars_[name] = {value, 0};
  }

  void read(std::string_view text, std::int32_t line, int depth) {
    if (depth > kDeepest) return fail(line, "texts that are read again, deeper than 64");
    batch_options(text);
    Result<std::vector<ShellToken>> tokens = shell_tokens(text, line);
    if (!tokens) {
      if (problem_.empty()) problem_ = path_ + ":" + tokens.error().message;
      return;
    }
    const std::vector<ShellToken> outer = std::move(tokens_);
    const std::size_t at = at_;
    tokens_ = std::move(tokens).value();
    at_ = 0;
    depth_ = depth;
    while (problem_.empty() && !ended_ && at_ < tokens_.size()) {
      list({}, true);
      if (at_ < tokens_.size()) ++at_;  // a word that opens nothing
    }
    tokens_ = outer;
    at_ = at;
  }

  Result<ShellScript> result() {
    if (!problem_.empty()) return Error{problem_};
    made_.variables = scalars_;
    for (const std::string& name : exported_) {
      if (const auto found = scalars_.find(name); found != scalars_.end()) {
        made_.exported[name] = found->second;
      }
    }
    return std::move(made_);
  }

 private:
  void fail(std::int32_t line, const std::string& what) {
    if (problem_.empty()) problem_ = path_ + ":" + std::to_string(line) + ": " + what;
  }
  void warn(std::int32_t line, const std::string& what) {
    if (made_.warnings.size() < 100) {
      made_.warnings.push_back(path_ + ":" + std::to_string(line) + ": " + what);
    }
  }

  // "#SBATCH --nodes=24": what Slurm then tells a script.
  void batch_options(std::string_view text) {
    struct Option {
      std::string_view flag;
      std::array<std::string_view, 2> variables;
    };
    constexpr std::array<Option, 6> kOptions{{
        {"--nodes", {"SLURM_NNODES", "SLURM_JOB_NUM_NODES"}},
        {"-N", {"SLURM_NNODES", "SLURM_JOB_NUM_NODES"}},
        {"--ntasks-per-node", {"SLURM_NTASKS_PER_NODE", ""}},
        {"--gpus-per-node", {"SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"}},
        {"--gres", {"SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"}},
        {"--ntasks", {"SLURM_NTASKS", "SLURM_NPROCS"}},
    }};
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      std::string_view row = text.substr(at, end - at);
      at = end + 1;
      if (!row.starts_with("#SBATCH")) continue;
      row = row.substr(7, row.find(" #") == std::string_view::npos ? std::string_view::npos
                                                                   : row.find(" #") - 7);
      row.remove_prefix(std::min(row.find_first_not_of(" \t"), row.size()));
      const std::size_t cut = std::min(row.find_first_of("= \t"), row.size());
      std::string_view value = row.substr(cut);
      value.remove_prefix(std::min(value.find_first_not_of("= \t"), value.size()));
      value = value.substr(0, value.find_first_of(" \t\r"));
      if (const std::size_t colon = value.rfind(':'); colon != std::string_view::npos) {
        value.remove_prefix(colon + 1);
      }
      if (!is_number(value)) continue;
      for (const Option& option : kOptions) {
        if (option.flag != row.substr(0, cut)) continue;
        for (const std::string_view name : option.variables) {
          if (!name.empty())
            scalars_.try_emplace(std::string(name), ShellWord{std::string(value), 0});
        }
      }
    }
  }

  // --- expansion

  std::string scalar(const std::string& name) const {
    if (const auto found = scalars_.find(name); found != scalars_.end()) return found->second.text;
    if (const auto found = arrays_.find(name); found != arrays_.end()) {
      return found->second.empty() ? std::string() : found->second.front().text;
    }
    if (is_number(name) || name == "@" || name == "*") return "";
    if (name == "#") return "0";
    if (name == "?") return "0";
    return unknown(name);
  }
  std::int32_t line_of(const std::string& name, std::int32_t otherwise) const {
    const auto found = scalars_.find(name);
    return found == scalars_.end() || found->second.line == 0 ? otherwise : found->second.line;
  }
  // Positional parameters that nobody gave are empty: a default takes their place.
  bool is_set(const std::string& name) const {
    return scalars_.contains(name) || arrays_.contains(name);
  }

  // What is being made of one word: several, where an unquoted value has blanks.
  struct Words {
    std::vector<ShellWord> done;
    std::string current;
    bool begun = false;  // quotes make even nothing a word
    std::int32_t line = 0;
  };
  void flush(Words& words) {
    if (words.begun) words.done.push_back({words.current, words.line});
    words.current.clear();
    words.begun = false;
  }
  void put(Words& words, std::string_view text, bool quoted, std::int32_t line) {
    if (quoted) {
      words.current += text;
      words.begun = true;
      words.line = line;
    } else {
      for (const char c : text) {
        if (c == ' ' || c == '\t' || c == '\n') {
          flush(words);
          continue;
        }
        words.current += c;
        words.begun = true;
        words.line = line;
      }
    }
    if (words.current.size() > kMostExpanded)
      fail(line, "a word of more than a million characters");
  }
  void put_array(Words& words, const std::vector<ShellWord>& items, bool quoted) {
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) flush(words);
      put(words, items[i].text, quoted, items[i].line);
    }
    if (words.done.size() > kMostWords) fail(words.line, "more than 200000 words");
  }

  // "${...}" without its braces.
  void parameter(Words& words, std::string_view inside, bool quoted, std::int32_t line, int depth) {
    if (depth > kDeepest) return fail(line, "expansions nested deeper than 64");
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
    if (rest.starts_with("[")) {
      const std::size_t close = rest.find(']');
      const std::string_view index =
          rest.substr(1, close == std::string_view::npos ? 0 : close - 1);
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
        if (!rest.empty()) return put(words, unknown(name), quoted, line);
        return put_array(words, array->second, quoted);
      }
      if (array == arrays_.end() || !is_number(index))
        return put(words, unknown(name), quoted, line);
      std::size_t number = 0;
      std::from_chars(index.data(), index.data() + index.size(), number);
      return put(words, number < array->second.size() ? array->second[number].text : "", quoted,
                 line);
    }
    if (count || end == 0 || name == "!") return put(words, unknown(name), quoted, line);
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
    put(words, unknown(name), quoted, line);  // patterns, substrings: not read
  }

  // From a $ at `at`; behind it afterwards.
  void dollar(Words& words, std::string_view text, std::size_t& at, bool quoted, std::int32_t line,
              int depth) {
    const std::string_view rest = text.substr(at + 1);
    if (rest.starts_with("((")) {
      const std::size_t end = end_of_quote(text, at);
      if (end == std::string_view::npos || end < at + 5) {
        at = text.size();
        return fail(line, "$(( without its ))");
      }
      const std::string inside =
          joined(expanded(text.substr(at + 3, end - at - 5), line, depth + 1));
      const std::optional<std::int64_t> value =
          shell_arithmetic(inside, [this](const std::string& name) { return scalar(name); });
      put(words, value ? std::to_string(*value) : unknown(named_unknown(inside)), quoted, line);
      at = end;
    } else if (rest.starts_with("(") || rest.starts_with("{")) {
      const std::size_t end = end_of_quote(text, at);
      if (end == std::string_view::npos) {
        at = text.size();
        return fail(line, "a $ that does not end");
      }
      const std::string_view inside = text.substr(at + 2, end - at - 3);
      if (rest.starts_with("{"))
        parameter(words, inside, quoted, line, depth);
      else
        put(words, unknown("(" + std::string(inside.substr(0, 40)) + ")"), quoted, line);
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
  static std::string named_unknown(const std::string& text) {
    const std::string name = unknown_in(text);
    return name.empty() ? text.substr(0, 40) : name;
  }

  Words expanded(std::string_view raw, std::int32_t line, int depth = 0) {
    Words words{.done = {}, .current = {}, .begun = false, .line = line};
    if (depth > kDeepest) {
      fail(line, "expansions nested deeper than 64");
      return words;
    }
    for (std::size_t at = 0; at < raw.size() && problem_.empty();) {
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
        put(words, unknown("(a command)"), false, line);
        at = std::min(end_of_quote(raw, at), raw.size());
      } else if (c == '$') {
        dollar(words, raw, at, false, line, depth);
      } else {
        put(words, raw.substr(at, 1), c != ' ' && c != '\t' && c != '\n', line);
        ++at;
      }
    }
    flush(words);
    return words;
  }
  std::size_t inside_quotes(Words& words, std::string_view raw, std::size_t at, std::int32_t line,
                            int depth) {
    put(words, "", true, line);
    while (at < raw.size() && raw[at] != '"' && problem_.empty()) {
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
        put(words, unknown("(a command)"), true, line);
        at = std::min(end_of_quote(raw, at), raw.size());
      } else {
        if (c == '\n') ++line;
        put(words, raw.substr(at, 1), true, line);
        ++at;
      }
    }
    return at + 1;
  }
  static std::string joined(const Words& words) {
    std::string text;
    for (const ShellWord& word : words.done) text += (text.empty() ? "" : " ") + word.text;
    return text;
  }
  // As the right side of an assignment: nothing is split.
  std::string assigned(std::string_view raw, std::int32_t line) {
    Words words{.done = {}, .current = {}, .begun = false, .line = line};
    for (std::size_t at = 0; at < raw.size() && problem_.empty();) {
      const char c = raw[at];
      if (c == '\'') {
        const std::size_t end = std::min(raw.find('\'', at + 1), raw.size());
        put(words, raw.substr(at + 1, end - at - 1), true, line);
        at = end + 1;
      } else if (c == '"') {
        at = inside_quotes(words, raw, at + 1, line, 0);
      } else if (c == '`') {
        put(words, unknown("(a command)"), true, line);
        at = std::min(end_of_quote(raw, at), raw.size());
      } else if (c == '$') {
        dollar(words, raw, at, true, line, 0);
      } else {
        if (c == '\\') ++at;
        if (at < raw.size()) put(words, raw.substr(at, 1), true, line);
        ++at;
      }
    }
    flush(words);
    return joined(words);
  }

  // --- commands

  bool at_word(std::string_view text) const {
    return at_ < tokens_.size() && tokens_[at_].kind == ShellToken::Kind::Word &&
           tokens_[at_].text == text;
  }
  bool at_operator(std::string_view text) const {
    return at_ < tokens_.size() && tokens_[at_].kind == ShellToken::Kind::Operator &&
           tokens_[at_].text == text;
  }
  void skip_newlines() {
    while (at_ < tokens_.size() && (tokens_[at_].kind == ShellToken::Kind::Newline ||
                                    at_operator(";") || at_operator(";;"))) {
      ++at_;
    }
  }
  static bool is_one_of(std::string_view word, const std::vector<std::string_view>& words) {
    return std::ranges::find(words, word) != words.end();
  }

  // Commands up to one of `ends`, which stands at at_ afterwards. `active`: they run; else what
  // they assign is unknown. How the last one came out.
  Truth list(const std::vector<std::string_view>& ends, bool active) {
    Truth last = Truth::Yes;
    if (++nesting_ > kDeepest) {
      fail(at_ < tokens_.size() ? tokens_[at_].line : 0, "commands nested deeper than 64");
    }
    while (problem_.empty() && at_ < tokens_.size() && !(ended_ && active)) {
      skip_newlines();
      if (at_ >= tokens_.size()) break;
      if (tokens_[at_].kind == ShellToken::Kind::Word && is_one_of(tokens_[at_].text, ends)) break;
      if (at_operator(")") && is_one_of(")", ends)) break;
      const std::size_t before = at_;
      last = and_or(active);
      if (at_ == before) ++at_;  // nothing that begins a command
    }
    --nesting_;
    return last;
  }

  // a && b || c
  Truth and_or(bool active) {
    Truth last = pipeline(active);
    while (problem_.empty() && (at_operator("&&") || at_operator("||"))) {
      const bool both = at_operator("&&");
      const std::int32_t line = tokens_[at_].line;
      ++at_;
      skip_newlines();
      const bool runs = last == (both ? Truth::Yes : Truth::No);
      if (active && last == Truth::Unknown)
        warn(line, "left out: it hangs on what only a run knows");
      const Truth next = pipeline(active && runs, active && last == Truth::Unknown);
      const bool decides = last == Truth::Unknown && next == (both ? Truth::No : Truth::Yes);
      if (runs || decides) last = next;
    }
    if (at_operator("&")) ++at_;
    return last;
  }
  Truth pipeline(bool active, bool hides = false) {
    bool negated = false;
    while (at_word("!")) {
      negated = !negated;
      ++at_;
    }
    Truth last = command(active, hides);
    while (problem_.empty() && (at_operator("|") || at_operator("|&"))) {
      ++at_;
      skip_newlines();
      last = command(active, hides);
    }
    if (!negated || last == Truth::Unknown) return last;
    return last == Truth::Yes ? Truth::No : Truth::Yes;
  }

  // A body that is not run: what it assigns is unknown.
  void left_out(const std::vector<std::string_view>& ends) {
    const bool before = hiding_;
    hiding_ = true;
    list(ends, false);
    hiding_ = before;
    if (at_ < tokens_.size()) ++at_;
  }

  Truth command(bool active, bool hides = false) {
    const bool before = hiding_;
    hiding_ = hiding_ || hides;
    const Truth made = one_command(active);
    hiding_ = before;
    return made;
  }
  Truth one_command(bool active) {
    if (at_ >= tokens_.size()) return Truth::Yes;
    const std::int32_t line = tokens_[at_].line;
    if (at_word("if")) return branches(active);
    if (at_word("for") || at_word("while") || at_word("until") || at_word("select")) {
      if (active) warn(line, "a loop is left out");
      while (at_ < tokens_.size() && !at_word("do")) ++at_;
      ++at_;
      left_out({"done"});
      return Truth::Yes;
    }
    if (at_word("case")) {
      if (active) warn(line, "a case is left out");
      ++at_;
      cases();
      return Truth::Yes;
    }
    if (at_word("{")) {
      ++at_;
      const Truth made = list({"}"}, active);
      if (at_ < tokens_.size()) ++at_;
      return made;
    }
    if (at_operator("(")) {
      if (active) warn(line, "a subshell is left out");
      ++at_;
      left_out({")"});
      return Truth::Yes;
    }
    if (at_word("function") || is_function()) return function();
    if (at_word("[[") || at_word("[") || at_word("test")) return test();
    return simple(active);
  }

  bool is_function() const {
    return at_ + 2 < tokens_.size() && tokens_[at_].kind == ShellToken::Kind::Word &&
           tokens_[at_ + 1].kind == ShellToken::Kind::Operator && tokens_[at_ + 1].text == "(" &&
           tokens_[at_ + 2].kind == ShellToken::Kind::Operator && tokens_[at_ + 2].text == ")";
  }
  Truth function() {
    while (at_ < tokens_.size() && !at_word("{") && !at_operator("(")) ++at_;
    if (at_operator("(")) {  // NAME() {
      while (at_ < tokens_.size() && !at_word("{")) ++at_;
    }
    ++at_;
    left_out({"}"});
    return Truth::Yes;
  }
  void cases() {
    int open = 1;
    const bool before = hiding_;
    hiding_ = true;
    while (problem_.empty() && at_ < tokens_.size() && open > 0) {
      if (at_word("case")) ++open;
      if (at_word("esac")) --open;
      if (open > 0 && tokens_[at_].kind == ShellToken::Kind::Word)
        hide_assignment(tokens_[at_].text);
      ++at_;
    }
    hiding_ = before;
  }

  Truth branches(bool active) {
    bool taken = !active, unknown_before = false;
    const std::int32_t line = tokens_[at_].line;
    while (problem_.empty() && at_ < tokens_.size()) {
      const bool otherwise = at_word("else");
      ++at_;  // if, elif, else
      Truth condition = Truth::Yes;
      if (!otherwise) {
        condition = list({"then"}, false);
        if (at_ < tokens_.size()) ++at_;
      }
      const bool runs = !taken && !unknown_before && condition == Truth::Yes;
      const bool may = !taken && (unknown_before || condition == Truth::Unknown);
      if (may && active && !unknown_before) {
        warn(line, "a branch is left out: its test hangs on what only a run knows");
      }
      const bool before = hiding_;
      hiding_ = hiding_ || may;
      list({"elif", "else", "fi"}, runs);
      hiding_ = before;
      taken = taken || runs;
      unknown_before = unknown_before || (may && condition == Truth::Unknown);
      if (at_word("fi")) {
        ++at_;
        break;
      }
    }
    return Truth::Yes;
  }

  // --- tests

  Truth test() {
    const std::string open = tokens_[at_++].text;
    const std::string close = open == "[[" ? "]]" : open == "[" ? "]" : "";
    std::vector<ShellToken> inside;
    while (at_ < tokens_.size()) {
      const ShellToken& token = tokens_[at_];
      const bool word = token.kind == ShellToken::Kind::Word;
      if (!close.empty() && word && token.text == close) {
        ++at_;
        break;
      }
      if (token.kind == ShellToken::Kind::Newline || (close.empty() && !word) ||
          (close == "]" && !word &&
           (token.text == ";" || token.text == "&&" || token.text == "||"))) {
        break;
      }
      inside.push_back(token);
      ++at_;
    }
    std::size_t at = 0;
    const Truth made = any_of(inside, at);
    return at < inside.size() ? Truth::Unknown : made;
  }
  static bool is_token(const std::vector<ShellToken>& t, std::size_t at, std::string_view text) {
    return at < t.size() && t[at].text == text;
  }
  Truth any_of(const std::vector<ShellToken>& t, std::size_t& at) {
    Truth made = all_of(t, at);
    while (is_token(t, at, "||") || is_token(t, at, "-o")) {
      const Truth next = all_of(t, ++at);
      made = made == Truth::Yes || next == Truth::Yes ? Truth::Yes
             : made == Truth::No && next == Truth::No ? Truth::No
                                                      : Truth::Unknown;
    }
    return made;
  }
  Truth all_of(const std::vector<ShellToken>& t, std::size_t& at) {
    Truth made = one_of(t, at);
    while (is_token(t, at, "&&") || is_token(t, at, "-a")) {
      const Truth next = one_of(t, ++at);
      made = made == Truth::No || next == Truth::No     ? Truth::No
             : made == Truth::Yes && next == Truth::Yes ? Truth::Yes
                                                        : Truth::Unknown;
    }
    return made;
  }
  Truth one_of(const std::vector<ShellToken>& t, std::size_t& at) {
    if (is_token(t, at, "!")) {
      const Truth made = one_of(t, ++at);
      return made == Truth::Unknown ? made : truth(made == Truth::No);
    }
    if (is_token(t, at, "(")) {
      const Truth made = any_of(t, ++at);
      if (is_token(t, at, ")")) ++at;
      return made;
    }
    if (at >= t.size()) return Truth::Unknown;
    const auto word = [&](std::size_t i) { return assigned(t[i].text, t[i].line); };
    if (t[at].text.size() == 2 && t[at].text[0] == '-' && at + 1 < t.size()) {
      const char op = t[at].text[1];
      const std::string value = word(at + 1);
      at += 2;
      if ((op != 'z' && op != 'n') || !unknown_in(value).empty()) return Truth::Unknown;
      return truth(value.empty() == (op == 'z'));
    }
    const std::string left = word(at++);
    static const std::vector<std::string_view> kTwo{"=",   "==",  "!=",  "-eq", "-ne", "-lt",
                                                    "-le", "-gt", "-ge", "<",   ">",   "=~"};
    if (at + 1 >= t.size() || !is_one_of(t[at].text, kTwo)) {
      return unknown_in(left).empty() ? truth(!left.empty()) : Truth::Unknown;
    }
    const std::string op = t[at].text, right = word(at + 1);
    at += 2;
    if (!unknown_in(left).empty() || !unknown_in(right).empty()) return Truth::Unknown;
    if (op == "=" || op == "==") {
      return right.find('*') == std::string::npos ? truth(left == right) : Truth::Unknown;
    }
    if (op == "!=")
      return right.find('*') == std::string::npos ? truth(left != right) : Truth::Unknown;
    std::int64_t a = 0, b = 0;
    const auto whole = [](const std::string& text, std::int64_t& to) {
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), to);
      return error == std::errc() && end == text.data() + text.size();
    };
    if (!whole(left, a) || !whole(right, b)) return Truth::Unknown;
    if (op == "-eq") return truth(a == b);
    if (op == "-ne") return truth(a != b);
    if (op == "-lt") return truth(a < b);
    if (op == "-le") return truth(a <= b);
    if (op == "-gt") return truth(a > b);
    if (op == "-ge") return truth(a >= b);
    return Truth::Unknown;
  }

  // --- simple commands

  // NAME, NAME+ of an assignment; empty: it is none.
  static std::string assigned_name(std::string_view raw) {
    const std::size_t equals = raw.find('=');
    if (equals == std::string_view::npos) return "";
    std::string_view name = raw.substr(0, equals);
    if (name.ends_with('+')) name.remove_suffix(1);
    return is_name(name) ? std::string(name) : "";
  }
  void hide_assignment(std::string_view raw) {
    const std::string name = assigned_name(raw);
    if (!hiding_ || name.empty() || given_.contains(name)) return;
    arrays_.erase(name);
    scalars_[name] = {unknown(name), 0};
  }
  void assign(std::string_view raw, std::int32_t line) {
    const std::string name = assigned_name(raw);
    if (given_.contains(name)) return;  // --var wins
    const std::size_t equals = raw.find('=');
    const bool more = equals > 0 && raw[equals - 1] == '+';
    const std::string_view value = raw.substr(equals + 1);
    if (!value.starts_with('(')) {
      const std::string text = assigned(value, line);
      if (more && arrays_.contains(name)) {
        arrays_[name].push_back({text, line});
      } else {
        scalars_[name] = {(more ? scalar_or_empty(name) : std::string()) + text, line};
        arrays_.erase(name);
      }
      if (scalars_[name].text.size() > kMostExpanded)
        fail(line, "a word of more than a million characters");
      return;
    }
    std::vector<ShellWord> items;
    Result<std::vector<ShellToken>> tokens = shell_tokens(value.substr(1, value.size() - 2), line);
    if (!tokens) return fail(line, "an array that cannot be read");
    for (const ShellToken& token : tokens.value()) {
      if (token.kind != ShellToken::Kind::Word) continue;
      for (ShellWord& word : expanded(token.text, token.line).done)
        items.push_back(std::move(word));
    }
    std::vector<ShellWord>& array = arrays_[name];
    if (!more) array.clear();
    array.insert(array.end(), items.begin(), items.end());
    scalars_.erase(name);
    if (array.size() > kMostWords) fail(line, "more than 200000 words");
  }
  std::string scalar_or_empty(const std::string& name) const {
    const auto found = scalars_.find(name);
    return found == scalars_.end() ? std::string() : found->second.text;
  }

  Truth simple(bool active) {
    std::vector<ShellToken> raw;
    std::vector<std::string> targets;  // of >
    const ShellToken* document = nullptr;
    while (at_ < tokens_.size() && tokens_[at_].kind != ShellToken::Kind::Newline) {
      const ShellToken& token = tokens_[at_];
      if (token.kind == ShellToken::Kind::HereDocument) {
        document = &token;
        ++at_;
        continue;
      }
      if (token.kind == ShellToken::Kind::Operator) {
        const bool redirects = token.text.find_first_of("<>") != std::string::npos;
        if (!redirects) break;
        ++at_;
        if (token.text.starts_with("<<") && token.text != "<<<") continue;
        if (at_ < tokens_.size() && tokens_[at_].kind == ShellToken::Kind::Word) {
          if (token.text.find('>') != std::string::npos && active) {
            targets.push_back(assigned(tokens_[at_].text, tokens_[at_].line));
          }
          ++at_;
        }
        continue;
      }
      raw.push_back(token);
      ++at_;
    }
    if (raw.empty()) return Truth::Yes;
    if (!active) {
      for (const ShellToken& token : raw) hide_assignment(token.text);
      return raw[0].text == "true" || raw[0].text == ":" ? Truth::Yes
             : raw[0].text == "false"                    ? Truth::No
                                                         : Truth::Unknown;
    }
    return run(raw, targets, document);
  }

  Truth run(const std::vector<ShellToken>& raw, const std::vector<std::string>& targets,
            const ShellToken* document) {
    std::size_t first = 0;
    while (first < raw.size() && !assigned_name(raw[first].text).empty()) {
      assign(raw[first].text, raw[first].line);
      if (raw.size() > 1 && first + 1 < raw.size())
        exported_.insert(assigned_name(raw[first].text));
      ++first;
    }
    if (first == raw.size()) return Truth::Yes;
    const std::string& name = raw[first].text;
    static const std::vector<std::string_view> kDeclare{"export", "local", "declare", "readonly",
                                                        "typeset"};
    if (is_one_of(name, kDeclare)) {
      for (std::size_t i = first + 1; i < raw.size(); ++i) {
        if (raw[i].text.starts_with('-')) continue;
        if (!assigned_name(raw[i].text).empty()) assign(raw[i].text, raw[i].line);
        const std::string exported = raw[i].text.substr(0, raw[i].text.find('='));
        if (name == "export" && is_name(exported)) exported_.insert(exported);
      }
      return Truth::Yes;
    }
    if (name == "unset") {
      for (std::size_t i = first + 1; i < raw.size(); ++i) {
        scalars_.erase(raw[i].text);
        arrays_.erase(raw[i].text);
        exported_.erase(raw[i].text);
      }
      return Truth::Yes;
    }
    if (name == "exit" || name == "return") {
      ended_ = true;
      return Truth::Yes;
    }
    if (name == "source" || name == "." || name == "eval") {
      warn(raw[first].line, name + " is not read: what it sets is not known");
      return Truth::Yes;
    }
    if (name == "true" || name == ":") return Truth::Yes;
    if (name == "false") return Truth::No;
    ShellCommand command;
    for (std::size_t i = first; i < raw.size(); ++i) {
      for (ShellWord& word : expanded(raw[i].text, raw[i].line).done) {
        command.words.push_back(std::move(word));
      }
    }
    if (command.words.empty() || !problem_.empty()) return Truth::Yes;
    take_command(command, targets, document);
    return Truth::Yes;
  }

  void take_command(ShellCommand& command, const std::vector<std::string>& targets,
                    const ShellToken* document) {
    if (document != nullptr) {
      const std::string text = document->quoted ? document->text : document_text(*document);
      if (command.words[0].text == "cat" && !targets.empty()) made_.documents[targets[0]] = text;
      if (command.words[0].text == "sbatch" || command.words[0].text == "bash" ||
          command.words[0].text == "sh") {
        read(text, document->line, depth_ + 1);
        return;
      }
    }
    // bash -c "...": the text is a script.
    for (std::size_t i = 0; i + 2 < command.words.size(); ++i) {
      const std::string& shell = command.words[i].text;
      if (shell != "bash" && shell != "sh" && !shell.ends_with("/bash")) continue;
      const std::string& flag = command.words[i + 1].text;
      if (!flag.starts_with('-') || flag.find('c') == std::string::npos || flag.starts_with("--"))
        continue;
      ShellCommand outer{
          .words = {command.words.begin(), command.words.begin() + static_cast<std::ptrdiff_t>(i)}};
      made_.commands.push_back(std::move(outer));
      read(command.words[i + 2].text, command.words[i + 2].line, depth_ + 1);
      return;
    }
    made_.commands.push_back(std::move(command));
  }
  std::string document_text(const ShellToken& document) {
    Words words{.done = {}, .current = {}, .begun = false, .line = document.line};
    std::string text = document.text;
    // Quotes mean nothing in a here-document.
    std::string plain;
    for (std::size_t at = 0; at < text.size() && problem_.empty();) {
      if (text[at] == '$') {
        Words one{.done = {}, .current = {}, .begun = false, .line = document.line};
        dollar(one, text, at, true, document.line, 0);
        flush(one);
        plain += joined(one);
      } else if (text[at] == '\\' && at + 1 < text.size() &&
                 std::string_view("$`\\").find(text[at + 1]) != std::string_view::npos) {
        plain += text[at + 1];
        at += 2;
      } else {
        plain += text[at++];
      }
      if (plain.size() > kMostExpanded)
        fail(document.line, "a text of more than a million characters");
    }
    return plain;
  }

  std::string path_;
  const std::map<std::string, std::string>& given_;
  ShellScript made_;
  std::map<std::string, ShellWord> scalars_;
  std::map<std::string, std::vector<ShellWord>> arrays_;
  std::set<std::string> exported_;
  std::vector<ShellToken> tokens_;
  std::size_t at_ = 0;
  int depth_ = 0, nesting_ = 0;
  bool ended_ = false;   // exit
  bool hiding_ = false;  // what is assigned is unknown
  std::string problem_;
};

}  // namespace

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

Result<ShellScript> read_shell_script(std::string_view text, const std::string& path,
                                      const std::map<std::string, std::string>& variables) {
  const auto odd = std::ranges::find_if(text, [](char c) {
    return static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t' && c != '\r';
  });
  if (odd != text.end()) return Error{path + ": not a script: it holds bytes that are no text"};
  Script script(path, variables);
  script.read(text, 1, 0);
  return script.result();
}

}  // namespace rehearse
