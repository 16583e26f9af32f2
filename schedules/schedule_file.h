// Somebody's own schedule, whichever form it has: torch's CSV or JSON.
#pragma once

#include <string>

#include "schedules/plan.h"
#include "schedules/schedule_json.h"

namespace rehearse {

// By its first character: an object is JSON, all else CSV.
// Errors: one line "PATH:LINE: where: what is wrong".
Result<ScheduleFile> read_schedule_file(const std::string& path);
Result<ScheduleFile> parse_schedule_file(std::string_view text, const std::string& path);

// The compute order inside a schedule: its ops without transfers, parts merged; Level::Compute.
// What a scenario with `schedule: "file:PATH"` lowers for its own model.
Schedule compute_order_of(const Schedule& schedule);

// The L0 of a plan whose `schedule` is "file:PATH", which must fit the plan: positions,
// micro-batches, slices, and be sound as a compute order. Fills plan.stage_layers where it is left
// out, equal shares for the stages that the file has.
// Errors: one line "plan.schedule: PATH: what does not fit".
Result<Schedule> order_of_file(Plan& plan, std::int32_t model_layers);

}  // namespace rehearse
