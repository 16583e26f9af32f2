// SPDX-License-Identifier: Apache-2.0
// The keys of one config.json by their common names, whatever its dialect calls them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "schedules/base/json_reader.h"

namespace rehearse {

struct Spelling {
  std::string_view own, common;  // "n_embd" is gpt2's word for "hidden_size"
};

// The keys of one file that its dialect knows, by their common names.
class ConfigReader {
 public:
  ConfigReader(const JsonValue& object, std::string key, std::span<const Spelling> spellings,
               JsonReport& report)
      : object_(object), key_(std::move(key)), spellings_(spellings), report_(report) {}

  // The value under its common or own name; nullptr where both are left out or null.
  const JsonValue* given(std::string_view common) const;
  bool is_null(std::string_view common) const;  // the key stands there, and says null
  void read(std::string_view common, std::int64_t& to) const;
  void read(std::string_view common, double& to) const;
  void read(std::string_view common, bool& to) const;
  std::string text(std::string_view common, std::string_view otherwise) const;
  const JsonValue& object() const { return object_; }
  // `common` names the key as the file spells it.
  void fail(std::string_view common, const std::string& what, bool unsupported = false) const;

 private:
  std::string_view spelled(std::string_view common) const;
  const JsonValue& object_;
  std::string key_;
  std::span<const Spelling> spellings_;
  JsonReport& report_;
};

}  // namespace rehearse
