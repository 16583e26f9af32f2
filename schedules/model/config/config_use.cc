// SPDX-License-Identifier: Apache-2.0
// What one config.json asks for that `run` does not perform: its keys held against the table.
#include <algorithm>
#include <iterator>

#include "schedules/base/json_keys.h"
#include "schedules/model/config/config_keys.h"
#include "schedules/model/config/near_miss.h"
#include "schedules/model/config/rope_config.h"

namespace rehearse {
namespace {

struct Value {
  const JsonValue* json = nullptr;  // nullptr: null
  const Transformer* model = nullptr;
};

bool is_number(const Value& value, std::int64_t wanted) {
  return value.json == nullptr ||
         (value.json->is_number() && value.json->number == static_cast<double>(wanted));
}

bool only_full_attention(const JsonValue* types) {
  return types == nullptr || std::ranges::all_of(types->items, [](const JsonValue& type) {
           return type.is(JsonKind::String) && type.text == "full_attention";
         });
}

// Whether `run` performs the value.
bool performs(const ConfigKey& row, const Value& value) {
  const Transformer& model = *value.model;
  if (row.runs == "@rope") {
    const bool part =
        names("gpt_neox phi3 glm4 glm4_moe", model.model_type);  // of a head may rotate
    return value.json == nullptr ||
           (is_performed_rope(*value.json) && (part || model.rotary.share == 1));
  }
  if (row.runs == "@full_attention") return only_full_attention(value.json);
  if (row.runs == "@bias") {
    return value.json == nullptr || !value.json->boolean || model.experts.count == 0;
  }
  if (row.runs == "@heads") return is_number(value, model.heads);
  if (row.runs == "@experts_per_token") return is_number(value, model.experts.per_token);
  if (row.runs == "@head_dim") return is_number(value, model.hidden / model.heads);
  if (row.runs == "@four_times_hidden") return is_number(value, 4 * model.hidden);
  return is_one_of(value.json, row.runs);
}

// Whether null is a value like another, which the row has or has not, instead of as if the key were
// left out.
bool means_something(const ConfigKey& row) {
  return row.use == KeyUse::Priced && !row.runs.empty() && !row.runs.starts_with("@");
}

// The value that switches a key off: what `runs` has besides null. "": the key has none.
std::string_view off_value(const ConfigKey& row) {
  if (row.runs == "null | false") return "false";
  return row.runs == "null | 0" ? "0" : "";
}

}  // namespace

ConfigUse use_of(const JsonValue& object, const std::string& file, const std::string& key,
                 const Transformer& model) {
  ConfigUse use;
  std::string strangers;
  std::vector<std::string> mistaken;
  std::vector<std::string_view> known;  // all keys of the dialect, once a key is a stranger to it
  const std::string ignored = ": no key of " + model.model_type + " that is known: ignored";
  const auto price = [&](const ConfigKey& row, std::string_view name, std::int32_t line,
                         const std::string& shown) {
    Unperformed found{.file = file,
                      .line = line,
                      .key = join_key(key, name),
                      .value = shown,
                      .priced = std::string(row.about)};
    if (const std::string_view off = off_value(row); !off.empty()) {
      const bool inside = key.starts_with("model");  // of a scenario, not a file of its own
      found.off = (inside ? "" : "model.") + found.key + "=" + std::string(off);
    }
    const bool first = name == "model_type";
    use.unperformed.insert(first ? use.unperformed.begin() : use.unperformed.end(),
                           std::move(found));
  };
  for (const JsonMember& member : object.members) {
    const ConfigKey* row = find_config_key(model.model_type, member.key);
    const JsonValue* given = member.value.is(JsonKind::Null) ? nullptr : &member.value;
    if (row == nullptr) {
      if (known.empty()) known = known_keys(model.model_type);
      const std::string_view meant = near_miss(member.key, known);
      if (!meant.empty()) {
        mistaken.push_back("model." + member.key + ignored + "; did you mean " +
                           std::string(meant) + "?");
      } else {
        strangers += (strangers.empty() ? "model." : ", model.") + member.key;
      }
      continue;
    }
    if (given != nullptr && row->runs == "@rope") {
      for (const std::string& word : unread_rope_words(*given)) {
        use.notes.push_back("model." + member.key + word);
      }
    }
    if (given == nullptr && !means_something(*row)) continue;
    const std::string own = "taken as it says; transformers has no such key in " + model.model_type;
    if (performs(*row, {given, &model})) {
      if (!row->quiet.empty() && !is_one_of(given, row->quiet)) {
        use.notes.push_back("model." + member.key + " " + shown_value(*given) + ": " + own);
      }
      continue;
    }
    if (row->use == KeyUse::Priced) {
      price(*row, member.key, member.line, shown_value(member.value));
    } else if (row->use == KeyUse::Said) {
      use.run_notes.push_back("model." + member.key + " " + shown_value(*given) + ": " +
                              std::string(row->about));
    } else if (row->use == KeyUse::Ours) {
      const std::string why = row->about.empty() ? own : std::string(row->about);
      use.notes.push_back("model." + member.key + " " + shown_value(*given) + ": " + why);
    }
  }
  if (!strangers.empty()) use.notes.push_back(strangers + ignored);
  std::ranges::move(mistaken, std::back_inserter(use.notes));
  return use;
}

}  // namespace rehearse
