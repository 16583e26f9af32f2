// SPDX-License-Identifier: Apache-2.0
#include "schedules/config_files/shell/shell_script.h"

#include <algorithm>
#include <set>

#include "schedules/config_files/batch_options.h"
#include "schedules/config_files/shell/shell_expansion.h"
#include "schedules/config_files/shell/shell_test.h"
#include "schedules/config_files/shell/shell_tokens.h"

namespace rehearse {
namespace {

constexpr int kDeepestText = 64;

class Script {
 public:
  Script(std::string path, const std::map<std::string, std::string>& given)
      : path_(std::move(path)), expansion_(given, problem_) {}

  void read(std::string_view text, std::int32_t line, int depth) {
    if (depth > kDeepestText)
      return problem_.say(line, "texts that are read again, deeper than 64");
    for (const auto& [name, value] : batch_variables(text)) expansion_.set_unless_set(name, value);
    Result<std::vector<ShellToken>> tokens = shell_tokens(text, line);
    if (!tokens) {
      if (problem_.none()) unreadable_ = path_ + ":" + tokens.error().message;
      problem_.say(line, tokens.error().message);
      return;
    }
    const std::vector<ShellToken> outer = std::move(tokens_);
    const std::size_t at = at_;
    tokens_ = std::move(tokens).value();
    at_ = 0;
    depth_ = depth;
    while (problem_.none() && !ended_ && at_ < tokens_.size()) {
      list({}, true);
      if (at_ < tokens_.size()) ++at_;  // a word that opens nothing
    }
    tokens_ = outer;
    at_ = at;
  }

  Result<ShellScript> result() {
    if (!unreadable_.empty()) return Error{unreadable_};
    if (!problem_.none()) {
      return Error{path_ + ":" + std::to_string(problem_.line) + ": " + problem_.what};
    }
    made_.variables = expansion_.scalars();
    for (const std::string& name : exported_) {
      if (const auto found = made_.variables.find(name); found != made_.variables.end()) {
        made_.exported[name] = found->second;
      }
    }
    return std::move(made_);
  }

 private:
  void warn(std::int32_t line, const std::string& what) {
    if (made_.warnings.size() < 100) {
      made_.warnings.push_back(path_ + ":" + std::to_string(line) + ": " + what);
    }
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
    if (++nesting_ > kDeepestText) {
      problem_.say(at_ < tokens_.size() ? tokens_[at_].line : 0, "commands nested deeper than 64");
    }
    while (problem_.none() && at_ < tokens_.size() && !(ended_ && active)) {
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
    while (problem_.none() && (at_operator("&&") || at_operator("||"))) {
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
    stream_ = {};
    Truth last = command(active, hides);
    while (problem_.none() && (at_operator("|") || at_operator("|&"))) {
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
    while (problem_.none() && at_ < tokens_.size() && open > 0) {
      if (at_word("case")) ++open;
      if (at_word("esac")) --open;
      if (open > 0 && tokens_[at_].kind == ShellToken::Kind::Word) hide(tokens_[at_].text);
      ++at_;
    }
    hiding_ = before;
  }

  Truth branches(bool active) {
    bool taken = !active, unknown_before = false;
    const std::int32_t line = tokens_[at_].line;
    while (problem_.none() && at_ < tokens_.size()) {
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
    return shell_test(
        inside, [this](const ShellToken& word) { return expansion_.text(word.text, word.line); });
  }
  // --- simple commands

  void hide(std::string_view raw) {
    if (hiding_) expansion_.hide(raw);
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
            targets.push_back(expansion_.text(tokens_[at_].text, tokens_[at_].line));
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
      for (const ShellToken& token : raw) hide(token.text);
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
      expansion_.assign(raw[first].text, raw[first].line);
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
        if (!assigned_name(raw[i].text).empty()) expansion_.assign(raw[i].text, raw[i].line);
        const std::string exported = raw[i].text.substr(0, raw[i].text.find('='));
        if (name == "export" && is_shell_name(exported)) exported_.insert(exported);
      }
      return Truth::Yes;
    }
    if (name == "unset") {
      for (std::size_t i = first + 1; i < raw.size(); ++i) {
        expansion_.forget(raw[i].text);
        exported_.erase(raw[i].text);
      }
      return Truth::Yes;
    }
    if (name == "exit" || name == "return") {
      ended_ = true;
      return Truth::Yes;
    }
    if (name == "source" || name == ".") {
      warn(raw[first].line, name + " is not read: what it sets is not known");
      return Truth::Yes;
    }
    if (name == "eval") {
      std::string text;  // which is read again
      for (std::size_t i = first + 1; i < raw.size(); ++i) {
        for (const ShellWord& word : expansion_.words(raw[i].text, raw[i].line)) {
          text += (text.empty() ? "" : " ") + word.text;
        }
      }
      if (problem_.none()) read(text, raw[first].line, depth_ + 1);
      return Truth::Yes;
    }
    if (name == "true" || name == ":") return Truth::Yes;
    if (name == "false") return Truth::No;
    ShellCommand command;
    for (std::size_t i = first; i < raw.size(); ++i) {
      for (ShellWord& word : expansion_.words(raw[i].text, raw[i].line)) {
        command.words.push_back(std::move(word));
      }
    }
    if (command.words.empty() || !problem_.none()) return Truth::Yes;
    take_command(command, targets, document);
    return Truth::Yes;
  }

  // sed of texts, in a pipeline: sed "s/A/B/" FILE | sed "s/C/D/" > TARGET, or of a here-document.
  void take_edits(const ShellCommand& command, const std::vector<std::string>& targets) {
    bool written = false;  // a command behind -e
    bool in_place = false, read = true;
    for (std::size_t i = 1; i < command.words.size(); ++i) {
      const std::string& word = command.words[i].text;
      if (word == "-e" || word == "-i") {
        in_place = in_place || word == "-i";
        continue;
      }
      const bool expression = !written || command.words[i - 1].text == "-e";
      if (!expression) {
        stream_.file = word;
        continue;
      }
      written = true;
      const std::optional<TextEdit> edit = text_edit(word);
      read = read && edit;
      if (edit) stream_.edits.push_back(*edit);
    }
    if (!read) {
      warn(command.words[0].line, "sed with more than texts is not read");
      return;
    }
    if (in_place) {
      EditedFile& whole = made_.edited[stream_.file];  // several commands, one after another
      whole.file = stream_.file;
      whole.edits.insert(whole.edits.end(), stream_.edits.begin(), stream_.edits.end());
    }
    if (!targets.empty() && !stream_.file.empty()) made_.edited[targets[0]] = stream_;
  }

  void take_command(ShellCommand& command, const std::vector<std::string>& targets,
                    const ShellToken* document) {
    if (command.words[0].text == "sed") return take_edits(command, targets);
    if (document != nullptr) {
      const std::string text = document->quoted ? document->text : expansion_.document(*document);
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
  std::string path_;
  ShellProblem problem_;
  std::string unreadable_;  // a text that is no script, and where
  ShellExpansion expansion_;
  ShellScript made_;
  std::set<std::string> exported_;
  std::vector<ShellToken> tokens_;
  std::size_t at_ = 0;
  int depth_ = 0, nesting_ = 0;
  EditedFile stream_;    // what flows through the pipeline that is read
  bool ended_ = false;   // exit
  bool hiding_ = false;  // what is assigned is unknown
};

}  // namespace

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
