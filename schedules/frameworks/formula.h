// SPDX-License-Identifier: Apache-2.0
// Formulas of the files in scenarios/frameworks/: how a framework's flags become keys of a
// scenario, and keys flags.
//
//   num_layers_per_virtual_pipeline_stage != none ? num_layers / pipeline / virtual : 1
//
// The syntax is schedules/base/formula/formula_tree.h's. Lists add and repeat as in Python:
// [0] * 3 + [1] * 58. Arithmetic with none is none; a comparison with it is false. given(x): the
// file says x. lookup('table', x): a row of the file's. The other functions: kFunctions in
// formula.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/base/formula/formula_tree.h"
#include "schedules/base/json_document.h"
#include "schedules/base/result.h"

namespace rehearse {

// What the names of a formula mean.
struct Names {
  std::function<Result<Json>(const std::string& name)> value;
  std::function<bool(const std::string& name)> given;
  // What lookup('table', text) gives: the value of the first row whose pattern the text matches;
  // for a list, those of its texts that have one.
  std::function<Json(const std::string& table, const std::string& text)> lookup;
};

class Formula {
 public:
  // Errors: one line, without a place.
  static Result<Formula> parse(std::string_view text);
  Result<Json> evaluate(const Names& names) const;
  std::vector<std::string> names() const;  // that it may ask for

 private:
  Result<Json> evaluate(std::int32_t node, const Names& names) const;
  Result<Json> binary(const FormulaNode& node, const Names& names) const;
  Result<Json> call(const FormulaNode& node, const Names& names) const;
  FormulaTree tree_;
};

// Whether a value counts as yes: true, a number but 0, a text or list that is not empty.
bool holds(const Json& value);
bool equal(const Json& a, const Json& b);
// A number as JSON has it: whole where it is whole.
Json number_value(double value);
// As people write it: a text bare, everything else as JSON.
std::string shown(const Json& value);
// The number that a text says: digits may be apart by _ (Python's), 1e9 is whole; none: it is none.
std::optional<double> number_of(std::string_view text);
// Whether `text` matches a pattern with * for any characters.
bool matches(std::string_view pattern, std::string_view text);

// A sentence with formulas in it: "{layers} is no multiple of {p}"; "${" is the shell's.
class Sentence {
 public:
  static Result<Sentence> parse(std::string_view text);
  Result<std::string> written(const Names& names) const;
  bool empty() const { return pieces_.empty(); }
  std::vector<std::string> names() const;

 private:
  struct Piece {
    std::string text;
    std::optional<Formula> formula{};
  };
  std::vector<Piece> pieces_;
};

}  // namespace rehearse
