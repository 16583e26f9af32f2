// SPDX-License-Identifier: Apache-2.0
// What the program does with a key that a file may say: the words of the tables in config_keys.cc
// (models), plan_rows.cc and plan_use.cc (plans), and what a reader has found of it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/base/json_reader.h"

namespace rehearse {

enum class KeyUse : std::uint8_t {
  Executed,  // `run` performs every value
  Ours,    // the same; transformers has no such key in this dialect, which is said where it counts
  Said,    // `run` does something else, and says so in one line
  Priced,  // `run` performs some values and refuses the others, which `simulate` takes
  NoMeaning,  // changes neither mathematics nor cost
  Refused,    // other values than those listed are an error everywhere
};
std::string_view name_of(KeyUse use);

// What `run` does with a key of a plan.
struct RunUse {
  KeyUse use = KeyUse::Executed;
  std::string_view runs{};     // Priced: the values that `run` performs; Said: that need no word
  std::string_view example{};  // Priced: one that it does not
  std::string_view about{};    // Priced: what `simulate` prices; Said, NoMeaning: what is said, why
  bool operator==(const RunUse&) const = default;
};

// A key that `run` refuses. `simulate` prices it, and says what.
struct Unperformed {
  std::string file;
  std::int32_t line = 0;
  std::string key;     // its path in that file
  std::string value;   // as JSON, cut where it is long; "" where the key alone says it
  std::string priced;  // what is priced
  std::string off{};   // "model.x=false": what of --set leaves it out; "": nothing does
};
// One line for `run`: the first key with file and line, then all others.
Error not_performed(const std::vector<Unperformed>& keys);
// One line for the report of a prediction.
std::string priced_note(const Unperformed& key);

// Whether `value` is one of `list`: JSON scalars, [] or {} between " | ". nullptr counts as null.
bool is_one_of(const JsonValue* value, std::string_view list);
// As JSON on one line, cut where it is long.
std::string shown_value(const JsonValue& value);

}  // namespace rehearse
