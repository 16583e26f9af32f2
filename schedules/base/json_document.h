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
#include <variant>
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
  Json(bool value) : value_(value) {}
  template <std::integral T>
  requires(!std::same_as<T, bool>) Json(T value) : value_(static_cast<std::int64_t>(value)) {}
  Json(double value) {  // null where it is NaN or infinite
    if (std::isfinite(value)) value_ = value;
  }
  Json(float value) : Json(static_cast<double>(value)) {}
  Json(std::string value) : value_(std::move(value)) {}
  Json(std::string_view value) : Json(std::string(value)) {}
  Json(const char* value) : Json(std::string(value)) {}
  template <class T>
  Json(const std::optional<T>& value) : Json(value ? Json(*value) : Json()) {}  // null: nothing
  template <class T>
  Json(const std::vector<T>& values) : value_(List(values.begin(), values.end())) {}
  // An object where every element is a list of a text and a value, else a list.
  Json(std::initializer_list<Json> elements);
  explicit Json(const JsonValue& read);

  static Json array(std::initializer_list<Json> elements = {});
  static Json object();
  // The document of a text. REQUIRES: the text is JSON (of our own making, or read before).
  static Json parse(std::string_view text);

  bool is_null() const { return holds<std::monostate>(); }
  bool is_array() const { return holds<List>(); }
  bool is_object() const { return holds<Object>(); }
  bool is_boolean() const { return holds<bool>(); }
  bool is_number() const { return holds<std::int64_t>() || holds<double>(); }
  bool is_string() const { return holds<std::string>(); }

  // The value itself. REQUIRES: it is of that kind; an integer is a number too.
  const std::string& text() const { return std::get<std::string>(value_); }
  double number() const;
  std::int64_t integer() const;  // of a truth 1 or 0

  // Lists and objects; a null becomes what is asked of it.
  std::size_t size() const;
  bool empty() const { return size() == 0; }
  void push_back(Json value);
  const std::vector<Json>& items() const&;  // of a list
  std::vector<Json>& items() &;
  std::vector<Json> items() && { return std::move(items()); }
  const std::vector<Member>& members() const&;  // of an object
  std::vector<Member>& members() &;
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
  using List = std::vector<Json>;
  using Object = std::vector<Member>;

  template <class T>
  bool holds() const {
    return std::holds_alternative<T>(value_);
  }
  void write(std::string& out, int indent, int depth) const;

  std::variant<std::monostate, bool, std::int64_t, double, std::string, List, Object> value_;
};

}  // namespace rehearse
