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
    return one.is_array() && one.items_.size() == 2 && one.items_[0].is_string();
  });
  kind_ = pairs ? Kind::Object : Kind::List;
  if (!pairs) {
    items_ = elements;
    return;
  }
  for (const Json& pair : elements) members_.push_back({pair.items_[0].text_, pair.items_[1]});
}

Json::Json(const JsonValue& read) {
  switch (read.kind) {
    case JsonKind::Null:
      break;
    case JsonKind::Bool:
      *this = Json(read.boolean);
      break;
    case JsonKind::Integer:
      *this = Json(read.integer);
      break;
    case JsonKind::Number:
      *this = Json(read.number);
      break;
    case JsonKind::String:
      *this = Json(read.text);
      break;
    case JsonKind::Array:
      kind_ = Kind::List;
      for (const JsonValue& item : read.items) items_.emplace_back(item);
      break;
    case JsonKind::Object:
      kind_ = Kind::Object;
      for (const JsonMember& member : read.members) {
        members_.push_back({member.key, Json(member.value)});
      }
      break;
  }
}

Json Json::array(std::initializer_list<Json> elements) {
  Json list;
  list.kind_ = Kind::List;
  list.items_ = elements;
  return list;
}

Json Json::object() {
  Json object;
  object.kind_ = Kind::Object;
  return object;
}

Json Json::parse(std::string_view text) {
  const Result<JsonValue> read = parse_json(text, "");
  return read ? Json(read.value()) : Json();
}

double Json::number() const {
  return kind_ == Kind::Number ? number_ : static_cast<double>(integer_);
}

std::size_t Json::size() const {
  return kind_ == Kind::Object ? members_.size() : items_.size();
}

void Json::push_back(Json value) {
  if (is_null()) kind_ = Kind::List;
  items_.push_back(std::move(value));
}

const Json* Json::find(std::string_view key) const {
  const auto found = std::ranges::find(members_, key, &Member::key);
  return found == members_.end() ? nullptr : &found->value;
}

Json& Json::operator[](std::string_view key) {
  if (is_null()) kind_ = Kind::Object;
  const auto found = std::ranges::find(members_, key, &Member::key);
  if (found != members_.end()) return found->value;
  members_.push_back({std::string(key), {}});
  return members_.back().value;
}

const Json& Json::operator[](std::string_view key) const {
  return *find(key);
}

void Json::erase(std::string_view key) {
  std::erase_if(members_, [&](const Member& member) { return member.key == key; });
}

void Json::update(const Json& other) {
  if (is_null()) kind_ = Kind::Object;
  for (const Member& member : other.members_) (*this)[member.key] = member.value;
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
  switch (kind_) {
    case Kind::Null:
      out += "null";
      return;
    case Kind::Bool:
      out += json_bool(integer_ != 0);
      return;
    case Kind::Integer:
      out += std::to_string(integer_);
      return;
    case Kind::Number:
      out += number_text(number_);
      return;
    case Kind::Text:
      out += json_quoted(text_);
      return;
    case Kind::List:
    case Kind::Object:
      break;
  }
  const bool object = kind_ == Kind::Object;
  out += object ? '{' : '[';
  for (std::size_t i = 0; i < size(); ++i) {
    if (i > 0) out += ',';
    line(depth + 1);
    if (object) out += json_quoted(members_[i].key) + (indent < 0 ? ":" : ": ");
    (object ? members_[i].value : items_[i]).write(out, indent, depth + 1);
  }
  if (!empty()) line(depth);
  out += object ? '}' : ']';
}

}  // namespace rehearse
