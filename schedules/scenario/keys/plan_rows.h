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

// A field of the plan, by which code names the key that fills it.
using PlanField =
    std::variant<std::monostate, bool Plan::*, std::int32_t Plan::*, std::int64_t Plan::*,
                 double Plan::*, std::string Plan::*, DataParallelAlgorithm Plan::*,
                 ExpertDispatch Plan::*, ExpertRouting Plan::*, ExpertOverlap Plan::*,
                 TensorOverlap Plan::*, TransferForm Plan::*, Optimizer Plan::*, Offload Plan::*,
                 OffloadTarget Plan::*, OffloadedActivations Plan::*, PairOverlap Plan::*,
                 ContextParallelAlgorithm Plan::*, ChimeraScaling Plan::*, IndexerLoss Plan::*,
                 TensorGrid Plan::*, AttentionKernel Plan::*, std::vector<std::int32_t> Plan::*,
                 std::vector<Axis> Plan::*, Recompute Plan::*, Precision Plan::*,
                 RuntimeTraits Plan::*>;

struct PlanRow {
  KeySpec key;
  RunUse run{};
  std::string_view object{};  // the key whose object this is a member of: "overlap"
  // What the key's value fills. Numbers, words and flags go in as they stand, words in the order of
  // the enumerators; the reader's steps then check them, fill in what is left out, and make the
  // rest.
  PlanField field{};
  // The value as JSON in a report; null: the field's. An empty text leaves the key out.
  std::string (*text)(const Plan& plan) = nullptr;
  std::array<IdleWhen, 4> idle{};
  // A plan may be changed in it so that it fits: the values that need no more memory, as JSON, the
  // plan's own first. `all`: every legal value.
  std::vector<std::string> (*smaller)(const Plan& plan) = nullptr;
  bool all = false;
  bool of_experts = false;  // says something of models with experts alone
  bool splits = false;      // divides a step over GPUs: a plan of one GPU leaves it out
};

std::span<const PlanRow> plan_rows();
std::span<const PlanRow> overlap_rows();  // members of `overlap`

// The row of a path below "plan.": "prefetch", "overlap.pipeline", "precision.compute" (that of
// `precision`). nullptr: no such key.
const PlanRow* find_plan_row(std::string_view path);

// What code says of a key by its field: its row, its own name ("zero_stage", "pipeline"), its path
// below "plan." ("overlap.pipeline"). REQUIRES: a row has the field.
const PlanRow& plan_row(const PlanField& field);
std::string_view key_of(const PlanField& field);
std::string path_of(const PlanRow& row);
std::string path_of(const PlanField& field);
// The value that a file's plan gives the key; nullptr: none, or null.
const JsonValue* given_in(const JsonValue& plan, const PlanRow& row);
const JsonValue* given_in(const JsonValue& plan, const PlanField& field);

// Fills the fields of the keys that `json`, a plan, gives. REQUIRES: its kinds and ranges are
// checked.
void take_plain_keys(const JsonValue& json, Plan& plan,
                     std::span<const PlanRow> rows = plan_rows());

// The key's value in a report; "": left out there.
std::string value_json(const PlanRow& row, const Plan& plan);

}  // namespace rehearse
