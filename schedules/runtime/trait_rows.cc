// SPDX-License-Identifier: Apache-2.0
#include "schedules/runtime/trait_rows.h"

namespace rehearse {
namespace {

using T = RuntimeTraits;

constexpr bool EagerKernels::*kEagerFields[]{&EagerKernels::norm, &EagerKernels::rope,
                                             &EagerKernels::activation, &EagerKernels::router,
                                             &EagerKernels::permute};

constexpr bool CudaGraphs::*kGraphFields[]{&CudaGraphs::attention, &CudaGraphs::router,
                                           &CudaGraphs::preprocess, &CudaGraphs::mlp};

// Words of a list to flags: word i is field i.
template <class Flags, std::size_t N>
Flags flags_of(const JsonValue& list, const std::array<std::string_view, N>& words,
               bool Flags::*const (&fields)[N]) {
  Flags flags;
  for (const JsonValue& word : list.items) {
    flags.*fields[std::ranges::find(words, word.text) - words.begin()] = true;
  }
  return flags;
}
template <class Flags, std::size_t N>
std::string list_of(const Flags& flags, const std::array<std::string_view, N>& words,
                    bool Flags::*const (&fields)[N]) {
  std::string list;
  for (std::size_t i = 0; i < N; ++i) {
    if (flags.*fields[i]) list += (list.empty() ? "" : ", ") + json_quoted(words[i]);
  }
  return "[" + list + "]";
}

CudaGraphs cuda_graphs(const JsonValue& value) {
  if (value.is(JsonKind::Array)) return flags_of(value, trait::kGraphParts, kGraphFields);
  return {.whole = value.boolean};
}
std::string graphs_text(const CudaGraphs& graphs) {
  if (graphs.whole || !graphs.any()) return graphs.whole ? "true" : "false";
  return list_of(graphs, trait::kGraphParts, kGraphFields);
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
          to = flags_of(value, trait::kEager, kEagerFields);
        } else if constexpr (std::is_same_v<Value, CudaGraphs>) {
          to = cuda_graphs(value);
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
          return list_of(from, trait::kEager, kEagerFields);
        } else if constexpr (std::is_same_v<Value, CudaGraphs>) {
          return graphs_text(from);
        } else if constexpr (std::is_enum_v<Value>) {
          return json_quoted(row.key.choices[static_cast<std::size_t>(from)]);
        } else {
          return std::to_string(from);
        }
      },
      row.field);
}

}  // namespace rehearse
