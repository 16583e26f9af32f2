// SPDX-License-Identifier: Apache-2.0
// What one config.json asks for that `run` does not perform: its keys held against the table.
#include <algorithm>

#include "schedules/base/json_keys.h"
#include "schedules/model/config_keys.h"
#include "schedules/model/rope_config.h"

namespace rehearse {
namespace {

struct Value {
  const JsonValue* json = nullptr;  // nullptr: null
  const JsonValue* file = nullptr;  // the whole object
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

// Whether `run` performs the value; `up_to` is set where that hangs on the sequence's length.
bool performs(const ConfigKey& row, const Value& value, std::int64_t& up_to) {
  const Transformer& model = *value.model;
  if (row.runs == "@window") {
    up_to = model.sliding_window;
    return model.sliding_window == 0;
  }
  if (row.runs == "@rope") return value.json == nullptr || is_plain_rope(*value.json);
  if (row.runs == "@rotary_pct") return rotated_share(*value.file) == 1;
  if (row.runs == "@full_attention") return only_full_attention(value.json);
  if (row.runs == "@heads") return is_number(value, model.heads);
  if (row.runs == "@head_dim") return is_number(value, model.hidden / model.heads);
  if (row.runs == "@four_times_hidden") return is_number(value, 4 * model.hidden);
  return is_one_of(value.json, row.runs);
}

}  // namespace

ConfigUse use_of(const JsonValue& object, const std::string& file, const std::string& key,
                 const Transformer& model) {
  ConfigUse use;
  std::string strangers;
  const auto price = [&](const ConfigKey& row, std::string_view name, std::int32_t line,
                         const std::string& shown, std::int64_t up_to) {
    Unperformed found{.file = file,
                      .line = line,
                      .key = join_key(key, name),
                      .value = shown,
                      .priced = std::string(row.about),
                      .up_to = up_to};
    const bool first = name == "model_type";
    use.unperformed.insert(first ? use.unperformed.begin() : use.unperformed.end(),
                           std::move(found));
  };
  for (const JsonMember& member : object.members) {
    const ConfigKey* row = find_config_key(model.model_type, member.key);
    const JsonValue* given = member.value.is(JsonKind::Null) ? nullptr : &member.value;
    if (row == nullptr) {
      strangers += (strangers.empty() ? "model." : ", model.") + member.key;
      continue;
    }
    if (given == nullptr) continue;  // as if left out, below
    std::int64_t up_to = -1;
    if (performs(*row, {given, &object, &model}, up_to)) continue;
    if (row->use == KeyUse::Priced) {
      price(*row, member.key, member.line, shown_value(*given), up_to);
    } else if (row->use == KeyUse::Said) {
      use.dropout.push_back(member.key + " " + shown_value(*given));
    } else if (row->use == KeyUse::Ours) {
      use.notes.push_back("model." + member.key + " " + shown_value(*given) +
                          ": taken as it says; transformers has no such key in " +
                          model.model_type);
    }
  }
  for (const ConfigKey& row : config_keys()) {
    if (row.otherwise.empty() || !names(row.dialects, model.model_type)) continue;
    if (object.given(row.keys) != nullptr) continue;
    std::int64_t up_to = -1;
    const JsonValue otherwise = parse_json(row.otherwise, "").value();
    if (performs(row, {&otherwise, &object, &model}, up_to)) continue;
    const JsonMember* null = object.find(row.keys);
    price(row, row.keys, null == nullptr ? object.line : null->line,
          std::string(row.otherwise) + " (what transformers takes where it is left out)", up_to);
  }
  if (!strangers.empty()) {
    use.notes.push_back(strangers + ": no key of " + model.model_type + " that is known: ignored");
  }
  return use;
}

}  // namespace rehearse
