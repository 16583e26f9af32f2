// How messages name a place: "2B1 on rank 2", or "... on row 2" where rows fold ranks.
#pragma once

#include <string>

#include "schedules/text.h"

namespace rehearse {

inline std::string row_name(const Schedule& schedule, Row row) {
  return (schedule.rows.empty() ? "rank " : "row ") + std::to_string(row.value);
}
inline std::string where(const Schedule& schedule, OpId id) {
  return to_text(schedule, id) + " on " + row_name(schedule, schedule.row_of(id));
}

}  // namespace rehearse
