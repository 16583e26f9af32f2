// SPDX-License-Identifier: Apache-2.0
// A JSON document that a command writes: made of literals and lists, printed once.
//
//   Json json{{"schema", "rehearse.sweep/1"}, {"key", key}};
//   json["values"] = Json::array();
//   json["values"].push_back({{"value", one.value}, {"fits", one.fits}});
//   text = json.dump(2) + "\n";
//
// What people write is read with json_reader.h, which knows lines and says what is wrong.
#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rehearse {

struct JsonValue;

// What an object holds. A template, so that it is whole wherever its value is.
template <class Value>
struct KeyAndValue {
  std::string key;
  Value value;
};

// A value that is null, a truth, an integer, a number, a text, a list or an object whose members
// stay in the order in which they were added.
class Json {
 public:
  using Member = KeyAndValue<Json>;

  Json() = default;
  Json(std::nullptr_t) {}
  Json(bool value) : kind_(Kind::Bool), integer_(value ? 1 : 0) {}
  template <std::integral T>
  requires(!std::same_as<T, bool>) Json(T value)
      : kind_(Kind::Integer), integer_(static_cast<std::int64_t>(value)) {}
  Json(double value)  // null where it is NaN or infinite
      : kind_(std::isfinite(value) ? Kind::Number : Kind::Null), number_(value) {}
  Json(float value) : Json(static_cast<double>(value)) {}
  Json(std::string value) : kind_(Kind::Text), text_(std::move(value)) {}
  Json(std::string_view value) : Json(std::string(value)) {}
  Json(const char* value) : Json(std::string(value)) {}
  template <class T>
  Json(const std::optional<T>& value) : Json(value ? Json(*value) : Json()) {}  // null: nothing
  template <class T>
  Json(const std::vector<T>& values) : kind_(Kind::List) {
    for (const auto& value : values) items_.emplace_back(value);
  }
  // An object where every element is a list of a text and a value, else a list.
  Json(std::initializer_list<Json> elements);
  explicit Json(const JsonValue& read);

  static Json array(std::initializer_list<Json> elements = {});
  static Json object();
  // The document of a text. REQUIRES: the text is JSON (of our own making, or read before).
  static Json parse(std::string_view text);

  bool is_null() const { return kind_ == Kind::Null; }
  bool is_array() const { return kind_ == Kind::List; }
  bool is_object() const { return kind_ == Kind::Object; }
  bool is_boolean() const { return kind_ == Kind::Bool; }
  bool is_number() const { return kind_ == Kind::Integer || kind_ == Kind::Number; }
  bool is_string() const { return kind_ == Kind::Text; }

  // The value itself. REQUIRES: it is of that kind; an integer is a number too.
  const std::string& text() const { return text_; }
  double number() const;
  std::int64_t integer() const { return integer_; }

  // Lists and objects; a null becomes what is asked of it.
  std::size_t size() const;
  bool empty() const { return size() == 0; }
  void push_back(Json value);
  const std::vector<Json>& items() const& { return items_; }  // of a list
  std::vector<Json>& items() & { return items_; }
  std::vector<Json> items() && { return std::move(items_); }
  const std::vector<Member>& members() const& { return members_; }  // of an object
  std::vector<Member>& members() & { return members_; }
  bool contains(std::string_view key) const { return find(key) != nullptr; }
  const Json* find(std::string_view key) const;
  Json& operator[](std::string_view key);              // added as null where it is not there
  const Json& operator[](std::string_view key) const;  // REQUIRES: it is there
  void erase(std::string_view key);                    // nothing where it is not there
  // Members of another object: added, or put in the place of those with the same key.
  void update(const Json& other);

  // As text: on one line, or (`indent` >= 0) a value per line, indented by so many blanks a level.
  // What is not UTF-8 becomes U+FFFD.
  std::string dump(int indent = -1) const;

 private:
  enum class Kind : std::uint8_t { Null, Bool, Integer, Number, Text, List, Object };

  void write(std::string& out, int indent, int depth) const;

  Kind kind_ = Kind::Null;
  std::int64_t integer_ = 0;  // of Bool and Integer
  double number_ = 0;
  std::string text_;
  std::vector<Json> items_;
  std::vector<Member> members_;
};

}  // namespace rehearse
