// SPDX-License-Identifier: Apache-2.0
#include "schedules/runtime/trait_rows.h"

namespace rehearse {
namespace {

using T = RuntimeTraits;

constexpr bool EagerKernels::*kEagerFields[]{&EagerKernels::norm, &EagerKernels::rope,
                                             &EagerKernels::activation};

EagerKernels eager_kernels(const JsonValue& list) {
  EagerKernels eager;
  for (const JsonValue& word : list.items) {
    eager.*kEagerFields[std::ranges::find(trait::kEager, word.text) - trait::kEager.begin()] = true;
  }
  return eager;
}

}  // namespace

void take_trait(const JsonValue& value, const TraitRow& row, RuntimeTraits& traits) {
  std::visit(
      [&](auto field) {
        auto& to = traits.*field;
        using Value = std::remove_reference_t<decltype(to)>;
        if constexpr (std::is_same_v<Value, bool>) {
          to = value.boolean;
        } else if constexpr (std::is_same_v<Value, EagerKernels>) {
          to = eager_kernels(value);
        } else if constexpr (std::is_enum_v<Value>) {
          to = static_cast<Value>(std::ranges::find(row.key.choices, value.text) -
                                  row.key.choices.begin());
        } else {
          to = static_cast<Value>(value.integer);
        }
      },
      row.field);
}

std::string trait_json(const TraitRow& row, const RuntimeTraits& traits) {
  return std::visit(
      [&](auto field) -> std::string {
        const auto& from = traits.*field;
        using Value = std::remove_cvref_t<decltype(from)>;
        if constexpr (std::is_same_v<Value, bool>) {
          return from ? "true" : "false";
        } else if constexpr (std::is_same_v<Value, EagerKernels>) {
          std::string list;
          for (std::size_t i = 0; i < trait::kEager.size(); ++i) {
            if (!(from.*kEagerFields[i])) continue;
            list += (list.empty() ? "" : ", ") + json_quoted(trait::kEager[i]);
          }
          return "[" + list + "]";
        } else if constexpr (std::is_enum_v<Value>) {
          return json_quoted(row.key.choices[static_cast<std::size_t>(from)]);
        } else {
          return std::to_string(from);
        }
      },
      row.field);
}

}  // namespace rehearse
