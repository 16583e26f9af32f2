// SPDX-License-Identifier: Apache-2.0
// JsonValue as text again (declared in json_reader.h), and the pieces that hand-written JSON needs.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "schedules/base/json_reader.h"
#include "schedules/base/utf8.h"

namespace rehearse {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

class Writer {
 public:
  explicit Writer(std::int32_t line) : line_(line) {}

  void write(const JsonValue& value) {
    go_to(value.line);
    switch (value.kind) {
      case JsonKind::Null:
        text_ += "null";
        break;
      case JsonKind::Bool:
        text_ += value.boolean ? "true" : "false";
        break;
      case JsonKind::Integer:
        text_ += std::to_string(value.integer);
        break;
      case JsonKind::Number:
        text_ += json_number(value.number);
        break;
      case JsonKind::String:
        text_ += json_quoted(value.text);
        break;
      case JsonKind::Array:
        write_items(value);
        break;
      case JsonKind::Object:
        write_members(value);
        break;
    }
  }
  std::string take() { return std::move(text_); }

 private:
  void go_to(std::int32_t line) {
    for (; line_ < line; ++line_) text_ += '\n';
  }
  void write_items(const JsonValue& value) {
    text_ += '[';
    for (const JsonValue& item : value.items) {
      if (&item != &value.items.front()) text_ += ", ";
      write(item);
    }
    text_ += ']';
  }
  void write_members(const JsonValue& value) {
    text_ += '{';
    for (const JsonMember& member : value.members) {
      if (&member != &value.members.front()) text_ += ", ";
      go_to(member.line);
      text_ += json_quoted(member.key) + ": ";
      write(member.value);
    }
    text_ += '}';
  }

  std::string text_;
  std::int32_t line_;
};

}  // namespace

std::string to_json_text(const JsonValue& value) {
  Writer writer(value.line);
  writer.write(value);
  return writer.take();
}

std::string json_quoted(std::string_view text) {
  std::string out = "\"";
  for (std::size_t length = 0; !text.empty();
       text.remove_prefix(std::max<std::size_t>(length, 1))) {
    length = utf8_length(text);
    if (length != 1) {
      out += length == 0 ? kReplacement : text.substr(0, length);
      continue;
    }
    const char c = text[0];
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\r':
        out += "\\r";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          std::array<char, 8> escape{};
          std::snprintf(escape.data(), escape.size(), "\\u%04x", static_cast<unsigned>(c));
          out += escape.data();
        } else {
          out += c;
        }
    }
  }
  return out + "\"";
}

std::string json_bool(bool value) {
  return value ? "true" : "false";
}

std::string json_number(double value) {
  if (!std::isfinite(value)) return "null";
  std::array<char, 32> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  return {digits.data(), end};
}

}  // namespace rehearse
