// SPDX-License-Identifier: Apache-2.0
#include "sim/search/space/space_values.h"

#include <algorithm>

namespace rehearse::sim {

JsonValue integer_value(std::int64_t value) {
  JsonValue json;
  json.kind = JsonKind::Integer;
  json.integer = value;
  json.number = static_cast<double>(value);
  return json;
}
JsonValue text_value(std::string_view value) {
  JsonValue json;
  json.kind = JsonKind::String;
  json.text = value;
  return json;
}
JsonValue flag_value(bool value) {
  JsonValue json;
  json.kind = JsonKind::Bool;
  json.boolean = value;
  return json;
}

JsonValue& member_of(JsonValue& object, std::string_view key) {
  for (JsonMember& member : object.members) {
    if (member.key == key) return member.value;
  }
  object.members.push_back({std::string(key), object.line, {}});
  return object.members.back().value;
}

JsonValue& place_of(JsonValue& plan, std::string_view path) {
  JsonValue* at = &plan;
  while (true) {
    const std::size_t dot = path.find('.');
    if (at->is(JsonKind::Null)) at->kind = JsonKind::Object;
    at = &member_of(*at, path.substr(0, dot));
    if (dot == std::string_view::npos) return *at;
    path.remove_prefix(dot + 1);
  }
}

std::vector<JsonValue> values_of(const Space& space, std::string_view key,
                                 std::vector<JsonValue> usual) {
  for (const SpaceKey& list : space.lists) {
    if (list.key == key) return list.values;
  }
  if (const JsonValue* given = space.plan.given(key)) return {*given};
  for (const SpaceKey& range : space.ranges) {
    if (range.key != key) continue;
    std::erase_if(usual, [&](const JsonValue& value) {
      return value.is(JsonKind::Integer) &&
             (value.integer < range.values[0].integer || value.integer > range.values[1].integer);
    });
  }
  return usual;
}
bool is_open(const Space& space, std::string_view key) {
  return space.plan.given(key) == nullptr &&
         std::ranges::none_of(space.lists, [&](const SpaceKey& list) { return list.key == key; });
}

std::vector<JsonValue> divisors(std::int64_t of) {
  std::vector<JsonValue> found;
  for (std::int64_t i = 1; i <= of; ++i) {
    if (of % i == 0) found.push_back(integer_value(i));
  }
  return found;
}

}  // namespace rehearse::sim
