// SPDX-License-Identifier: Apache-2.0
// The keys of a plan as a file gives them: what every step of the reader asks, and where it says
// what is wrong.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/base/json_reader.h"
#include "schedules/scenario/keys/plan_rows.h"
#include "schedules/scenario/reader/plan_reader.h"

namespace rehearse {

// The enumerator that `text` names. REQUIRES: it is one of `names`, in the enumerators' order.
template <class Enum, std::size_t N>
Enum enum_of(std::string_view text, const std::array<std::string_view, N>& names) {
  const auto found = std::ranges::find(names, text);
  return static_cast<Enum>(found - names.begin());
}

// For messages; a product as "4 x 2 x 1".
std::string number(std::int64_t value);
std::string product(std::initializer_list<std::int64_t> factors);

struct GivenKeys {
  const JsonValue& json;  // the plan; its kinds and ranges are checked
  const PlanContext& context;
  JsonReport& report;
  std::vector<std::string>& warnings;

  bool names_runtime() const { return given(&Plan::runtime) != nullptr; }
  const JsonValue* given(const PlanField& key) const { return given_in(json, key); }
  std::int64_t integer(const PlanField& key, std::int64_t otherwise) const;
  std::int32_t size(const PlanField& key, std::int32_t otherwise) const;
  bool flag(const PlanField& key, bool otherwise) const;

  void fail(const PlanField& key, const std::string& what, bool unsupported = false) const;
  // `path`: "overlap.expert_parallel" is a member of an object.
  void fail(std::string_view path, const std::string& what, bool unsupported = false) const;
  // Fails where `divisor`, which `key` says, does not divide `value`.
  void divides(const PlanField& key, std::int64_t divisor, std::string_view what,
               std::int64_t value) const;
};

}  // namespace rehearse
