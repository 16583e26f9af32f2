// SPDX-License-Identifier: Apache-2.0
#include "schedules/base/json_keys.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace rehearse {
namespace {

constexpr std::array<std::pair<unsigned, std::string_view>, 6> kTypeNames{{
    {kBool, "true or false"},
    {kInteger, "an integer"},
    {kNumber, "a number"},
    {kString, "a string"},
    {kArray, "a list"},
    {kObject, "an object"},
}};

bool matches(const JsonValue& value, unsigned types) {
  switch (value.kind) {
    case JsonKind::Null:
      return true;
    case JsonKind::Bool:
      return (types & kBool) != 0;
    case JsonKind::Integer:
      return (types & (kInteger | kNumber)) != 0;
    case JsonKind::Number:
      return (types & kNumber) != 0;
    case JsonKind::String:
      return (types & kString) != 0;
    case JsonKind::Array:
      return (types & kArray) != 0;
    case JsonKind::Object:
      return (types & kObject) != 0;
  }
  return false;
}

std::string expectation(unsigned types) {
  std::string text;
  for (const auto& [bit, name] : kTypeNames) {
    if ((types & bit) == 0) continue;
    text += (text.empty() ? "" : " or ") + std::string(name);
  }
  return text;
}

// "12", "0.5": bounds as people write them.
std::string plain(double value) {
  if (std::floor(value) == value && std::abs(value) < 1e15) {
    return std::to_string(static_cast<std::int64_t>(value));
  }
  return json_number(value);
}

std::string shown(const JsonValue& value) {
  return value.is(JsonKind::Integer) ? std::to_string(value.integer) : json_number(value.number);
}

// Where a value stands; as text only for a message.
struct KeyPath {
  const KeyPath* outer = nullptr;
  std::string_view key;      // of an object's member, or
  std::ptrdiff_t item = -1;  // of a list

  std::string text() const {
    const std::string before = outer == nullptr ? "" : outer->text();
    return item < 0 ? join_key(before, key) : before + "[" + std::to_string(item) + "]";
  }
};

void check_number(const JsonValue& value, const KeySpec& spec, const KeyPath& path,
                  JsonReport& report) {
  const bool low = spec.above_min ? value.number <= spec.min : value.number < spec.min;
  if (low) {
    report.fail(value.line, path.text(),
                shown(value) + " is too small, must be " +
                    (spec.above_min ? "more than " : "at least ") + plain(spec.min));
  } else if (value.number > spec.max) {
    report.fail(value.line, path.text(),
                shown(value) + " is too large, must be at most " + plain(spec.max));
  }
}

bool contains(std::span<const std::string_view> words, std::string_view word) {
  return std::ranges::find(words, word) != words.end();
}

// A list of parts is one value: one that has a part, or words none of which is a choice.
bool is_parts(const JsonValue& list, const KeySpec& spec) {
  const auto has = [&](std::span<const std::string_view> words) {
    return std::ranges::any_of(list.items, [&](const JsonValue& item) {
      return item.is(JsonKind::String) && contains(words, item.text);
    });
  };
  const bool words = !list.items.empty() && std::ranges::all_of(list.items, [](const auto& item) {
    return item.is(JsonKind::String);
  });
  return has(spec.parts) || (!spec.parts.empty() && words && !has(spec.choices));
}

// Whether one of the list's words is not built yet: then it is no search space.
bool has_later(const JsonValue& list, const KeySpec& spec) {
  return std::ranges::any_of(list.items, [&](const JsonValue& item) {
    return item.is(JsonKind::String) && contains(spec.later, item.text);
  });
}

std::string listed(std::span<const std::string_view> words) {
  std::string all;
  for (const std::string_view word : words) all += (all.empty() ? "" : ", ") + std::string(word);
  return all;
}

void check_choice(const JsonValue& value, const KeySpec& spec, const KeyPath& path,
                  JsonReport& report) {
  if (contains(spec.choices, value.text)) return;
  if (contains(spec.later, value.text)) {
    return report.fail(value.line, path.text(), json_excerpt(value.text) + " is not built yet",
                       true);
  }
  if (spec.choices.empty()) return;
  const std::string parts = spec.parts.empty() ? "" : "; or a list of " + listed(spec.parts);
  report.fail(value.line, path.text(),
              json_excerpt(value.text) + " is not one of " + listed(spec.choices) + parts);
}

void check_part(const JsonValue& value, const KeySpec& spec, const KeyPath& path,
                JsonReport& report) {
  if (value.is(JsonKind::String) && contains(spec.parts, value.text)) return;
  report.fail(value.line, path.text(),
              (value.is(JsonKind::String) ? json_excerpt(value.text) : std::string("an item")) +
                  " is not one of the parts " + listed(spec.parts));
}

void check_members(const JsonValue& value, const KeyTable& table, const KeyPath& path,
                   JsonReport& report);

void check_value(const JsonValue& value, const KeySpec& spec, const KeyPath& path,
                 JsonReport& report) {
  if (value.is(JsonKind::Array) && is_parts(value, spec)) {
    for (std::size_t i = 0; i < value.items.size(); ++i) {
      check_part(value.items[i], spec, {.outer = &path, .item = static_cast<std::ptrdiff_t>(i)},
                 report);
    }
    return;
  }
  if (value.is(JsonKind::Array) && has_later(value, spec)) {
    return report.fail(value.line, path.text(), "a list of parts is not built yet", true);
  }
  if (value.is(JsonKind::Array) && spec.searchable && (spec.types & kArray) == 0) {
    return report.fail(value.line, path.text(),
                       "a list of values is a search space, which only `rehearse search` takes");
  }
  if (!matches(value, spec.types)) {
    return report.fail(value.line, path.text(),
                       "must be " + expectation(spec.types) + ", not " +
                           (value.is_number() ? shown(value) : std::string(name_of(value.kind))));
  }
  if (value.is_number()) check_number(value, spec, path, report);
  if (value.is(JsonKind::String)) check_choice(value, spec, path, report);
  if (value.is(JsonKind::Object) && spec.members != nullptr) {
    check_members(value, *spec.members, path, report);
  }
  if (spec.item_types == 0) return;
  KeySpec of_item = spec;
  of_item.types = spec.item_types;
  of_item.members = spec.items;
  of_item.searchable = false;
  of_item.item_types = 0;
  for (std::size_t i = 0; i < value.items.size(); ++i) {
    const JsonValue& item = value.items[i];
    const KeyPath at{.outer = &path, .item = static_cast<std::ptrdiff_t>(i)};
    if (item.is(JsonKind::Null)) {
      report.fail(item.line, at.text(), "must be " + expectation(spec.item_types) + ", not null");
    }
    check_value(item, of_item, at, report);
  }
}

void check_members(const JsonValue& value, const KeyTable& table, const KeyPath& path,
                   JsonReport& report) {
  if (!value.is(JsonKind::Object)) {
    return report.fail(value.line, path.text(),
                       "must be an object, not " + std::string(name_of(value.kind)));
  }
  for (const JsonMember& member : value.members) {
    const KeyPath at{.outer = &path, .key = member.key};
    if (const KeySpec* spec = find_key(table, member.key)) {
      check_value(member.value, *spec, at, report);
    } else if (contains(table.later, member.key)) {
      report.fail(member.line, at.text(), "is not built yet", true);
    } else if (!table.open) {
      std::vector<std::string_view> known;
      for (const KeySpec& key : table.keys) known.push_back(key.name);
      report.fail(member.line, at.text(), "unknown key" + what_is_known(member.key, known));
    }
  }
  for (const KeySpec& spec : table.keys) {
    if (spec.required && value.given(spec.name) == nullptr) {
      report.fail(value.line, KeyPath{.outer = &path, .key = spec.name}.text(), "is required");
    }
  }
}

}  // namespace

void check_key(const JsonValue& value, const KeySpec& spec, const std::string& key,
               JsonReport& report) {
  check_value(value, spec, {.key = key}, report);
}

void check_keys(const JsonValue& value, const KeyTable& table, const std::string& key,
                JsonReport& report) {
  check_members(value, table, {.key = key}, report);
}

namespace {

// The words that a schema has for the type bits.
std::string schema_types(unsigned types, bool nullable) {
  constexpr std::array<std::pair<unsigned, std::string_view>, 6> kNames{{
      {kBool, "boolean"},
      {kInteger, "integer"},
      {kNumber, "number"},
      {kString, "string"},
      {kArray, "array"},
      {kObject, "object"},
  }};
  std::string list;
  for (const auto& [bit, name] : kNames) {
    if ((types & bit) != 0) list += (list.empty() ? "" : ", ") + json_excerpt(name);
  }
  if (nullable) list += ", \"null\"";
  return list.find(',') == std::string::npos ? list : "[" + list + "]";
}

std::string schema_object(const KeyTable& table, const std::string& indent);

std::vector<std::string> schema_bounds(const KeySpec& spec) {
  std::vector<std::string> bounds;
  if (std::isfinite(spec.min)) {
    bounds.push_back((spec.above_min ? "\"exclusiveMinimum\": " : "\"minimum\": ") +
                     plain(spec.min));
  }
  if (std::isfinite(spec.max)) bounds.push_back("\"maximum\": " + plain(spec.max));
  return bounds;
}

// A word that stands for itself in a pattern: "a2a+p2p".
std::string literal(std::string_view word) {
  std::string text;
  for (const char c : word) {
    if (std::string_view("\\^$.|?*+()[]{}").find(c) != std::string_view::npos) text += '\\';
    text += c;
  }
  return text;
}

// The members of one key's schema, without braces, each on a line of its own.
std::string schema_lines(const KeySpec& spec, const std::string& indent, bool nullable) {
  std::string text;
  const auto line = [&](const std::string& content) {
    text += (text.empty() ? "" : ",\n") + indent + content;
  };
  line("\"type\": " + schema_types(spec.types, nullable));
  const bool numbers = (spec.types & (kInteger | kNumber)) != 0;  // else the bounds are its items'
  if (numbers) {
    for (const std::string& bound : schema_bounds(spec)) line(bound);
  }
  // A choice binds strings alone; where other types are allowed too, `pattern` says just that.
  std::string choices;
  for (const std::string_view choice : spec.choices) {
    choices += (choices.empty() ? "" : "|") + literal(choice);
  }
  const std::string pattern = "\"pattern\": " + json_quoted("^(" + choices + ")$");
  const bool strings = (spec.types & kString) != 0;  // else the choices are its items'
  if (strings && !choices.empty()) line(pattern);
  if (spec.members != nullptr) line(schema_object(*spec.members, indent));
  if (spec.item_types != 0) {
    std::string items = "\"items\": {\"type\": " + schema_types(spec.item_types, false);
    if (!numbers) {
      for (const std::string& bound : schema_bounds(spec)) items += ", " + bound;
    }
    if (!strings && !choices.empty()) items += ", " + pattern;
    if (spec.items != nullptr)
      items += ",\n" + indent + "  " + schema_object(*spec.items, indent + "  ");
    line(items + "}");
  }
  return text;
}

// The list of parts that is one value, where there is one.
std::string schema_parts(const KeySpec& spec, const std::string& indent) {
  if (spec.parts.empty()) return "";
  std::string words;
  for (const std::string_view part : spec.parts) {
    words += (words.empty() ? "" : "|") + std::string(part);
  }
  return indent + R"({"type": "array", "items": {"type": "string", "pattern": )" +
         json_quoted("^(" + words + ")$") + R"(}, "description": "parts: one value"},)" + "\n";
}

std::string schema_of(const KeySpec& spec, const std::string& indent) {
  const std::string inner = indent + "  ";
  std::string text = "{\n";
  if (!spec.about.empty()) text += inner + "\"description\": " + json_quoted(spec.about) + ",\n";
  if (spec.searchable || spec.sourced) {
    const std::string other =
        spec.searchable
            ? R"({"type": "array", "description": "a search space, for `rehearse search`"})"
            : R"({"type": "object", "required": ["value"], "description": "the value and its source"})";
    text += inner + "\"anyOf\": [\n" + inner + "  {\n" +
            schema_lines(spec, inner + "    ", !spec.required) + "\n" + inner + "  },\n" +
            schema_parts(spec, inner + "  ") + inner + "  " + other + "\n" + inner + "]";
  } else {
    text += schema_lines(spec, inner, !spec.required);
  }
  return text + "\n" + indent + "}";
}

// "properties", "required", "additionalProperties" of a table, without braces.
std::string schema_object(const KeyTable& table, const std::string& indent) {
  std::string text = "\"properties\": {";
  std::string required;
  for (const KeySpec& spec : table.keys) {
    text += (&spec == table.keys.data() ? "\n" : ",\n") + indent + "  " + json_quoted(spec.name) +
            ": " + schema_of(spec, indent + "  ");
    if (spec.required) required += (required.empty() ? "" : ", ") + json_quoted(spec.name);
  }
  text += "\n" + indent + "},\n";
  if (!required.empty()) text += indent + "\"required\": [" + required + "],\n";
  return text + indent + "\"additionalProperties\": " + (table.open ? "true" : "false");
}

}  // namespace

std::string_view name_of(JsonKind kind) {
  switch (kind) {
    case JsonKind::Null:
      return "null";
    case JsonKind::Bool:
      return "true or false";
    case JsonKind::Integer:
      return "an integer";
    case JsonKind::Number:
      return "a number";
    case JsonKind::String:
      return "a string";
    case JsonKind::Array:
      return "a list";
    case JsonKind::Object:
      return "an object";
  }
  return "";
}

std::string join_key(const std::string& path, std::string_view key) {
  return path.empty() ? std::string(key) : path + "." + std::string(key);
}

const KeySpec* find_key(const KeyTable& table, std::string_view name) {
  for (const KeySpec& spec : table.keys) {
    if (spec.name == name) return &spec;
  }
  return nullptr;
}

void drop_sources(JsonValue& value) {
  for (JsonValue& item : value.items) drop_sources(item);
  for (JsonMember& member : value.members) drop_sources(member.value);
  const JsonMember* inner = value.find("value");
  if (inner == nullptr) return;
  for (const JsonMember& member : value.members) {
    const bool known = member.key == "value" || member.key == "source" || member.key == "sources" ||
                       member.key == "note";
    if (!known) return;
  }
  JsonValue bare = inner->value;
  value = std::move(bare);
}

std::string json_schema(const KeyTable& table) {
  return "{\n  \"$schema\": \"https://json-schema.org/draft/2020-12/schema\",\n  \"title\": " +
         json_quoted(table.title) + ",\n  \"type\": \"object\",\n  " + schema_object(table, "  ") +
         "\n}\n";
}

}  // namespace rehearse
