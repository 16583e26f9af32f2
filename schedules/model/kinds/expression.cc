// SPDX-License-Identifier: Apache-2.0
// The tree of a text becomes postfix steps; two short machines run them.
#include "schedules/model/kinds/expression.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "schedules/base/formula/formula_tree.h"
#include "schedules/base/json_reader.h"

namespace rehearse {
namespace {

constexpr double kMostWhole = 9007199254740992.0;  // 2^53

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

// The steps of a tree, its operands before each.
class ExpressionReader {
 public:
  using Op = Expression::Op;
  ExpressionReader(std::string_view text, const FormulaTree& tree,
                   std::span<const std::string> names)
      : text_(text), tree_(tree), names_(names) {}

  Result<Expression> run() {
    take(tree_.root);
    if (!error_.empty()) return Error{json_excerpt(text_) + " " + error_};
    made_.text_ = std::string(text_);
    return std::move(made_);
  }

 private:
  struct Word {
    std::string_view text;
    std::size_t operands;
    Op op;
    bool denied = false;
  };
  void fail(const std::string& what) {
    if (error_.empty()) error_ = what;
  }
  void add(Op op) { made_.steps_.push_back({.op = op}); }
  void operands(const FormulaNode& node) {
    for (const std::int32_t part : node.parts) take(part);
  }
  void take(std::int32_t index) {
    using Kind = FormulaNode::Kind;
    const FormulaNode& node = tree_.nodes[static_cast<std::size_t>(index)];
    switch (node.kind) {
      case Kind::Number:
        if (node.number != std::floor(node.number)) fail("has a number that is not whole");
        if (node.number > kMostWhole) fail("has a number beyond 2^53");
        made_.steps_.push_back({.op = Op::Number, .number = node.number});
        return;
      case Kind::Truth:
        made_.steps_.push_back({.op = Op::Number, .number = node.number});
        return;
      case Kind::Text:
        made_.steps_.push_back({.op = Op::Word, .word = node.word});
        return;
      case Kind::None:
        return add(Op::Null);
      case Kind::Name:
        return slot(node.word);
      case Kind::Call:
        return called(node);
      case Kind::Choice:
        operands(node);
        return add(Op::When);
      case Kind::At:
        operands(node);
        return add(Op::At);
      case Kind::Unary:
        operands(node);
        return add(node.word == "-" ? Op::Negate : Op::Not);
      case Kind::Binary:
        return joined(node);
      case Kind::List:
        return fail("has a list, which means nothing here");
    }
  }
  void called(const FormulaNode& node) {
    static constexpr Word kFunctions[]{{"when", 3, Op::When},
                                       {"ceil", 2, Op::Ceil},
                                       {"min", 2, Op::Min},
                                       {"max", 2, Op::Max},
                                       {"len", 1, Op::Length}};
    for (const Word& function : kFunctions) {
      if (function.text != node.word || function.operands != node.parts.size()) continue;
      operands(node);
      return add(function.op);
    }
    fail("has no function " + node.word + " of " + std::to_string(node.parts.size()));
  }
  void joined(const FormulaNode& node) {
    static constexpr Word kOperators[]{
        {"||", 2, Op::Or},         {"&&", 2, Op::And},        {"==", 2, Op::Equal},
        {"!=", 2, Op::Differs},    {"<=", 2, Op::AtMost},     {"<", 2, Op::Less},
        {"in", 2, Op::In},         {"+", 2, Op::Add},         {"-", 2, Op::Subtract},
        {"*", 2, Op::Multiply},    {"/", 2, Op::Divide},      {"%", 2, Op::Modulo},
        {">=", 2, Op::Less, true}, {">", 2, Op::AtMost, true}};
    for (const Word& one : kOperators) {
      if (one.text != node.word) continue;
      operands(node);
      add(one.op);
      if (one.denied) add(Op::Not);  // >= is not less
      return;
    }
    fail("has " + node.word + ", which means nothing here");
  }
  void slot(const std::string& name) {
    const auto found = std::ranges::find(names_, name);
    if (found == names_.end()) {
      const std::vector<std::string_view> known(names_.begin(), names_.end());
      return fail("knows no " + name + what_is_known(name, known));
    }
    made_.steps_.push_back(
        {.op = Op::Slot, .slot = static_cast<std::int32_t>(found - names_.begin())});
  }

  std::string_view text_;
  const FormulaTree& tree_;
  std::span<const std::string> names_;
  Expression made_;
  std::string error_;
};

Result<Expression> Expression::read(std::string_view text, std::span<const std::string> names) {
  const Result<FormulaTree> tree = read_formula_tree(text);
  if (!tree) return tree.error();
  return ExpressionReader(text, tree.value(), names).run();
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
  // Short ones, which costs are, need no memory of their own.
  std::array<double, 32> few{};
  std::vector<double> many(steps_.size() > few.size() ? steps_.size() : 0);
  double* top = many.empty() ? few.data() : many.data();  // one beyond the last
  const auto pop = [&top] { return *--top; };
  for (const Step& step : steps_) {
    switch (step.op) {
      case Op::Number:
        *top++ = step.number;
        continue;
      case Op::Slot:
        *top++ = slots[static_cast<std::size_t>(step.slot)];
        continue;
      case Op::Negate:
        top[-1] = -top[-1];
        continue;
      case Op::Not:
        top[-1] = top[-1] == 0 ? 1 : 0;
        continue;
      case Op::When: {
        const double otherwise = pop(), then = pop();
        top[-1] = top[-1] != 0 ? then : otherwise;
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
    *top++ = of();
  }
  return steps_.empty() ? 0 : top[-1];
}

namespace {

bool is_whole(double number) {
  return std::isfinite(number) && number == std::floor(number);
}

}  // namespace

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
    if (!is_whole(number) || std::abs(number) > kMostWhole) {
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
          // A config's fraction times a number may be one; who needs a whole number says so.
          return is_whole(a.number) && is_whole(b.number) ? whole(a.number * b.number, a, b, "*")
                                                          : Value::of(a.number * b.number);
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
