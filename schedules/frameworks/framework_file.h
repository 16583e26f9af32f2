// SPDX-License-Identifier: Apache-2.0
// What is known of a framework's own configuration: scenarios/frameworks/NAME.json, one file each.
// Every flag has a row with what becomes of it; what several flags say together stands in steps,
// formulas (formula.h) that are taken one after another. The same file is read both ways: flags
// become keys of a scenario (import_flags.h), and keys flags (emit_flags.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "schedules/base/json_reader.h"
#include "schedules/base/result.h"
#include "schedules/frameworks/formula.h"

namespace rehearse {

// What a flag changes of a prediction: a key says it, nothing, something that no key says; or with
// it there is no plan.
enum class FlagUse : std::uint8_t { Used, NoEffect, NotModelled, Refused };
std::string_view name_of(FlagUse use);

// What stands behind a flag. Yes: nothing, the flag says it all; in files it may be true or false.
enum class Takes : std::uint8_t { Yes, Integer, Number, Text, List };

struct FlagRow {
  std::string flag;               // as the framework spells it
  std::vector<std::string> also;  // older spellings
  std::string name;               // in formulas: num_layers for --num-layers
  Takes takes = Takes::Text;
  Json standard;  // what the framework takes where it is left out; null: nothing
  FlagUse use = FlagUse::Used;
  std::string key;   // of the scenario, that it says or would say
  std::string note;  // what it would change
  // The key is the flag's value, and back: `words` from the framework's to ours; `value` is what
  // the key is where the flag, which takes nothing, stands.
  bool sets = false;
  std::string unsaid;  // a word that leaves it to others: "auto"
  std::string alone;   // its value where nothing stands behind it: "true"
  std::vector<std::pair<std::string, Json>> words;
  Json value;
  std::optional<Formula> emit;  // the flag's value in a plan's command; none, false: left out
  std::string group;            // of flags that stand together there
  std::string source;           // "repository, path, commit" where it was read, or "assumed"
  bool absent = false;          // of the base alone: formulas may ask for it, no file says it

  bool is_spelled(std::string_view as) const;  // as the framework does, or did; -- may stand before
};

// Flags of one kind, by a pattern.
struct FlagFamily {
  std::string pattern;
  FlagUse use = FlagUse::NoEffect;
  std::string note;
  bool whole = false;  // a flag of it is none that is known by its last word
};

struct Step {
  enum class Kind : std::uint8_t { Let, Set, Refuse, Warn, Say };
  Kind kind = Kind::Let;
  std::string name;  // of the value, the key, or (Refuse, Say) the flag
  std::optional<Formula> to, when;
  Sentence text;                // Refuse, Warn: a sentence; Say: the note of the flag
  FlagUse use = FlagUse::Used;  // Say
};

// A model that the framework knows by name: what its flags say, and its config.json.
struct NamedModel {
  std::vector<std::pair<std::string, std::string>> flags;  // name in formulas, value
  std::string config;                                      // JSON: an object, or a shipped model
};

struct EmittedFile {
  std::string name, shape;  // "train.sh"; "lines", or a tree of flags: "toml", "yaml", "json"
  std::vector<std::string> groups;  // whose flags it holds; none: all
  // The file's "lines"; one of them may be @flags, a group a line, or @environment.
  std::vector<Sentence> lines;
};

struct Framework {
  std::string name, title, path;
  // How its documents are recognised: any of these lists of dotted keys, all of them there. And the
  // key whose object holds the flags; empty: the document itself.
  std::vector<std::vector<std::string>> signs;
  std::string flags_in;
  bool last_words = false;  // flags are known by their last word: "model.num_layers" as num_layers
  std::vector<std::string> files_in;  // keys whose value names a second file
  std::vector<std::string> programs;  // that its scripts start, as patterns
  std::vector<std::string> modules;   // of Python, that its recipes import
  std::string stages_in;  // the key of a list of stages that are trained one after another
  std::vector<FlagRow> flags;
  std::vector<FlagFamily> families;  // of flags without a row, in this order
  std::vector<std::pair<std::string, std::vector<std::pair<std::string, Json>>>> tables;
  std::vector<NamedModel> models;
  std::vector<Step> import_steps, emit_steps;
  std::vector<Step> environment;  // Let: variables of a launch; to, when over a plan's keys
  std::vector<EmittedFile> files;
  std::vector<std::string> runtimes;  // profiles that price it, the one of today first

  // Whether its flags say the shape of a model, or its name.
  bool names_models() const;
  const FlagRow* find(std::string_view flag) const;  // that it has, by any spelling, - or _
  const FlagRow* find_by_name(std::string_view wanted) const;  // in formulas
  const FlagFamily* family(std::string_view flag) const;
  // The known flag with the fewest letters that differ.
  std::string nearest_flag(std::string_view flag) const;
  // lookup('table', text) of formulas.
  Json lookup(const std::string& table, const std::string& text) const;
};

// A flag as formulas call it: no leading dashes, dashes as _.
std::string formula_name(std::string_view flag);

// Errors: "FILE:LINE: KEY: what is wrong"; formulas and the names in them are checked.
Result<Framework> read_framework(const std::string& name);
Result<Framework> parse_framework(const JsonValue& document, const std::string& path);
// The same; an error for a name that is none says which there are.
Result<Framework> framework_named(const std::string& name);
// The frameworks that are shipped, by name.
std::vector<std::string> framework_names();

}  // namespace rehearse
