// SPDX-License-Identifier: Apache-2.0
// The syntax of formulas in data files, of layer kinds and mappings as of frameworks: a text
// becomes a tree. What names and functions mean, and over which values they run, is for those that
// walk it (schedules/model/kinds/expression.h, schedules/frameworks/formula.h).
//
//   num_experts ?? 0 > 0 && tokens % 8 == 0 ? 2 * d + min(f, 64) : sizes[1]
//
// From the loosest to the tightest: c ? a : b; ??; `||` or; `&&` and; not; == != < <= > >= in;
// + -; * / %; - !; x[i]. Numbers, 'texts', true, false, none (null), names with dots, f(a, b),
// [lists].
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/base/result.h"

namespace rehearse {

struct FormulaNode {
  enum class Kind : std::uint8_t {
    Number,
    Text,
    Truth,  // true, false: number 1, 0
    None,
    Name,    // word
    Call,    // word: the function; parts: its operands
    List,    // parts
    At,      // parts: list, index
    Choice,  // parts: condition, yes, no
    Binary,  // word: the operator, && and || for `and` and `or`
    Unary    // word: "-", "!" (also for `not`)
  };
  Kind kind = Kind::None;
  double number = 0;
  std::string word;
  std::vector<std::int32_t> parts;  // nodes that stand before this one
};

struct FormulaTree {
  std::vector<FormulaNode> nodes;
  std::int32_t root = -1;
};

// Errors: the text and what is wrong with it, on one line, without a place.
Result<FormulaTree> read_formula_tree(std::string_view text);

}  // namespace rehearse
