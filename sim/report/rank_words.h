// SPDX-License-Identifier: Apache-2.0
// Which ranks a row of a report is of: all ranks of a pipeline position, or a class of them that
// does something else than the rest.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schedules/ir/schedule.h"
#include "schedules/scenario/plan.h"

namespace rehearse::sim {

// The rank numbers that a row of the schedule stands for, ascending.
std::vector<std::int32_t> ranks_of(const Schedule& schedule, RankClass row, const Plan& plan);

// How a table of rows names them. A replay of memory has a row per position, else there is one for
// each row of the schedule: where a position has several, numbers of positions would name none.
struct RankWords {
  std::string title;               // "position", or "ranks"
  std::vector<std::string> words;  // "0", or "1-7": per row, at most 14 letters
  std::string of(std::size_t row) const { return title + " " + words[row]; }
};
RankWords rank_words(const Schedule& schedule, const Plan& plan, std::size_t rows);

}  // namespace rehearse::sim
