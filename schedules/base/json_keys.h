// SPDX-License-Identifier: Apache-2.0
// What a file may say, as tables: one row per key. The loader checks a document against them, and
// the JSON Schemas in scenarios/schema/ are written from them (a test holds the two equal).
#pragma once

#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "schedules/base/json_reader.h"

namespace rehearse {

// Which kinds a value may have, as bits. `null` (left out) is allowed everywhere but where
// required.
enum JsonTypes : unsigned {
  kBool = 1,
  kInteger = 2,  // a number without a fraction
  kNumber = 4,
  kString = 8,
  kArray = 16,
  kObject = 32,
};

struct KeyTable;

struct KeySpec {
  std::string_view name;
  unsigned types = 0;
  double min = -std::numeric_limits<double>::infinity();  // of a number, or of a list's numbers
  double max = std::numeric_limits<double>::infinity();
  bool above_min = false;                       // min itself is out
  std::span<const std::string_view> choices{};  // of a string; empty: any
  // Words of a string, or of a list of them, that docs/scenario.md names and no code has yet.
  std::span<const std::string_view> later{};
  // A list of these words is one value, whatever lists of other values are.
  std::span<const std::string_view> parts{};
  const KeyTable* members = nullptr;  // of an object; nullptr: any
  const KeyTable* items = nullptr;    // of a list of objects
  unsigned item_types = 0;            // of a list; 0: any
  bool required = false;
  bool sourced = false;      // may stand as {"value": ..., "source": ...} (drop_sources)
  bool searchable = false;   // a list (of values) is a search space, for `search` alone
  std::string_view about{};  // one sentence: description in the schema
};

struct KeyTable {
  std::string_view title;
  std::span<const KeySpec> keys;
  bool open = false;                          // keys that are not in the table are allowed
  std::span<const std::string_view> later{};  // named in docs/scenario.md, not built yet
};

// Checks kinds, ranges, choices, unknown keys (with the nearest known one) and required keys,
// to the bottom. `key` is the path of `value` ("" for the document).
void check_keys(const JsonValue& value, const KeyTable& table, const std::string& key,
                JsonReport& report);
// The same for one value.
void check_key(const JsonValue& value, const KeySpec& spec, const std::string& key,
               JsonReport& report);
// Values that say where they come from, {"value": 2039, "source": "..."}, become the bare value.
void drop_sources(JsonValue& value);
const KeySpec* find_key(const KeyTable& table, std::string_view name);
// "plan.overlap" + "tensor_parallel"
std::string join_key(const std::string& path, std::string_view key);
// As people say it: "a string", "the list", ...
std::string_view name_of(JsonKind kind);

// The JSON Schema (draft 2020-12) of a file kind, indented by two.
std::string json_schema(const KeyTable& table);

}  // namespace rehearse
