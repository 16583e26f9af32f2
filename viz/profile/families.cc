// SPDX-License-Identifier: Apache-2.0
#include "viz/profile/families.h"

#include "schedules/base/files.h"
#include "schedules/base/json_reader.h"

namespace rehearse::viz {

Result<Families> Families::read() {
  const std::string path = shipped_directory() + "/profiles/families.json";
  const Result<JsonValue> document = read_json(path);
  if (!document) return document.error();
  Families out;
  const JsonValue* rows = document.value().given("families");
  if (rows == nullptr) return json_error(path, 1, "families", "is missing");
  for (const JsonValue& row : rows->items) {
    Family family;
    if (const JsonValue* name = row.given("family")) family.name = name->text;
    for (const auto& [key, to] :
         {std::pair{"begins", &family.begins}, std::pair{"holds", &family.holds}}) {
      if (const JsonValue* words = row.given(key)) {
        for (const JsonValue& word : words->items) to->push_back(word.text);
      }
    }
    out.all_.push_back(std::move(family));
  }
  return out;
}

int Families::of(std::string_view name) const {
  int best = -1;
  std::size_t longest = 0;
  for (std::size_t i = 0; i < all_.size(); ++i) {
    const auto take = [&](const std::string& word, bool matches) {
      if (!matches || word.size() <= longest) return;
      longest = word.size();
      best = static_cast<int>(i);
    };
    for (const std::string& word : all_[i].begins) take(word, name.starts_with(word));
    for (const std::string& word : all_[i].holds) {
      take(word, name.find(word) != std::string_view::npos);
    }
  }
  return best;
}

}  // namespace rehearse::viz
