// SPDX-License-Identifier: Apache-2.0
#include "schedules/model/dialects/config_reader.h"

#include "schedules/base/json_keys.h"

namespace rehearse {

std::string_view ConfigReader::spelled(std::string_view common) const {
  for (const Spelling& spelling : spellings_) {
    if (spelling.common == common && object_.find(spelling.own) != nullptr) return spelling.own;
  }
  return common;
}

const JsonValue* ConfigReader::given(std::string_view common) const {
  if (const JsonValue* own = object_.given(spelled(common))) return own;
  return object_.given(common);
}

bool ConfigReader::is_null(std::string_view common) const {
  return object_.find(spelled(common)) != nullptr && given(common) == nullptr;
}

void ConfigReader::read(std::string_view common, std::int64_t& to) const {
  if (const JsonValue* value = given(common)) to = value->integer;
}
void ConfigReader::read(std::string_view common, double& to) const {
  if (const JsonValue* value = given(common)) to = value->number;
}
void ConfigReader::read(std::string_view common, bool& to) const {
  if (const JsonValue* value = given(common)) to = value->boolean;
}

std::string ConfigReader::text(std::string_view common, std::string_view otherwise) const {
  const JsonValue* value = given(common);
  return value == nullptr ? std::string(otherwise) : value->text;
}

void ConfigReader::fail(std::string_view common, const std::string& what, bool unsupported) const {
  const JsonMember* member = object_.find(spelled(common));
  report_.fail(member == nullptr ? object_.line : member->line, join_key(key_, spelled(common)),
               what, unsupported);
}

}  // namespace rehearse
