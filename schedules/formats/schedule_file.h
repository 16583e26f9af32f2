// SPDX-License-Identifier: Apache-2.0
// Somebody's own schedule, whichever form it has: torch's CSV or JSON.
#pragma once

#include <string>

#include "schedules/formats/schedule_json.h"
#include "schedules/scenario/plan.h"

namespace rehearse {

// By its first character: an object is JSON, all else CSV.
// Errors: one line "PATH:LINE: where: what is wrong".
Result<ScheduleFile> read_schedule_file(const std::string& path);
Result<ScheduleFile> parse_schedule_file(std::string_view text, const std::string& path);

// The first op of a file that is neither a compute op nor an exchange of an own group: a transfer,
// a gather, a reduction; -1: none.
std::int32_t first_beyond_order(const Schedule& schedule);
// Whether the file `path` is a compute order and nothing else, as a plan wants it. Errors: one line
// that names the first other op and says how to take the order alone.
Result<> order_alone(const Schedule& schedule, const std::string& path);

// The compute order inside a schedule: its ops without transfers, parts merged, with the exchanges
// of its own groups; Level::Compute.
Schedule compute_order_of(const Schedule& schedule);

// The L0 of a plan whose `schedule` is "file:PATH", which must fit the plan: positions,
// micro-batches, slices, and be sound as a compute order. A file that lists transfers, gathers or
// reductions too is refused: the plan has its own, and nobody would be told. Fills
// plan.stage_layers where it is left out, equal shares for the stages that the file has. Errors:
// one line "plan.schedule: PATH: what does not fit".
Result<Schedule> order_of_file(Plan& plan, std::int32_t model_layers);

}  // namespace rehearse
