// SPDX-License-Identifier: Apache-2.0
#include "schedules/model/kinds/mapped_values.h"

#include <algorithm>
#include <cmath>

namespace rehearse {
namespace {

constexpr double kMostOfAny = 1 << 30;

ExpressionValue value_of(const JsonValue& json) {
  switch (json.kind) {
    case JsonKind::Bool:
      return ExpressionValue::of(json.boolean ? 1 : 0);
    case JsonKind::Integer:
    case JsonKind::Number:
      return ExpressionValue::of(json.number);
    case JsonKind::String:
      return ExpressionValue::of_word(json.text);
    case JsonKind::Array: {
      ExpressionValue list{.kind = ExpressionValue::Kind::List};
      for (const JsonValue& item : json.items) list.items.push_back(value_of(item));
      return list;
    }
    case JsonKind::Null:
    case JsonKind::Object:
      break;
  }
  return {};
}

}  // namespace

bool is_size(const ExpressionValue& value) {
  return value.kind == ExpressionValue::Kind::Number && value.number >= 0 &&
         value.number <= kMostOfAny && value.number == std::floor(value.number);
}

MappedValues::MappedValues(const Mapping& mapping, const JsonValue& object, std::string key,
                           JsonReport& report)
    : mapping_(mapping.document),
      path_(mapping.path),
      object_(object),
      key_(std::move(key)),
      report_(report) {
  read_values();
}

std::string MappedValues::with_values_of(const std::string& text) const {
  const auto known = expressions_.find(text);
  return known == expressions_.end() ? std::string() : with_values(known->second);
}

void MappedValues::take(const std::string& name, const JsonValue& value) {
  if (value.is(JsonKind::Object)) {
    for (const JsonMember& member : value.members) take(name + "." + member.key, member.value);
    return;
  }
  if (value.is(JsonKind::Array) && std::ranges::any_of(value.items, [](const JsonValue& item) {
        return item.is(JsonKind::Object);
      })) {
    return take_list(name + ".", value);
  }
  const auto known = std::ranges::find(names_, name);
  if (known == names_.end()) return;
  values_[static_cast<std::size_t>(known - names_.begin())] = value_of(value);
}

void MappedValues::take_list(const std::string& prefix, const JsonValue& list) {
  for (std::size_t i = 0; i < names_.size(); ++i) {
    if (!names_[i].starts_with(prefix)) continue;
    values_[i] = {.kind = ExpressionValue::Kind::List};
    for (const JsonValue& item : list.items) {
      values_[i].items.push_back(below(item, std::string_view(names_[i]).substr(prefix.size())));
    }
  }
}

ExpressionValue MappedValues::below(const JsonValue& object, std::string_view path) {
  const std::size_t dot = path.find('.');
  const JsonValue* member =
      object.is(JsonKind::Object) ? object.given(path.substr(0, dot)) : nullptr;
  if (member == nullptr) return {};
  return dot == std::string_view::npos ? value_of(*member) : below(*member, path.substr(dot + 1));
}

void MappedValues::read_values() {
  const auto define = [&](const std::string& name, const JsonValue& value) {
    names_.push_back(name);
    values_.push_back(value_of(value));
  };
  for (const JsonMember& member : mapping_.given("defaults")->members) {
    define(member.key, member.value);
  }
  names_.emplace_back("i");
  names_.emplace_back("word");
  values_.resize(names_.size());
  const JsonValue* aliases = mapping_.given("aliases");
  for (const JsonMember& member : object_.members) {
    const JsonValue* alias = aliases == nullptr ? nullptr : aliases->given(member.key);
    take(alias == nullptr ? member.key : alias->text, member.value);
  }
}

std::int32_t MappedValues::line_of(const std::string& name) const {
  const JsonMember* member = object_.find(name);
  return member == nullptr ? object_.line : member->line;
}

void MappedValues::fail(const std::string& name, const std::string& what, bool unsupported) {
  report_.fail(line_of(name), join_key(key_, name), what, unsupported);
}

void MappedValues::fault(const JsonValue& at, const std::string& place, const std::string& what) {
  if (ok()) {
    report_.fail(object_.line, join_key(key_, "model_type"),
                 json_error(path_, at.line, place, what).message);
  }
}

ExpressionValue MappedValues::evaluate(const JsonValue& expression, const std::string& place) {
  const std::string& text = expression.text;
  auto known = expressions_.find(text);
  if (known == expressions_.end()) {
    Result<Expression> read = Expression::read(text, names_);
    if (!read) {
      fault(expression, place, read.error().message);
      return {};
    }
    known = expressions_.emplace(text, std::move(read).value()).first;
  }
  const Result<ExpressionValue> value = known->second.value(values_);
  if (!value) {
    fault(expression, place, value.error().message + with_values(known->second));
    return {};
  }
  return value.value();
}

std::string MappedValues::with_values(const Expression& expression) const {
  std::string text;
  for (const std::int32_t slot : expression.slots()) {
    const auto at = static_cast<std::size_t>(slot);
    text += (text.empty() ? "; " : ", ") + names_[at] + " = " + shown(values_[at]);
  }
  return text;
}

std::int64_t MappedValues::whole(const JsonValue& expression, const std::string& place) {
  const ExpressionValue value = evaluate(expression, place);
  const bool fits = is_size(value);
  if (!fits && ok()) {
    fail("model_type", place + ": " + json_excerpt(expression.text) + " is " + shown(value) +
                           ", no whole number from 0 to 2^30" + with_values_of(expression.text));
  }
  return fits ? static_cast<std::int64_t>(value.number) : 0;
}

std::int64_t MappedValues::of_key(std::string_view name, std::int64_t least) {
  const JsonValue key{.kind = JsonKind::String, .text = std::string(name)};
  const std::int64_t value = whole(key, std::string(name));
  if (ok() && value < least) {
    fail(std::string(name), std::to_string(value) + " is below " + std::to_string(least));
  }
  return value;
}

std::string MappedValues::text_of(std::string_view key) const {
  const JsonValue* value = mapping_.given(key);
  return value == nullptr ? std::string() : value->text;
}

std::int64_t MappedValues::hidden() {
  return of_key(mapping_.given("stream")->given("h")->text, 1);
}

std::int64_t MappedValues::vocabulary_size() {
  const JsonValue* key = mapping_.given("vocabulary");
  return of_key(key == nullptr ? std::string("vocab_size") : key->text, 1);
}

bool MappedValues::tied() {
  const JsonValue* tied = mapping_.given("tied");
  return tied != nullptr && whole(*tied, "tied") != 0;
}

void MappedValues::at_layer(std::int64_t layer, ExpressionValue word) {
  values_[values_.size() - 2] = ExpressionValue::of(static_cast<double>(layer));
  values_.back() = std::move(word);
}

const ExpressionValue& MappedValues::named(const std::string& key) const {
  static const ExpressionValue kNone;
  const auto known = std::ranges::find(names_, key);
  return known == names_.end() ? kNone : values_[static_cast<std::size_t>(known - names_.begin())];
}

}  // namespace rehearse
