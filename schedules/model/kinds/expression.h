// SPDX-License-Identifier: Apache-2.0
// Expressions of layer kinds and mappings: strings such as "2*d + when(gated, f, 0)".
//
// Whole numbers, 'words', null, names, ( ), + - * / %, comparisons, and or not, `a in b`,
// when(c, a, b), ceil(a, b) of a/b, min, max, len(list), list[i]. False is 0, true is 1. A name is
// a slot of the caller's; which one is settled when the text is read, so an unknown name is an
// error there.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/base/result.h"

namespace rehearse {

// What a name may stand for: a number, or what config.json says of a key.
struct ExpressionValue {
  enum class Kind : std::uint8_t { Null, Number, Word, List };
  Kind kind = Kind::Null;
  double number = 0;  // whole numbers up to 2^53 exactly
  std::string word;
  std::vector<ExpressionValue> items;

  static ExpressionValue of(double number);
  static ExpressionValue of_word(std::string word);
  bool operator==(const ExpressionValue&) const = default;
};
std::string shown(const ExpressionValue& value);  // for people

class Expression {
 public:
  Expression() = default;  // says nothing
  // Errors: what is wrong with the text, without a place.
  static Result<Expression> read(std::string_view text, std::span<const std::string> names);

  bool given() const { return !steps_.empty(); }
  const std::string& text() const { return text_; }

  // Over numbers alone: of costs, `/` is real division. REQUIRES: the text has no words, lists and
  // nulls (is_numeric); a slot for every name.
  double number(std::span<const double> slots) const;
  bool is_numeric() const;
  // The slots that it reads, in the order of the text, each once.
  std::vector<std::int32_t> slots() const;

  // In whole numbers: `/` must come out even. Errors: what went wrong, with the operands' values.
  Result<ExpressionValue> value(std::span<const ExpressionValue> slots) const;

 private:
  friend class ExpressionReader;
  enum class Op : std::uint8_t {
    Number,
    Word,
    Null,
    Slot,
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    Negate,
    Not,
    And,
    Or,
    Equal,
    Differs,
    Less,
    AtMost,
    In,
    When,
    Ceil,
    Min,
    Max,
    Length,
    At,
  };
  // Postfix: a step takes what it needs off the stack.
  struct Step {
    Op op{};
    std::int32_t slot = -1;
    double number = 0;
    std::string word{};
  };
  std::string text_;
  std::vector<Step> steps_;
};

}  // namespace rehearse
