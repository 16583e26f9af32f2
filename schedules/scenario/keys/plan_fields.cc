// SPDX-License-Identifier: Apache-2.0
// Rows by name and by field, and the values of fields.
#include <algorithm>
#include <type_traits>

#include "schedules/scenario/keys/plan_rows.h"

namespace rehearse {
namespace {

template <class Key>
const PlanRow* found(std::span<const PlanRow> rows, const Key& wanted, auto projection) {
  const auto at = std::ranges::find(rows, wanted, projection);
  return at == rows.end() ? nullptr : &*at;
}

// Where in a plan the field lies [B]. No two fields of rows begin at one place.
std::size_t place_of(const PlanField& field) {
  static const Plan plan;
  return std::visit(
      [](const auto member) -> std::size_t {
        if constexpr (std::is_same_v<std::remove_cv_t<decltype(member)>, std::monostate>) {
          return sizeof(Plan);
        } else {
          return static_cast<std::size_t>(reinterpret_cast<const char*>(&(plan.*member)) -
                                          reinterpret_cast<const char*>(&plan));
        }
      },
      field);
}

// The row of every place; plans are read by the thousand.
const PlanRow* row_with(const PlanField& field) {
  static const std::vector<const PlanRow*> rows = [] {
    std::vector<const PlanRow*> made(sizeof(Plan) + 1, nullptr);
    for (const std::span<const PlanRow> of : {plan_rows(), overlap_rows()}) {
      for (const PlanRow& row : of) {
        const PlanRow*& at = made[place_of(row.field)];
        if (at == nullptr) at = &row;
      }
    }
    return made;
  }();
  return rows[place_of(field)];
}

// Takes values of the field's kind: a word that is none of the key's is for a step of the reader.
template <class Field>
void take(const JsonValue& value, const KeySpec& key, Field& to) {
  if constexpr (std::is_same_v<Field, bool>) {
    if (value.is(JsonKind::Bool)) to = value.boolean;
  } else if constexpr (std::is_integral_v<Field>) {
    if (value.is(JsonKind::Integer)) to = static_cast<Field>(value.integer);
  } else if constexpr (std::is_same_v<Field, double>) {
    if (value.is(JsonKind::Integer) || value.is(JsonKind::Number)) to = value.number;
  } else if constexpr (std::is_same_v<Field, std::string>) {
    if (value.is(JsonKind::String)) to = value.text;
  } else if constexpr (std::is_enum_v<Field>) {
    const auto at = std::ranges::find(key.choices, value.text);
    if (at != key.choices.end()) to = static_cast<Field>(at - key.choices.begin());
  }
}

template <class Field>
std::string json_of(const KeySpec& key, const Field& from) {
  if constexpr (std::is_same_v<Field, bool>) {
    return json_bool(from);
  } else if constexpr (std::is_integral_v<Field>) {
    return std::to_string(from);
  } else if constexpr (std::is_same_v<Field, double>) {
    return json_number(from);
  } else if constexpr (std::is_same_v<Field, std::string>) {
    return json_quoted(from);
  } else if constexpr (std::is_enum_v<Field>) {
    return json_quoted(key.choices[static_cast<std::size_t>(from)]);
  } else {
    return {};  // the row's text
  }
}

}  // namespace

const PlanRow* find_plan_row(std::string_view path) {
  const auto name = [](const PlanRow& row) { return row.key.name; };
  const std::size_t dot = std::min(path.find('.'), path.size());
  const std::string_view outer = path.substr(0, dot);
  if (dot < path.size() && outer == overlap_rows().front().object) {
    return found(overlap_rows(), path.substr(dot + 1), name);
  }
  return found(plan_rows(), outer, name);
}

const PlanRow& plan_row(const PlanField& field) {
  return *row_with(field);
}

std::string_view key_of(const PlanField& field) {
  return plan_row(field).key.name;
}

std::string path_of(const PlanRow& row) {
  return (row.object.empty() ? "" : std::string(row.object) + '.') + std::string(row.key.name);
}

std::string path_of(const PlanField& field) {
  return path_of(plan_row(field));
}

const JsonValue* given_in(const JsonValue& plan, const PlanRow& row) {
  if (row.object.empty()) return plan.given(row.key.name);
  const JsonValue* object = plan.given(row.object);
  return object == nullptr || !object->is(JsonKind::Object) ? nullptr : object->given(row.key.name);
}

const JsonValue* given_in(const JsonValue& plan, const PlanField& field) {
  return given_in(plan, plan_row(field));
}

void take_plain_keys(const JsonValue& json, Plan& plan, std::span<const PlanRow> rows) {
  for (const PlanRow& row : rows) {
    const JsonValue* value = given_in(json, row);
    if (value == nullptr) continue;
    std::visit(
        [&](auto field) {
          if constexpr (!std::is_same_v<decltype(field), std::monostate>) {
            take(*value, row.key, plan.*field);
          }
        },
        row.field);
  }
}

std::string value_json(const PlanRow& row, const Plan& plan) {
  if (row.text != nullptr) return row.text(plan);
  return std::visit(
      [&](auto field) -> std::string {
        if constexpr (std::is_same_v<decltype(field), std::monostate>) {
          return {};
        } else {
          return json_of(row.key, plan.*field);
        }
      },
      row.field);
}

}  // namespace rehearse
