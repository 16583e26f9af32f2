// SPDX-License-Identifier: Apache-2.0
#include "schedules/config_files/shell/shell_tokens.h"

#include <algorithm>
#include <array>

namespace rehearse {
namespace {

constexpr std::size_t kNone = std::string_view::npos;
constexpr int kDeepestToken = 64;

std::size_t end_of_quote(std::string_view text, std::size_t at, int depth);

// Behind the `close` that belongs to what opened before `at`.
std::size_t end_of_group(std::string_view text, std::size_t at, char open, char close, int depth) {
  int nested = 1;
  while (at < text.size()) {
    const char c = text[at];
    if (c == '\\') {
      at += 2;
    } else if (c == '\'' || c == '"' || c == '`' ||
               (c == '$' && at + 1 < text.size() && text[at + 1] == '{' && open != '{')) {
      at = end_of_quote(text, at, depth + 1);
      if (at == kNone) return kNone;
    } else {
      nested += c == open ? 1 : c == close ? -1 : 0;
      ++at;
      if (nested == 0) return at;
    }
  }
  return kNone;
}

std::size_t end_of_quote(std::string_view text, std::size_t at, int depth) {
  if (depth > kDeepestToken || at >= text.size()) return kNone;
  if (text[at] == '\'') {
    const std::size_t end = text.find('\'', at + 1);
    return end == kNone ? kNone : end + 1;
  }
  if (text[at] == '$') {
    const bool brace = at + 1 < text.size() && text[at + 1] == '{';
    return end_of_group(text, at + 2, brace ? '{' : '(', brace ? '}' : ')', depth);
  }
  const char close = text[at];  // " or `
  for (++at; at < text.size();) {
    const char c = text[at];
    if (c == '\\') {
      at += 2;
    } else if (c == close) {
      return at + 1;
    } else if (close == '"' && c == '$' && at + 1 < text.size() &&
               (text[at + 1] == '{' || text[at + 1] == '(')) {
      at = end_of_quote(text, at, depth + 1);
      if (at == kNone) return kNone;
    } else {
      ++at;
    }
  }
  return kNone;
}

constexpr std::array<std::string_view, 15> kOperators{
    "&&", "||", ";;", "<<<", "<<-", "<<", ">>", "&>", "|&", ">&", "<&", ";", "|", "&", "\n"};

class Tokens {
 public:
  Tokens(std::string_view text, std::int32_t line) : text_(text), line_(line) {}

  Result<std::vector<ShellToken>> run() {
    while (problem_.empty() && at_ < text_.size()) next();
    if (!problem_.empty()) return Error{std::to_string(line_) + ": " + problem_};
    return std::move(tokens_);
  }

 private:
  void next() {
    const char c = text_[at_];
    if (c == ' ' || c == '\t' || c == '\r') {
      ++at_;
    } else if (c == '\\' && text_.substr(at_, 3) == "\\\r\n") {
      at_ += 3;
      ++line_;
    } else if (c == '\\' && at_ + 1 < text_.size() && text_[at_ + 1] == '\n') {
      at_ += 2;
      ++line_;
    } else if (c == '#') {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else if (c == '\n') {
      add(ShellToken::Kind::Newline, "\n");
      ++at_;
      ++line_;
      read_documents();
    } else if (!operators()) {
      word();
    }
  }
  void add(ShellToken::Kind kind, std::string_view text) {
    tokens_.push_back({.kind = kind, .text = std::string(text), .line = line_});
  }

  bool operators() {
    for (const std::string_view op : kOperators) {
      if (text_.substr(at_, op.size()) != op) continue;
      at_ += op.size();
      add(ShellToken::Kind::Operator, op);
      if (op == "<<" || op == "<<-") expect_document(op == "<<-");
      return true;
    }
    if (text_[at_] == '(' || text_[at_] == ')' || text_[at_] == '<' || text_[at_] == '>') {
      add(ShellToken::Kind::Operator, text_.substr(at_++, 1));
      return true;
    }
    return false;
  }

  // The word that ends a here-document stands behind <<.
  void expect_document(bool tabs) {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
    Document document{.tabs = tabs};
    while (at_ < text_.size() && std::string_view(" \t\r\n;|&<>()").find(text_[at_]) == kNone) {
      const char c = text_[at_++];
      if (c == '\'' || c == '"' || c == '\\')
        document.quoted = true;
      else
        document.end += c;
    }
    // Its token stands where it is named; the text follows at the line's end.
    document.token = tokens_.size();
    add(ShellToken::Kind::HereDocument, "");
    tokens_.back().quoted = document.quoted;
    documents_.push_back(std::move(document));
  }
  void read_documents() {
    for (const Document& document : documents_) {
      std::string body;
      tokens_[document.token].line = line_;
      while (at_ < text_.size()) {
        const std::size_t end = std::min(text_.find('\n', at_), text_.size());
        std::string_view row = text_.substr(at_, end - at_);
        at_ = std::min(end + 1, text_.size());
        ++line_;
        if (document.tabs) row.remove_prefix(std::min(row.find_first_not_of('\t'), row.size()));
        if (row.ends_with('\r')) row.remove_suffix(1);
        if (row == document.end) break;
        body += std::string(row) + "\n";
      }
      tokens_[document.token].text = std::move(body);
    }
    documents_.clear();
  }

  void word() {
    const std::size_t first = at_;
    const std::int32_t line = line_;
    while (problem_.empty() && at_ < text_.size()) {
      const char c = text_[at_];
      const bool dollar =
          c == '$' && at_ + 1 < text_.size() && (text_[at_ + 1] == '{' || text_[at_ + 1] == '(');
      if (c == '\\') {
        at_ += 2;
      } else if (c == '\'' || c == '"' || c == '`' || dollar) {
        const std::size_t end = rehearse::end_of_quote(text_, at_);
        if (end == kNone)
          problem_ = "a quote or a parenthesis that does not end";
        else
          at_ = end;
      } else if (c == '(' && at_ > first && text_[at_ - 1] == '=') {
        at_ = end_of_array();
      } else if (std::string_view(" \t\r\n;|&<>()").find(c) != kNone) {
        break;
      } else {
        ++at_;
      }
    }
    at_ = std::min(at_, text_.size());
    const std::string_view raw = text_.substr(first, at_ - first);
    line_ += static_cast<std::int32_t>(std::ranges::count(raw, '\n'));
    const bool stream = at_ < text_.size() && (text_[at_] == '<' || text_[at_] == '>') &&
                        raw.find_first_not_of("0123456789") == kNone;
    if (stream) return;  // 2 of 2>&1
    add(ShellToken::Kind::Word, raw);
    tokens_.back().line = line;
  }
  // NAME=( words ): comments inside end with their line.
  std::size_t end_of_array() {
    std::size_t at = at_ + 1;
    bool begins = true;  // a word may begin here
    while (at < text_.size()) {
      const char c = text_[at];
      if (c == ')') return at + 1;
      if (c == '#' && begins) {
        at = std::min(text_.find('\n', at), text_.size());
        continue;
      }
      begins = c == ' ' || c == '\t' || c == '\n';
      const bool dollar =
          c == '$' && at + 1 < text_.size() && (text_[at + 1] == '{' || text_[at + 1] == '(');
      if (c == '\\') {
        at += 2;
      } else if (c == '\'' || c == '"' || c == '`' || dollar) {
        at = rehearse::end_of_quote(text_, at);
        if (at == kNone) break;
      } else {
        ++at;
      }
    }
    problem_ = "an array that does not end";
    return text_.size();
  }

  struct Document {
    std::string end;
    bool tabs = false, quoted = false;
    std::size_t token = 0;
  };
  std::string_view text_;
  std::size_t at_ = 0;
  std::int32_t line_;
  std::string problem_;
  std::vector<ShellToken> tokens_;
  std::vector<Document> documents_;
};

}  // namespace

std::size_t end_of_quote(std::string_view text, std::size_t at) {
  return end_of_quote(text, at, 0);
}

Result<std::vector<ShellToken>> shell_tokens(std::string_view text, std::int32_t first_line) {
  return Tokens(text, first_line).run();
}

}  // namespace rehearse
