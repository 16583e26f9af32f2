// SPDX-License-Identifier: Apache-2.0
#include "schedules/base/key_use.h"

namespace rehearse {
namespace {

bool equals(const JsonValue& value, std::string_view wanted) {
  switch (value.kind) {
    case JsonKind::Null:
      return wanted == "null";
    case JsonKind::Bool:
      return wanted == (value.boolean ? "true" : "false");
    case JsonKind::String:
      return wanted == json_quoted(value.text);
    case JsonKind::Array:
      return wanted == "[]" && value.items.empty();
    case JsonKind::Object:
      return wanted == "{}" && value.members.empty();
    case JsonKind::Integer:
    case JsonKind::Number: {
      const Result<JsonValue> number = parse_json(wanted, "");
      return number && number.value().is_number() && number.value().number == value.number;
    }
  }
  return false;
}

std::string said(const Unperformed& key) {
  return key.key + (key.value.empty() ? "" : " " + key.value);
}

}  // namespace

std::string_view name_of(KeyUse use) {
  switch (use) {
    case KeyUse::Executed:
      return "executed";
    case KeyUse::Ours:
      return "executed, our own";
    case KeyUse::Said:
      return "said";
    case KeyUse::Priced:
      return "priced";
    case KeyUse::NoMeaning:
      return "without meaning";
    case KeyUse::Refused:
      return "refused";
  }
  return "";
}

Error not_performed(const std::vector<Unperformed>& keys) {
  const Unperformed& first = keys.front();
  std::string what = (first.value.empty() ? "" : first.value + " ") +
                     std::string("is not performed by `run`") +
                     (first.priced.empty() ? "" : " (`simulate` takes it: " + first.priced + ")");
  for (std::size_t i = 1; i < keys.size(); ++i) {
    what += (i == 1 ? "; nor " : ", ") + said(keys[i]);
  }
  std::string off;
  for (const Unperformed& key : keys) {
    if (!key.off.empty()) off += (off.empty() ? "; to leave out: --set " : " --set ") + key.off;
  }
  what += off;
  return json_error(first.file, first.line, first.key, what);
}

std::string priced_note(const Unperformed& key) {
  return said(key) + ": " + key.priced + "; `run` refuses it";
}

bool is_one_of(const JsonValue* value, std::string_view list) {
  for (std::size_t at = 0; at <= list.size();) {
    const std::size_t end = std::min(list.find(" | ", at), list.size());
    const std::string_view wanted = list.substr(at, end - at);
    if (value == nullptr ? wanted == "null" : equals(*value, wanted)) return true;
    at = end + 3;
  }
  return false;
}

std::string shown_value(const JsonValue& value) {
  constexpr std::size_t kShown = 100;
  std::string text = to_json_text(value);
  std::erase(text, '\n');
  if (text.size() <= kShown) return text;
  std::size_t cut = kShown;  // not inside a character
  while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xC0U) == 0x80U) --cut;
  return text.substr(0, cut) + "...";
}

}  // namespace rehearse
