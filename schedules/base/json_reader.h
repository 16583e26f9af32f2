// SPDX-License-Identifier: Apache-2.0
// JSON files of people: a small document that knows its lines, and errors that say where.
//
// Made for configuration (scenarios, models, clusters, cases), not for large data: schedule and
// trace files have readers of their own. The parser is RapidJSON, used in json_reader.cc alone.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/base/result.h"

namespace rehearse {

enum class JsonKind : std::uint8_t { Null, Bool, Integer, Number, String, Array, Object };

struct JsonMember;

// A value and the line that it starts on. Numbers: `number` always holds the value; a number
// without a fraction that int64 can hold is an Integer and has `integer` too.
struct JsonValue {
  JsonKind kind = JsonKind::Null;
  std::int32_t line = 0;  // 1-based; 0: not from a file (--set)
  bool boolean = false;
  std::int64_t integer = 0;
  double number = 0;
  std::string text;
  std::vector<JsonValue> items;
  std::vector<JsonMember> members;  // in file order, no key twice

  bool is(JsonKind k) const { return kind == k; }
  bool is_number() const { return kind == JsonKind::Integer || kind == JsonKind::Number; }
  const JsonMember* find(std::string_view key) const;
  // The member's value; nullptr where it is left out or null (`null` means left out).
  const JsonValue* given(std::string_view key) const;
};

struct JsonMember {
  std::string key;
  std::int32_t line = 0;  // of the key
  JsonValue value;
};

// Parses one document; its first line counts as `first_line` of the file `path`. Refused: what is
// not JSON or not UTF-8, a key twice in one object, nesting deeper than 200, more than `most`
// values (a value takes a hundred bytes, its text may take two).
constexpr std::size_t kMostValues = 4'000'000;
Result<JsonValue> parse_json(std::string_view text, const std::string& path,
                             std::int32_t first_line = 1, std::size_t most = kMostValues);
// Reads and parses a regular file of at most kMostText bytes.
constexpr std::int64_t kMostText = 64 << 20;
Result<JsonValue> read_json(const std::string& path);
// Any regular file as text, at most `limit` bytes.
Result<std::string> read_text_file(const std::string& path, std::int64_t limit);

// One document as text. Line breaks stand where the value had them, so that parse_json(text, path,
// value.line) gives every value its line again.
std::string to_json_text(const JsonValue& value);
// One string as JSON, with its quotes. What is not UTF-8 (a file's name may be any bytes) becomes
// U+FFFD, so that the document stays one.
std::string json_quoted(std::string_view text);
// The same for messages: on one line, and cut where it is long.
std::string json_excerpt(std::string_view text);
std::string json_bool(bool value);
// The shortest text that reads back as the same double; "null" for NaN and infinity.
std::string json_number(double value);

// "FILE:LINE: KEY: what"; without a line or key those parts are left out.
Error json_error(const std::string& path, std::int32_t line, const std::string& key,
                 const std::string& what);

// Keeps the first error of a reader, so that checks can be written one after another.
class JsonReport {
 public:
  explicit JsonReport(std::string path) : path_(std::move(path)) {}
  bool ok() const { return !first_.has_value(); }
  const Error& error() const { return *first_; }  // REQUIRES: !ok()
  const std::string& path() const { return path_; }
  void fail(std::int32_t line, const std::string& key, const std::string& what,
            bool unsupported = false);

 private:
  std::string path_;
  std::optional<Error> first_;
};

// Levenshtein distance: single-character insertions, deletions, replacements.
std::int32_t edit_distance(std::string_view a, std::string_view b);
// The one of `known` with the smallest distance (first of equals); empty where `known` is.
std::string_view nearest(std::string_view word, std::span<const std::string_view> known);
// What to say behind an unknown word: ", the nearest known one is X", or all of them where even
// that one shares less than half its letters.
std::string what_is_known(std::string_view word, std::span<const std::string_view> known);

}  // namespace rehearse
