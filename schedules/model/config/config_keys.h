// SPDX-License-Identifier: Apache-2.0
// What the program does with every key of a config.json: one table. The reader knows a dialect's
// keys by it, `run` refuses by it, `simulate` says by it what was priced instead, and
// docs/models.md is written from it. A test walks all keys of the configuration classes of
// transformers (tests/data/configs/keys.json) and fails on one that is in no column.
//
// Kinds and ranges of values are in model_keys.cc, defaults of the dialects in dialects/.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "schedules/base/key_use.h"
#include "schedules/model/dialects/hf_dialects.h"
#include "schedules/model/model.h"

namespace rehearse {

struct ConfigKey {
  std::string_view dialects;  // model_types between blanks; "*": all that no other row names
  std::string_view keys;      // as files spell them, between blanks
  KeyUse use = KeyUse::Executed;
  // Priced: what `run` performs; Ours: what needs no word; Refused: what is taken. Values as
  // is_one_of has them, or the name of a rule of config_use.cc ("@rope"). A key that is left out
  // is never looked at.
  std::string_view runs{};
  std::string_view example{};  // Priced, Refused: a value beyond `runs`, as JSON
  std::string_view about{};    // Priced: what `simulate` prices instead ("": what the key says)
  // Values of a key that transformers does not know in the dialect, which need no word, since it
  // computes them anyway. "": nothing is said of what `run` performs.
  std::string_view quiet{};
};

std::span<const ConfigKey> config_keys();
// The row of a key; nullptr where the dialect's configuration class has none such.
const ConfigKey* find_config_key(std::string_view model_type, std::string_view key);
// All keys of a dialect whose absence makes a similar word a typing mistake.
std::vector<std::string_view> meaningful_keys(std::string_view model_type);
// All keys of a dialect: its class's, and those that files of it borrow.
std::vector<std::string_view> known_keys(std::string_view model_type);
bool names(std::string_view words, std::string_view word);  // "a b c", "b"

// What a file asks for that `run` does not perform, and what should be said of it.
struct ConfigUse {
  std::vector<Unperformed> unperformed;
  std::vector<std::string> notes;      // "model.x: ...": keys that nobody knows, and our own words
  std::vector<std::string> run_notes;  // likewise: what `run` does instead of what a key says
};
// `key` is the object's key path in `file` ("" for a whole file). REQUIRES: its kinds are checked,
// `model` was read from it.
ConfigUse use_of(const JsonValue& object, const std::string& file, const std::string& key,
                 const Transformer& model);

// The table as docs/models.md has it.
std::string config_keys_text();

}  // namespace rehearse
