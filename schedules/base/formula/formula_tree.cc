// SPDX-License-Identifier: Apache-2.0
#include "schedules/base/formula/formula_tree.h"

#include <array>
#include <cctype>
#include <charconv>

#include "schedules/base/json_reader.h"

namespace rehearse {
namespace {

constexpr int kDeepestFormula = 100;  // parentheses in parentheses

using Kind = FormulaNode::Kind;

// Operators of one strength; `means`: as the tree has it.
struct Operator {
  std::string_view text, means;
};
constexpr std::array<std::array<Operator, 7>, 2> kChoices{{
    {{{"||", "||"}, {"or", "||"}}},
    {{{"&&", "&&"}, {"and", "&&"}}},
}};
constexpr std::array<Operator, 7> kComparisons{
    {{"==", "=="}, {"!=", "!="}, {"<=", "<="}, {">=", ">="}, {"<", "<"}, {">", ">"}, {"in", "in"}}};
constexpr std::array<std::array<Operator, 7>, 2> kArithmetic{{
    {{{"+", "+"}, {"-", "-"}}},
    {{{"*", "*"}, {"/", "/"}, {"%", "%"}}},
}};

class FormulaReader {
 public:
  explicit FormulaReader(std::string_view text) : text_(text) {}

  Result<FormulaTree> read() {
    made_.root = choice();
    skip();
    if (error_.empty() && at_ < text_.size()) fail("ends too early, before " + rest());
    if (!error_.empty()) return Error{error_};
    return std::move(made_);
  }

 private:
  std::int32_t fail(const std::string& what) {
    if (error_.empty()) error_ = json_excerpt(text_) + " " + what;
    return 0;
  }
  std::string rest() const { return json_excerpt(text_.substr(at_)); }
  void skip() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }
  static bool is_letter(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
  }
  // Takes the symbol, or the word as a whole.
  bool take(std::string_view what) {
    skip();
    if (what.empty() || text_.substr(at_, what.size()) != what) return false;
    const std::size_t end = at_ + what.size();
    if (is_letter(what.front()) && end < text_.size() && is_letter(text_[end])) return false;
    at_ = end;
    return true;
  }
  void need(std::string_view what) {
    if (!take(what)) fail("lacks a " + std::string(what) + " before " + rest());
  }
  std::int32_t add(FormulaNode node) {
    made_.nodes.push_back(std::move(node));
    return static_cast<std::int32_t>(made_.nodes.size()) - 1;
  }
  std::int32_t add(Kind kind, std::string_view word, std::vector<std::int32_t> parts) {
    return add({.kind = kind, .word = std::string(word), .parts = std::move(parts)});
  }
  template <std::size_t N>
  std::string_view taken(const std::array<Operator, N>& operators) {
    for (const Operator& one : operators) {
      if (take(one.text)) return one.means;
    }
    return {};
  }

  std::int32_t choice() {
    if (++depth_ > kDeepestFormula) return fail("is nested too deeply");
    std::int32_t node = fallback();
    if (error_.empty() && take("?")) {
      const std::int32_t yes = choice();
      need(":");
      const std::int32_t no = choice();
      node = add(Kind::Choice, "", {node, yes, no});
    }
    --depth_;
    return node;
  }
  // a ?? b: b where a is none. A single ? is a choice's.
  std::int32_t fallback() {
    std::int32_t left = either(0);
    while (error_.empty() && take("??")) {
      const std::int32_t right = either(0);
      left = add(Kind::Binary, "??", {left, right});
    }
    return left;
  }
  std::int32_t either(std::size_t level) {
    if (level == kChoices.size()) return denied();
    std::int32_t left = either(level + 1);
    while (error_.empty()) {
      const std::string_view op = taken(kChoices[level]);
      if (op.empty()) break;
      const std::int32_t right = either(level + 1);
      left = add(Kind::Binary, op, {left, right});
    }
    return left;
  }
  std::int32_t denied() {
    if (!take("not")) return compared();
    return add(Kind::Unary, "!", {compared()});
  }
  std::int32_t compared() {
    std::int32_t left = arithmetic(0);
    while (error_.empty()) {
      const std::string_view op = taken(kComparisons);
      if (op.empty()) break;
      const std::int32_t right = arithmetic(0);
      left = add(Kind::Binary, op, {left, right});
    }
    return left;
  }
  std::int32_t arithmetic(std::size_t level) {
    if (level == kArithmetic.size()) return unary();
    std::int32_t left = arithmetic(level + 1);
    while (error_.empty()) {
      const std::string_view op = taken(kArithmetic[level]);
      if (op.empty()) break;
      const std::int32_t right = arithmetic(level + 1);
      left = add(Kind::Binary, op, {left, right});
    }
    return left;
  }
  std::int32_t unary() {
    if (++depth_ > kDeepestFormula) return fail("is nested too deeply");
    skip();
    std::int32_t node = 0;
    if (take("-"))
      node = add(Kind::Unary, "-", {unary()});
    else if (text_.substr(at_, 2) != "!=" && take("!"))
      node = add(Kind::Unary, "!", {unary()});
    else
      node = element();
    --depth_;
    return node;
  }
  std::int32_t element() {
    std::int32_t node = primary();
    while (error_.empty() && take("[")) {
      const std::int32_t index = choice();
      need("]");
      node = add(Kind::At, "", {node, index});
    }
    return node;
  }
  std::vector<std::int32_t> operands(std::string_view close) {
    std::vector<std::int32_t> parts;
    if (take(close)) return parts;
    do {
      parts.push_back(choice());
    } while (error_.empty() && take(","));
    need(close);
    return parts;
  }
  std::int32_t primary() {
    skip();
    if (at_ >= text_.size()) return fail("ends too early");
    const char first = text_[at_];
    if (take("(")) {
      const std::int32_t inner = choice();
      need(")");
      return inner;
    }
    if (take("[")) return add(Kind::List, "", operands("]"));
    if (first == '\'') return text();
    if (std::isdigit(static_cast<unsigned char>(first)) != 0 || first == '.') return number();
    if (!is_letter(first)) return fail("has no value before " + rest());
    return word();
  }
  std::int32_t text() {
    const std::size_t end = text_.find('\'', at_ + 1);
    if (end == std::string_view::npos) return fail("has a word without its end");
    const std::string_view inside = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return add(Kind::Text, inside, {});
  }
  std::int32_t number() {
    double value = 0;
    const char* begin = text_.data() + at_;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), value);
    if (error != std::errc()) return fail("has a number that is none before " + rest());
    at_ += static_cast<std::size_t>(end - begin);
    return add({.kind = Kind::Number, .number = value});
  }
  std::int32_t word() {
    const std::size_t first = at_;
    while (at_ < text_.size() && (is_letter(text_[at_]) || text_[at_] == '.')) ++at_;
    const std::string_view name = text_.substr(first, at_ - first);
    if (name == "true" || name == "false") {
      return add({.kind = Kind::Truth, .number = name == "true" ? 1.0 : 0.0});
    }
    if (name == "none" || name == "null") return add(Kind::None, "", {});
    if (take("(")) return add(Kind::Call, name, operands(")"));
    return add(Kind::Name, name, {});
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int depth_ = 0;
  std::string error_;
  FormulaTree made_;
};

}  // namespace

Result<FormulaTree> read_formula_tree(std::string_view text) {
  return FormulaReader(text).read();
}

}  // namespace rehearse
