// SPDX-License-Identifier: Apache-2.0
#include "schedules/frameworks/formula.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <span>

#include "schedules/scenario/stage_layers.h"

namespace rehearse {

namespace {
constexpr std::size_t kMostItems = 1 << 16;  // of a list: far beyond any pipeline
}  // namespace

Result<Formula> Formula::parse(std::string_view text) {
  Result<FormulaTree> tree = read_formula_tree(text);
  if (!tree) return tree.error();
  Formula made;
  made.tree_ = std::move(tree).value();
  return made;
}

std::vector<std::string> Formula::names() const {
  std::vector<std::string> found;
  for (const FormulaNode& node : tree_.nodes) {
    if (node.kind == FormulaNode::Kind::Name) found.push_back(node.word);
  }
  return found;
}

// --- values

bool holds(const Json& value) {
  if (value.is_boolean()) return value.integer() != 0;
  if (value.is_number()) return value.number() != 0;
  if (value.is_string()) return !value.text().empty();
  return value.is_array() && !value.empty();
}

bool equal(const Json& a, const Json& b) {
  if (a.is_number() && b.is_number()) return a.number() == b.number();
  return a.dump() == b.dump();
}

Json number_value(double value) {
  constexpr double kWhole = 9007199254740992.0;  // 2^53
  if (std::floor(value) == value && std::abs(value) < kWhole) {
    return Json(static_cast<std::int64_t>(value));
  }
  return Json(value);
}

std::string shown(const Json& value) {
  return value.is_string() ? value.text() : value.dump();
}

bool matches(std::string_view pattern, std::string_view text) {
  const std::size_t star = pattern.find('*');
  if (star == std::string_view::npos) return pattern == text;
  if (!text.starts_with(pattern.substr(0, star))) return false;
  for (std::size_t at = star; at <= text.size(); ++at) {
    if (matches(pattern.substr(star + 1), text.substr(at))) return true;
  }
  return false;
}

namespace {

using Arguments = std::span<const Json>;

std::vector<Json> items_of(const Json& value) {
  return value.is_array() ? value.items() : std::vector<Json>{};
}
Json list_of(std::vector<Json> items) {
  Json list = Json::array();
  for (Json& item : items) list.push_back(std::move(item));
  return list;
}

template <double (*kFunction)(double)>
Result<Json> by_number(Arguments a) {
  if (a[0].is_null()) return Json();
  if (!a[0].is_number()) return Error{shown(a[0]) + " is no number"};
  return number_value(kFunction(a[0].number()));
}

Result<Json> extreme(Arguments a, bool largest) {
  double found =
      largest ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
  const std::vector<Json> items =
      a.size() == 1 ? items_of(a[0]) : std::vector<Json>(a.begin(), a.end());
  for (const Json& item : items) {
    if (!item.is_number()) return Json();
    found = largest ? std::max(found, item.number()) : std::min(found, item.number());
  }
  return items.empty() ? Json() : number_value(found);
}

Result<Json> to_number(Arguments a) {
  if (a[0].is_number() || a[0].is_null()) return a[0];
  const std::optional<double> value = number_of(shown(a[0]));
  return value ? number_value(*value) : Json();
}

Result<Json> length(Arguments a) {
  if (a[0].is_string()) return Json(a[0].text().size());
  return Json(a[0].is_array() ? a[0].size() : 0);
}

// at(list, i): i may count from the end, -1 the last; none where there is none.
Result<Json> at(Arguments a) {
  if (!a[0].is_array() || !a[1].is_number()) return Json();
  const auto size = static_cast<std::int64_t>(a[0].size());
  std::int64_t index = a[1].integer();
  if (index < 0) index += size;
  return index < 0 || index >= size ? Json() : a[0].items()[static_cast<std::size_t>(index)];
}

// has(list, value): of a text, whether it has the other in it.
Result<Json> has(Arguments a) {
  if (a[0].is_string()) return Json(a[0].text().find(shown(a[1])) != std::string::npos);
  for (const Json& item : items_of(a[0])) {
    if (equal(item, a[1])) return Json(true);
  }
  return Json(false);
}

Result<Json> split(Arguments a) {
  if (!a[0].is_string()) return a[0];
  const std::string text = a[0].text(), by = shown(a[1]);
  if (by.empty()) return Error{"split() by nothing"};
  std::vector<Json> parts;
  for (std::size_t from = 0; from <= text.size();) {
    const std::size_t end = std::min(text.find(by, from), text.size());
    parts.emplace_back(text.substr(from, end - from));
    from = end + by.size();
  }
  return list_of(std::move(parts));
}

Result<Json> join(Arguments a) {
  std::string text;
  for (const Json& item : items_of(a[0])) text += (text.empty() ? "" : shown(a[1])) + shown(item);
  return Json(text);
}

Result<Json> lower(Arguments a) {
  if (!a[0].is_string()) return a[0];
  std::string text = a[0].text();
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return Json(text);
}

Result<Json> starts(Arguments a) {
  return Json(a[0].is_string() && a[0].text().starts_with(shown(a[1])));
}
Result<Json> ends(Arguments a) {
  return Json(a[0].is_string() && a[0].text().ends_with(shown(a[1])));
}

// spread(total, parts): shares as even as they can be, larger ones first.
Result<Json> spread(Arguments a) {
  if (!a[0].is_number() || !a[1].is_number()) return Json();
  const std::int64_t total = a[0].integer(), parts = a[1].integer();
  if (parts < 1 || parts > static_cast<std::int64_t>(kMostItems)) return Json();
  std::vector<Json> shares;
  for (std::int64_t i = 0; i < parts; ++i) {
    shares.emplace_back(total / parts + (i < total % parts ? 1 : 0));
  }
  return list_of(std::move(shares));
}

// plus(list, i, amount): the list with so much more at i; -1 is the last.
Result<Json> plus(Arguments a) {
  std::vector<Json> items = items_of(a[0]);
  std::int64_t index = a[1].integer();
  if (index < 0) index += static_cast<std::int64_t>(items.size());
  if (index < 0 || index >= static_cast<std::int64_t>(items.size())) return a[0];
  Json& item = items[static_cast<std::size_t>(index)];
  item = number_value(item.number() + a[2].number());
  return list_of(std::move(items));
}

// deal(costs, parts): how many of the costs, in order, each part gets; the next part begins behind
// the cost with which the running sum exceeds (r + 1) / parts of the whole.
Result<Json> deal(Arguments a) {
  const std::vector<Json> costs = items_of(a[0]);
  if (!a[1].is_number() || a[1].integer() < 1) return Json();
  const auto parts = static_cast<std::size_t>(
      std::min<std::int64_t>(a[1].integer(), static_cast<std::int64_t>(kMostItems)));
  double whole = 0, running = 0;
  for (const Json& cost : costs) whole += cost.number();
  std::vector<std::int64_t> counts(parts, 0);
  std::size_t part = 0;
  for (const Json& cost : costs) {
    running += cost.number();
    ++counts[part];
    const double bound = whole * static_cast<double>(part + 1) / static_cast<double>(parts);
    if (running > bound && part + 1 < parts) ++part;
  }
  return Json(counts);
}

Result<Json> sum(Arguments a) {
  double total = 0;
  for (const Json& item : items_of(a[0])) {
    if (!item.is_number()) return Json();
    total += item.number();
  }
  return number_value(total);
}

// A layout string of Megatron-LM's as its chunks' layers.
Result<Json> layout(Arguments a) {
  if (!a[0].is_string()) return Json();
  const Result<StageLayout> read = parse_layout(a[0].text());
  if (!read) return read.error();
  std::vector<Json> layers;
  for (const std::int32_t n : read.value().layers) layers.emplace_back(n);
  return list_of(std::move(layers));
}

// A list or a number as the text of a formula without names: "[0]*3+[1]*58".
Result<Json> value_of_text(Arguments a) {
  if (!a[0].is_string()) return a[0];
  const Result<Formula> read = Formula::parse(a[0].text());
  if (!read) return Json();
  return read.value().evaluate({});
}

struct Function {
  std::string_view name;
  std::size_t least, most;
  Result<Json> (*apply)(Arguments);
};
constexpr Function kFunctions[]{
    {"floor", 1, 1, by_number<std::floor>},
    {"ceil", 1, 1, by_number<std::ceil>},
    {"round", 1, 1, by_number<std::round>},
    {"min", 1, 8, [](Arguments a) { return extreme(a, false); }},
    {"max", 1, 8, [](Arguments a) { return extreme(a, true); }},
    {"number", 1, 1, to_number},
    {"text", 1, 1, [](Arguments a) -> Result<Json> { return Json(shown(a[0])); }},
    {"length", 1, 1, length},
    {"at", 2, 2, at},
    {"has", 2, 2, has},
    {"split", 2, 2, split},
    {"join", 2, 2, join},
    {"lower", 1, 1, lower},
    {"starts", 2, 2, starts},
    {"ends", 2, 2, ends},
    {"spread", 2, 2, spread},
    {"plus", 3, 3, plus},
    {"deal", 2, 2, deal},
    {"sum", 1, 1, sum},
    {"layout", 1, 1, layout},
    {"value", 1, 1, value_of_text},
};

Result<Json> arithmetic(const std::string& op, const Json& a, const Json& b) {
  if (a.is_null() || b.is_null()) return Json();
  if (op == "+" && a.is_string() && b.is_string()) return Json(a.text() + b.text());
  if (op == "+" && a.is_array() && b.is_array()) {
    std::vector<Json> items = a.items();
    if (items.size() + b.size() > kMostItems) return Error{"a list that is too long"};
    for (const Json& item : b.items()) items.push_back(item);
    return list_of(std::move(items));
  }
  if (op == "*" && a.is_array() && b.is_number()) {
    std::vector<Json> items;
    if (b.number() * static_cast<double>(a.size()) > kMostItems) {
      return Error{"a list that is too long"};
    }
    for (std::int64_t i = 0; i < b.integer(); ++i) {
      items.insert(items.end(), a.items().begin(), a.items().end());
    }
    return list_of(std::move(items));
  }
  if (!a.is_number()) return Error{shown(a) + " is no number"};
  if (!b.is_number()) return Error{shown(b) + " is no number"};
  const double x = a.number(), y = b.number();
  if ((op == "/" || op == "%") && y == 0) return Error{"division by 0"};
  return number_value(op == "+"   ? x + y
                      : op == "-" ? x - y
                      : op == "*" ? x * y
                      : op == "/" ? x / y
                                  : std::fmod(x, y));
}

Json compared(const std::string& op, const Json& a, const Json& b) {
  if (op == "==") return Json(equal(a, b));
  if (op == "!=") return Json(!equal(a, b));
  if (!a.is_number() || !b.is_number()) return Json(false);
  const double x = a.number(), y = b.number();
  return Json(op == "<" ? x < y : op == ">" ? x > y : op == "<=" ? x <= y : x >= y);
}

}  // namespace

std::optional<double> number_of(std::string_view text) {
  std::string plain;
  for (const char c : text) {
    if (c != '_') plain += c;
  }
  const char* begin = plain.data() + (plain.starts_with('+') ? 1 : 0);
  double value = 0;
  const auto [end, error] = std::from_chars(begin, plain.data() + plain.size(), value);
  if (error != std::errc() || end != plain.data() + plain.size() || !std::isfinite(value))
    return {};
  return value;
}

// --- evaluating

Result<Json> Formula::binary(const FormulaNode& node, const Names& names) const {
  Result<Json> left = evaluate(node.parts[0], names);
  if (!left) return left;
  if (node.word == "??") {
    return left.value().is_null() ? evaluate(node.parts[1], names) : std::move(left);
  }
  if (node.word == "&&" && !holds(left.value())) return Json(false);
  if (node.word == "||" && holds(left.value())) return Json(true);
  Result<Json> right = evaluate(node.parts[1], names);
  if (!right) return right;
  if (node.word == "&&" || node.word == "||") return Json(holds(right.value()));
  constexpr std::string_view kArithmetic = "+-*/%";
  if (node.word.size() == 1 && kArithmetic.find(node.word[0]) != std::string_view::npos) {
    return arithmetic(node.word, left.value(), right.value());
  }
  if (node.word == "in") {
    const std::vector<Json> both{right.value(), left.value()};
    return has(both);
  }
  return compared(node.word, left.value(), right.value());
}

Result<Json> Formula::call(const FormulaNode& node, const Names& names) const {
  if (node.word == "given") {
    const FormulaNode* name =
        node.parts.size() == 1 ? &tree_.nodes[static_cast<std::size_t>(node.parts[0])] : nullptr;
    if (name == nullptr || name->kind != FormulaNode::Kind::Name)
      return Error{"given() takes one name"};
    return Json(names.given && names.given(name->word));
  }
  std::vector<Json> values;
  for (const std::int32_t part : node.parts) {
    Result<Json> value = evaluate(part, names);
    if (!value) return value;
    values.push_back(std::move(value).value());
  }
  if (node.word == "lookup" && values.size() == 2 && names.lookup) {
    if (values[1].is_null()) return Json();
    if (!values[1].is_array()) return names.lookup(shown(values[0]), shown(values[1]));
    std::vector<Json> found;  // of a list, what is there
    for (const Json& item : values[1].items()) {
      Json one = names.lookup(shown(values[0]), shown(item));
      if (!one.is_null()) found.push_back(std::move(one));
    }
    return list_of(std::move(found));
  }
  for (const Function& function : kFunctions) {
    if (function.name != node.word) continue;
    if (values.size() < function.least || values.size() > function.most) break;
    return function.apply(values);
  }
  return Error{"no such function: " + node.word + " of " + std::to_string(values.size())};
}

Result<Json> Formula::evaluate(std::int32_t index, const Names& names) const {
  using Kind = FormulaNode::Kind;
  const FormulaNode& node = tree_.nodes[static_cast<std::size_t>(index)];
  switch (node.kind) {
    case Kind::Number:
      return number_value(node.number);
    case Kind::Text:
      return Json(node.word);
    case Kind::Truth:
      return Json(node.number != 0);
    case Kind::None:
      return Json();
    case Kind::Name:
      if (!names.value) return Error{node.word + " means nothing here"};
      return names.value(node.word);
    case Kind::Call:
      return call(node, names);
    case Kind::Binary:
      return binary(node, names);
    case Kind::Choice: {
      const Result<Json> condition = evaluate(node.parts[0], names);
      if (!condition) return condition;
      return evaluate(node.parts[holds(condition.value()) ? 1 : 2], names);
    }
    case Kind::List:
    case Kind::At: {
      std::vector<Json> items;
      for (const std::int32_t part : node.parts) {
        Result<Json> item = evaluate(part, names);
        if (!item) return item;
        items.push_back(std::move(item).value());
      }
      return node.kind == Kind::At ? at(items) : list_of(std::move(items));
    }
    case Kind::Unary: {
      const Result<Json> value = evaluate(node.parts[0], names);
      if (!value) return value;
      if (node.word == "!") return Json(!holds(value.value()));
      return arithmetic("-", Json(0), value.value());
    }
  }
  return Json();
}

Result<Json> Formula::evaluate(const Names& names) const {
  return tree_.root < 0 ? Result<Json>(Json()) : evaluate(tree_.root, names);
}

// --- sentences

Result<Sentence> Sentence::parse(std::string_view text) {
  Sentence made;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t open = text.find('{', at);
    while (open != std::string_view::npos && open > 0 && text[open - 1] == '$') {
      open = text.find('{', open + 1);
    }
    open = std::min(open, text.size());
    if (open > at) made.pieces_.push_back({.text = std::string(text.substr(at, open - at))});
    if (open == text.size()) break;
    const std::size_t close = text.find('}', open);
    if (close == std::string_view::npos) return Error{"a { without its } in " + std::string(text)};
    Result<Formula> formula = Formula::parse(text.substr(open + 1, close - open - 1));
    if (!formula) return formula.error();
    made.pieces_.push_back({.text = {}, .formula = std::move(formula).value()});
    at = close + 1;
  }
  return made;
}

Result<std::string> Sentence::written(const Names& names) const {
  std::string text;
  for (const Piece& piece : pieces_) {
    if (!piece.formula) {
      text += piece.text;
      continue;
    }
    const Result<Json> value = piece.formula->evaluate(names);
    if (!value) return value.error();
    text += shown(value.value());
  }
  return text;
}

std::vector<std::string> Sentence::names() const {
  std::vector<std::string> found;
  for (const Piece& piece : pieces_) {
    if (!piece.formula) continue;
    for (std::string& name : piece.formula->names()) found.push_back(std::move(name));
  }
  return found;
}

}  // namespace rehearse
