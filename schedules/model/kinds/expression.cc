// SPDX-License-Identifier: Apache-2.0
// A recursive descent over the text leaves postfix steps; two short machines run them.
#include "schedules/model/kinds/expression.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "schedules/base/json_reader.h"

namespace rehearse {
namespace {

constexpr double kMostWhole = 9007199254740992.0;  // 2^53
constexpr int kDeepest = 100;                      // parentheses in parentheses

bool is_true(const ExpressionValue& value) {
  switch (value.kind) {
    case ExpressionValue::Kind::Null:
      return false;
    case ExpressionValue::Kind::Number:
      return value.number != 0;
    case ExpressionValue::Kind::Word:
      return !value.word.empty();
    case ExpressionValue::Kind::List:
      return !value.items.empty();
  }
  return false;
}

}  // namespace

ExpressionValue ExpressionValue::of(double number) {
  return {.kind = Kind::Number, .number = number, .word = {}, .items = {}};
}

ExpressionValue ExpressionValue::of_word(std::string word) {
  return {.kind = Kind::Word, .number = 0, .word = std::move(word), .items = {}};
}

std::string shown(const ExpressionValue& value) {
  switch (value.kind) {
    case ExpressionValue::Kind::Null:
      return "null";
    case ExpressionValue::Kind::Number:
      return json_number(value.number);
    case ExpressionValue::Kind::Word:
      return "'" + value.word + "'";
    case ExpressionValue::Kind::List:
      return "a list of " + std::to_string(value.items.size());
  }
  return "";
}

class ExpressionReader {
 public:
  using Op = Expression::Op;
  ExpressionReader(std::string_view text, std::span<const std::string> names)
      : text_(text), names_(names) {}

  Result<Expression> read() {
    either();
    skip();
    if (error_.empty() && at_ < text_.size()) fail("ends too early, before " + rest());
    if (!error_.empty()) return Error{error_};
    Expression read;
    read.text_ = std::string(text_);
    read.steps_ = std::move(steps_);
    return read;
  }

 private:
  void fail(const std::string& what) {
    if (error_.empty()) error_ = json_excerpt(text_) + " " + what;
  }
  std::string rest() const { return json_excerpt(text_.substr(at_)); }
  void skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  static bool is_letter(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
  }
  // Takes the symbol, or the word as a whole.
  bool take(std::string_view what) {
    skip();
    if (text_.substr(at_, what.size()) != what) return false;
    const std::size_t end = at_ + what.size();
    if (is_letter(what.front()) && end < text_.size() && is_letter(text_[end])) return false;
    at_ = end;
    return true;
  }
  void need(std::string_view what) {
    if (!take(what)) fail("lacks a " + std::string(what) + " before " + rest());
  }
  void add(Op op) { steps_.push_back({.op = op}); }

  void either() {
    if (++depth_ > kDeepest) return fail("is nested too deeply");
    both();
    while (error_.empty() && take("or")) {
      both();
      add(Op::Or);
    }
    --depth_;
  }
  void both() {
    denied();
    while (error_.empty() && take("and")) {
      denied();
      add(Op::And);
    }
  }
  void denied() {
    if (!take("not")) return compared();
    compared();
    add(Op::Not);
  }
  void compared() {
    sum();
    if (take("==")) return behind(Op::Equal);
    if (take("!=")) return behind(Op::Differs);
    if (take("<=")) return behind(Op::AtMost);
    if (take("<")) return behind(Op::Less);
    if (take(">=")) {  // not less
      behind(Op::Less);
      return add(Op::Not);
    }
    if (take(">")) {
      behind(Op::AtMost);
      return add(Op::Not);
    }
    if (take("in")) behind(Op::In);
  }
  void behind(Op op) {
    sum();
    add(op);
  }
  void sum() {
    product();
    while (error_.empty()) {
      if (take("+")) {
        product();
        add(Op::Add);
      } else if (take("-")) {
        product();
        add(Op::Subtract);
      } else {
        return;
      }
    }
  }
  void product() {
    one();
    while (error_.empty()) {
      if (take("*")) {
        one();
        add(Op::Multiply);
      } else if (take("/")) {
        one();
        add(Op::Divide);
      } else if (take("%")) {
        one();
        add(Op::Modulo);
      } else {
        return;
      }
    }
  }
  void one() {
    if (take("-")) {
      one();
      return add(Op::Negate);
    }
    primary();
    while (error_.empty() && take("[")) {
      either();
      need("]");
      add(Op::At);
    }
  }
  void primary() {
    skip();
    if (at_ >= text_.size()) return fail("ends too early");
    const char first = text_[at_];
    if (std::isdigit(static_cast<unsigned char>(first)) != 0) return digits();
    if (first == '\'') return word();
    if (take("(")) {
      either();
      return need(")");
    }
    if (!is_letter(first)) return fail("has no value before " + rest());
    const std::size_t begin = at_;
    while (at_ < text_.size() && (is_letter(text_[at_]) || text_[at_] == '.')) ++at_;
    named(text_.substr(begin, at_ - begin));
  }
  void digits() {
    double number = 0;
    while (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])) != 0) {
      number = number * 10 + (text_[at_++] - '0');
    }
    if (number > kMostWhole) return fail("has a number beyond 2^53");
    steps_.push_back({.op = Op::Number, .number = number});
  }
  void word() {
    const std::size_t end = text_.find('\'', at_ + 1);
    if (end == std::string_view::npos) return fail("has a word without its end");
    steps_.push_back({.op = Op::Word, .word = std::string(text_.substr(at_ + 1, end - at_ - 1))});
    at_ = end + 1;
  }
  void named(std::string_view name) {
    if (name == "null") return add(Op::Null);
    struct Function {
      std::string_view name;
      int operands;
      Op op;
    };
    constexpr Function kFunctions[]{{"when", 3, Op::When},
                                    {"ceil", 2, Op::Ceil},
                                    {"min", 2, Op::Min},
                                    {"max", 2, Op::Max},
                                    {"len", 1, Op::Length}};
    for (const Function& function : kFunctions) {
      if (function.name != name) continue;
      need("(");
      for (int i = 0; i < function.operands && error_.empty(); ++i) {
        if (i > 0) need(",");
        either();
      }
      need(")");
      return add(function.op);
    }
    const auto found = std::ranges::find(names_, name);
    if (found == names_.end()) {
      const std::vector<std::string_view> known(names_.begin(), names_.end());
      return fail("knows no " + std::string(name) + what_is_known(name, known));
    }
    steps_.push_back({.op = Op::Slot, .slot = static_cast<std::int32_t>(found - names_.begin())});
  }

  std::string_view text_;
  std::span<const std::string> names_;
  std::size_t at_ = 0;
  int depth_ = 0;
  std::vector<Expression::Step> steps_;
  std::string error_;
};

Result<Expression> Expression::read(std::string_view text, std::span<const std::string> names) {
  return ExpressionReader(text, names).read();
}

bool Expression::is_numeric() const {
  return std::ranges::none_of(steps_, [](const Step& step) {
    return step.op == Op::Word || step.op == Op::Null || step.op == Op::In ||
           step.op == Op::Length || step.op == Op::At;
  });
}

std::vector<std::int32_t> Expression::slots() const {
  std::vector<std::int32_t> read;
  for (const Step& step : steps_) {
    if (step.op == Op::Slot && std::ranges::find(read, step.slot) == read.end()) {
      read.push_back(step.slot);
    }
  }
  return read;
}

double Expression::number(std::span<const double> slots) const {
  std::vector<double> stack;
  const auto pop = [&stack] {
    const double top = stack.back();
    stack.pop_back();
    return top;
  };
  for (const Step& step : steps_) {
    switch (step.op) {
      case Op::Number:
        stack.push_back(step.number);
        continue;
      case Op::Slot:
        stack.push_back(slots[static_cast<std::size_t>(step.slot)]);
        continue;
      case Op::Negate:
        stack.back() = -stack.back();
        continue;
      case Op::Not:
        stack.back() = stack.back() == 0 ? 1 : 0;
        continue;
      case Op::When: {
        const double otherwise = pop(), then = pop();
        stack.back() = stack.back() != 0 ? then : otherwise;
        continue;
      }
      default:
        break;
    }
    const double b = pop(), a = pop();
    const auto of = [&]() -> double {
      switch (step.op) {
        case Op::Add:
          return a + b;
        case Op::Subtract:
          return a - b;
        case Op::Multiply:
          return a * b;
        case Op::Divide:
          return b == 0 ? 0 : a / b;
        case Op::Modulo:
          return b == 0 ? 0 : std::fmod(a, b);
        case Op::And:
          return a != 0 && b != 0 ? 1 : 0;
        case Op::Or:
          return a != 0 || b != 0 ? 1 : 0;
        case Op::Equal:
          return a == b ? 1 : 0;
        case Op::Differs:
          return a != b ? 1 : 0;
        case Op::Less:
          return a < b ? 1 : 0;
        case Op::AtMost:
          return a <= b ? 1 : 0;
        case Op::Ceil:
          return b == 0 ? 0 : std::ceil(a / b);
        case Op::Min:
          return std::min(a, b);
        case Op::Max:
          return std::max(a, b);
        default:
          return 0;
      }
    };
    stack.push_back(of());
  }
  return stack.empty() ? 0 : stack.back();
}

Result<ExpressionValue> Expression::value(std::span<const ExpressionValue> slots) const {
  using Value = ExpressionValue;
  std::vector<Value> stack;
  const auto pop = [&stack] {
    Value top = std::move(stack.back());
    stack.pop_back();
    return top;
  };
  const auto truth = [](bool holds) { return Value::of(holds ? 1 : 0); };
  std::string error;
  const auto fail = [&error](const std::string& what) {
    if (error.empty()) error = what;
    return Value{};
  };
  const auto whole = [&](double number, const Value& a, const Value& b, const char* between) {
    if (!std::isfinite(number) || number != std::floor(number) || std::abs(number) > kMostWhole) {
      return fail(shown(a) + " " + between + " " + shown(b) + " is no whole number below 2^53");
    }
    return Value::of(number);
  };
  for (const Step& step : steps_) {
    switch (step.op) {
      case Op::Number:
        stack.push_back(Value::of(step.number));
        continue;
      case Op::Word:
        stack.push_back(Value::of_word(step.word));
        continue;
      case Op::Null:
        stack.emplace_back();
        continue;
      case Op::Slot:
        stack.push_back(slots[static_cast<std::size_t>(step.slot)]);
        continue;
      case Op::Not:
        stack.back() = truth(!is_true(stack.back()));
        continue;
      case Op::Length:
        stack.back() = Value::of(static_cast<double>(stack.back().items.size()));
        continue;
      case Op::When: {
        Value otherwise = pop(), then = pop();
        stack.back() = is_true(stack.back()) ? std::move(then) : std::move(otherwise);
        continue;
      }
      case Op::Negate:
        if (stack.back().kind != Value::Kind::Number) fail("- " + shown(stack.back()));
        stack.back().number = -stack.back().number;
        continue;
      default:
        break;
    }
    const Value b = pop(), a = pop();
    const bool numbers = a.kind == Value::Kind::Number && b.kind == Value::Kind::Number;
    const auto of = [&]() -> Value {
      switch (step.op) {
        case Op::And:
          return truth(is_true(a) && is_true(b));
        case Op::Or:
          return truth(is_true(a) || is_true(b));
        case Op::Equal:
          return truth(a == b);
        case Op::Differs:
          return truth(!(a == b));
        case Op::In:
          return truth(std::ranges::find(b.items, a) != b.items.end());
        case Op::At: {
          // A branch of `when` that is not taken may ask for what no list has.
          const bool there = a.kind == Value::Kind::List && b.kind == Value::Kind::Number &&
                             b.number >= 0 && b.number < static_cast<double>(a.items.size());
          return there ? a.items[static_cast<std::size_t>(b.number)] : Value{};
        }
        default:
          break;
      }
      // Likewise a number of nothing is nothing; who needs a number says so.
      if (a.kind == Value::Kind::Null || b.kind == Value::Kind::Null) return {};
      if (!numbers) return fail(shown(a) + " and " + shown(b) + " are no numbers");
      switch (step.op) {
        case Op::Add:
          return whole(a.number + b.number, a, b, "+");
        case Op::Subtract:
          return whole(a.number - b.number, a, b, "-");
        case Op::Multiply:
          return whole(a.number * b.number, a, b, "*");
        case Op::Divide:
          return whole(a.number / b.number, a, b, "/");
        case Op::Modulo:
          return whole(std::fmod(a.number, b.number), a, b, "%");
        case Op::Less:
          return truth(a.number < b.number);
        case Op::AtMost:
          return truth(a.number <= b.number);
        case Op::Ceil:
          return whole(std::ceil(a.number / b.number), a, b, "over");
        case Op::Min:
          return Value::of(std::min(a.number, b.number));
        case Op::Max:
          return Value::of(std::max(a.number, b.number));
        default:
          return {};
      }
    };
    stack.push_back(of());
  }
  if (!error.empty()) return Error{json_excerpt(text_) + ": " + error};
  return stack.empty() ? ExpressionValue{} : std::move(stack.back());
}

}  // namespace rehearse
