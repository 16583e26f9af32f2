// SPDX-License-Identifier: Apache-2.0
// The columns of a full L1 (values, operands, groups, buckets, rows, waits) as JSON tables: what a
// schedule file holds besides `orders` where it was lowered for a model.
//
// Each table is {"fields": [names], "rows": [[numbers], ...]}; names may stand in any order, a
// field that a version to come adds is an error, one that is left out has its default.
#pragma once

#include <string>

#include "schedules/base/json_reader.h"
#include "schedules/ir/schedule.h"

namespace rehearse {

// Whether a schedule has anything that op text cannot say.
bool needs_columns(const Schedule& schedule);
// The value of the key `columns`, one table a line, indented by four.
std::string columns_to_json(const Schedule& schedule);
// Fills all columns of `schedule` but name, level, placement, micro-batches and slices. Reports
// "columns.values.rows[3]: ..." and leaves `schedule` unusable where anything is wrong; numbers are
// checked one by one here, what they point at by rule V1.
void columns_from_json(const JsonValue& columns, JsonReport& report, Schedule& schedule);

}  // namespace rehearse
