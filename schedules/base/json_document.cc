// SPDX-License-Identifier: Apache-2.0
#include "schedules/base/json_document.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "schedules/base/json_reader.h"

namespace rehearse {
namespace {

// The shortest digits that read back as the same double; whole numbers keep ".0", so that readers
// with types see a number. Exponents stand where more than 15 digits or 3 zeros would.
std::string number_text(double value) {
  if (value == 0) return std::signbit(value) ? "-0.0" : "0.0";
  std::array<char, 32> buffer;
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                          std::chars_format::scientific);
  const std::string_view written(buffer.data(), static_cast<std::size_t>(end - buffer.data()));
  const std::size_t e = written.find('e');
  std::string digits;
  for (const char c : written.substr(0, e)) {
    if (c >= '0' && c <= '9') digits += c;
  }
  int exponent = 0;
  const bool plus = written[e + 1] == '+';
  std::from_chars(written.data() + e + (plus ? 2 : 1), written.data() + written.size(), exponent);
  const int count = static_cast<int>(digits.size()), point = exponent + 1;  // digits before it
  constexpr int kMostDigits = 15, kMostZeros = 4;
  const auto at = [](int i) { return static_cast<std::size_t>(i); };
  std::string text = value < 0 ? "-" : "";
  if (point > kMostDigits || point <= -kMostZeros) {
    text += digits.substr(0, 1) + (count > 1 ? "." + digits.substr(1) : "");
    const std::string power = std::to_string(std::abs(exponent));
    return text + (exponent < 0 ? "e-" : "e+") + (power.size() < 2 ? "0" : "") + power;
  }
  if (point <= 0) return text + "0." + std::string(at(-point), '0') + digits;
  if (count <= point) return text + digits + std::string(at(point - count), '0') + ".0";
  return text + digits.substr(0, at(point)) + "." + digits.substr(at(point));
}

}  // namespace

Json::Json(std::initializer_list<Json> elements) {
  const bool pairs = std::ranges::all_of(elements, [](const Json& one) {
    return one.is_array() && one.size() == 2 && one.items()[0].is_string();
  });
  if (!pairs) {
    value_ = List(elements);
    return;
  }
  Object members;
  for (const Json& pair : elements) members.push_back({pair.items()[0].text(), pair.items()[1]});
  value_ = std::move(members);
}

Json::Json(const JsonValue& read) {
  switch (read.kind) {
    case JsonKind::Null:
      break;
    case JsonKind::Bool:
      value_ = read.boolean;
      break;
    case JsonKind::Integer:
      value_ = read.integer;
      break;
    case JsonKind::Number:
      *this = Json(read.number);
      break;
    case JsonKind::String:
      value_ = read.text;
      break;
    case JsonKind::Array: {
      List items;
      for (const JsonValue& item : read.items) items.emplace_back(item);
      value_ = std::move(items);
      break;
    }
    case JsonKind::Object: {
      Object members;
      for (const JsonMember& member : read.members) {
        members.push_back({member.key, Json(member.value)});
      }
      value_ = std::move(members);
      break;
    }
  }
}

Json Json::array(std::initializer_list<Json> elements) {
  Json list;
  list.value_ = List(elements);
  return list;
}

Json Json::object() {
  Json object;
  object.value_ = Object();
  return object;
}

Json Json::parse(std::string_view text) {
  const Result<JsonValue> read = parse_json(text, "");
  return read ? Json(read.value()) : Json();
}

double Json::number() const {
  const double* number = std::get_if<double>(&value_);
  return number != nullptr ? *number : static_cast<double>(integer());
}

std::int64_t Json::integer() const {
  if (const bool* truth = std::get_if<bool>(&value_)) return *truth ? 1 : 0;
  const std::int64_t* integer = std::get_if<std::int64_t>(&value_);
  return integer != nullptr ? *integer : 0;
}

const std::vector<Json>& Json::items() const& {
  static const List kNone;
  const List* items = std::get_if<List>(&value_);
  return items != nullptr ? *items : kNone;
}
std::vector<Json>& Json::items() & {
  return std::get<List>(value_);
}
const std::vector<Json::Member>& Json::members() const& {
  static const Object kNone;
  const Object* members = std::get_if<Object>(&value_);
  return members != nullptr ? *members : kNone;
}
std::vector<Json::Member>& Json::members() & {
  return std::get<Object>(value_);
}

std::size_t Json::size() const {
  return is_object() ? members().size() : items().size();
}

void Json::push_back(Json value) {
  if (is_null()) value_ = List();
  std::get<List>(value_).push_back(std::move(value));
}

const Json* Json::find(std::string_view key) const {
  const std::vector<Member>& all = members();
  const auto found = std::ranges::find(all, key, &Member::key);
  return found == all.end() ? nullptr : &found->value;
}

Json& Json::operator[](std::string_view key) {
  if (is_null()) value_ = Object();
  Object& all = std::get<Object>(value_);
  const auto found = std::ranges::find(all, key, &Member::key);
  if (found != all.end()) return found->value;
  all.push_back({std::string(key), {}});
  return all.back().value;
}

const Json& Json::operator[](std::string_view key) const {
  return *find(key);
}

void Json::erase(std::string_view key) {
  if (!is_object()) return;
  std::erase_if(members(), [&](const Member& member) { return member.key == key; });
}

void Json::update(const Json& other) {
  if (is_null()) value_ = Object();
  for (const Member& member : other.members()) (*this)[member.key] = member.value;
}

std::string Json::dump(int indent) const {
  std::string out;
  write(out, indent, 0);
  return out;
}

void Json::write(std::string& out, int indent, int depth) const {
  const auto line = [&](int level) {
    if (indent < 0) return;
    out += '\n';
    out.append(static_cast<std::size_t>(indent * level), ' ');
  };
  if (is_null()) {
    out += "null";
  } else if (is_boolean()) {
    out += json_bool(integer() != 0);
  } else if (holds<std::int64_t>()) {
    std::array<char, 24> digits;
    out.append(digits.data(),
               std::to_chars(digits.data(), digits.data() + digits.size(), integer()).ptr);
  } else if (holds<double>()) {
    out += number_text(number());
  } else if (is_string()) {
    out += json_quoted(text());
  } else {
    const bool object = is_object();
    out += object ? '{' : '[';
    for (std::size_t i = 0; i < size(); ++i) {
      if (i > 0) out += ',';
      line(depth + 1);
      if (object) out += json_quoted(members()[i].key) + (indent < 0 ? ":" : ": ");
      (object ? members()[i].value : items()[i]).write(out, indent, depth + 1);
    }
    if (!empty()) line(depth);
    out += object ? '}' : ']';
  }
}

}  // namespace rehearse
