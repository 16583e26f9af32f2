// SPDX-License-Identifier: Apache-2.0
// Private to space*.cc: values of a plan's keys as JSON, and which of them a space has.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "schedules/base/json_reader.h"
#include "schedules/scenario/keys/plan_rows.h"
#include "sim/search/space/space.h"

namespace rehearse::sim {

JsonValue integer_value(std::int64_t value);
JsonValue text_value(std::string_view value);
JsonValue flag_value(bool value);
std::vector<JsonValue> divisors(std::int64_t of);

// The object's member; made where it has none.
JsonValue& member_of(JsonValue& object, std::string_view key);
inline JsonValue& member_of(JsonValue& plan, const PlanField& key) {
  return member_of(plan, key_of(key));
}

// The same of a path, "overlap.tensor_parallel"; on its way, what is no object becomes one.
JsonValue& place_of(JsonValue& plan, std::string_view path);

// What a key may be: the list, the given value, or (limited by a range) what `usual` says.
std::vector<JsonValue> values_of(const Space& space, std::string_view key,
                                 std::vector<JsonValue> usual);
inline std::vector<JsonValue> values_of(const Space& space, const PlanField& key,
                                        std::vector<JsonValue> usual) {
  return values_of(space, key_of(key), std::move(usual));
}
// Whether the scenario leaves the key out, or says no more than a range.
bool is_open(const Space& space, std::string_view key);
inline bool is_open(const Space& space, const PlanField& key) {
  return is_open(space, key_of(key));
}

}  // namespace rehearse::sim
