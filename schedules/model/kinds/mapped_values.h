// SPDX-License-Identifier: Apache-2.0
// The keys of a config as its mapping knows them: values by name, and what expressions over them
// say.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/model/kinds/mapping.h"

namespace rehearse {

// A fault of the config or of the mapping is told once, to the report; what is asked behind it is
// zero or empty.
class MappedValues {
 public:
  MappedValues(const Mapping& mapping, const JsonValue& object, std::string key,
               JsonReport& report);

  bool ok() const { return report_.ok(); }
  const JsonValue& mapping() const { return mapping_; }
  const JsonValue& object() const { return object_; }

  void fail(const std::string& name, const std::string& what, bool unsupported = false);
  // A fault of the mapping's own: its file and place.
  void fault(const JsonValue& at, const std::string& place, const std::string& what);
  ExpressionValue evaluate(const JsonValue& expression, const std::string& place);
  std::string with_values(const Expression& expression) const;
  std::int64_t whole(const JsonValue& expression, const std::string& place);
  std::int64_t of_key(std::string_view name, std::int64_t least);
  std::string text_of(std::string_view key) const;
  std::int64_t hidden();
  std::int64_t vocabulary_size();
  bool tied();
  void at_layer(std::int64_t layer, ExpressionValue word);
  const ExpressionValue& named(const std::string& key) const;
  // The values that an expression, by its text, was last evaluated with, for a message; empty:
  // none.
  std::string with_values_of(const std::string& text) const;

 private:
  void take(const std::string& name, const JsonValue& value);
  // A list of objects: of each path below it that the mapping knows, the list of what they say.
  void take_list(const std::string& prefix, const JsonValue& list);
  static ExpressionValue below(const JsonValue& object, std::string_view path);
  void read_values();
  std::int32_t line_of(const std::string& name) const;

  const JsonValue& mapping_;
  const std::string& path_;
  const JsonValue& object_;
  std::string key_;
  JsonReport& report_;
  std::vector<std::string> names_;
  std::vector<ExpressionValue> values_;  // by name; the last two: i, word
  std::map<std::string, Expression> expressions_;
};

// A whole number from 0 to 2^30, as sizes are.
bool is_size(const ExpressionValue& value);

}  // namespace rehearse
