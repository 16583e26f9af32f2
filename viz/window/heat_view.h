// SPDX-License-Identifier: Apache-2.0
// The heat map of the window: what it counts, which cells it has, and the one under the mouse.
#pragma once

#include <optional>

#include "viz/picture/layout.h"
#include "viz/window/geometry.h"

namespace rehearse::viz {

// What the map of a trace counts: what was asked for, where the trace has it, else idle time.
HeatOf heat_shown(const Session& session, const ViewState& state, std::int32_t document);

// The time in view on a document's own clock, in columns that stay where they are when it is
// panned.
View heat_time(const Session& session, const ViewState& state, const Geometry& at,
               std::int32_t document);
// Edges of the columns in which a map shows so many ranks [ns]: of lanes' columns (layout.h), or,
// of thousands of ranks, of twice the width; within the step. Empty: none of it is in view.
std::vector<std::int64_t> heat_edges(const Session& session, const View& view,
                                     std::int32_t document, std::int64_t ranks);

// A cell: ranks of a band within a column, and of those the one with most.
struct HeatCell {
  std::int32_t document = 0;
  HeatOf of = kHeatIdle;
  RankRange ranks;
  std::int64_t begin = 0, end = 0;  // of the column [ns]
  std::int64_t time = 0;            // under the mouse [ns]
  double mean = 0, most = 0;        // shares of its time
  std::int32_t worst_row = 0;
};
// None: no map is there.
std::optional<HeatCell> heat_cell(const Session& session, const ViewState& state,
                                  const Geometry& at, const Hit& hit, double x, double y);

}  // namespace rehearse::viz
