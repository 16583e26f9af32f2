// SPDX-License-Identifier: Apache-2.0
#include "schedules/scenario/keys/plan_notes.h"

namespace rehearse {

std::vector<IdleKey> keys_without_effect(const JsonValue& given, const Plan& plan,
                                         std::span<const PlanRow> rows) {
  std::vector<IdleKey> idle;
  const auto look = [&](const PlanRow& row) {
    const JsonValue* value = given_in(given, row);
    if (value == nullptr) return;
    for (const IdleWhen& when : row.idle) {
      if (when.asks == nullptr || !when.asks(*value) || !when.holds(plan)) continue;
      idle.push_back({path_of(row), std::string(when.why)});
    }
  };
  for (const PlanRow& row : rows) look(row);
  for (const PlanRow& row : overlap_rows()) look(row);
  return idle;
}

}  // namespace rehearse
