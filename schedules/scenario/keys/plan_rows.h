// SPDX-License-Identifier: Apache-2.0
// One row per key of `plan`. A row says all that is said of the key itself: kind and range, what
// `run` does with it, the field that it fills, its value in a report, when it changes nothing, and
// whether a plan may be changed in it to need less memory. The loader's check, the schema, the
// docs' table, reports, notes, the search's lists and its advice are made from the rows; what
// several keys mean together is the reader's (reader/).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "schedules/base/json_keys.h"
#include "schedules/base/json_reader.h"
#include "schedules/base/key_use.h"
#include "schedules/scenario/plan.h"

namespace rehearse {

// A value that changes nothing where another key makes it meaningless.
struct IdleWhen {
  bool (*asks)(const JsonValue& value) = nullptr;  // the value asks for something
  bool (*holds)(const Plan& plan) = nullptr;       // and this makes it meaningless
  std::string_view why{};
};

struct PlanRow {
  KeySpec key;
  RunUse run{};
  // What the key's value fills as it stands, where a key fills one field: words stand in the order
  // of the enumerators. The reader's steps then check it, and fill in what is left out.
  std::variant<std::monostate, bool Plan::*, std::int32_t Plan::*, std::int64_t Plan::*,
               double Plan::*, DataParallelAlgorithm Plan::*, ExpertDispatch Plan::*,
               Optimizer Plan::*, OffloadMode Plan::*>
      field{};
  // The value as JSON in a report; null: the field's. An empty text leaves the key out.
  std::string (*text)(const Plan& plan) = nullptr;
  std::array<IdleWhen, 2> idle{};
  // A plan may be changed in it so that it fits: the values that need no more memory, as JSON, the
  // plan's own first. `all`: every legal value.
  std::vector<std::string> (*smaller)(const Plan& plan) = nullptr;
  bool all = false;
  bool of_experts = false;  // says something of models with experts alone
};

std::span<const PlanRow> plan_rows();
std::span<const PlanRow> overlap_rows();  // members of `overlap`

// The row of a path below "plan.": "prefetch", "overlap.pipeline", "precision.compute" (that of
// `precision`). nullptr: no such key.
const PlanRow* find_plan_row(std::string_view path);

// Fills the fields of the keys that `plan` gives. REQUIRES: its kinds and ranges are checked.
void take_plain_keys(const JsonValue& json, Plan& plan,
                     std::span<const PlanRow> rows = plan_rows());

// The key's value in a report; "": left out there.
std::string value_json(const PlanRow& row, const Plan& plan);

}  // namespace rehearse
