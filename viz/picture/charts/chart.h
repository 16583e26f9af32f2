// SPDX-License-Identifier: Apache-2.0
// A timed compute order as a picture: characters for the terminal, a scene for SVG.
// For orders without a trace: any unit of time, compute ops only. Traces: terminal.h and figure.h.
#pragma once

#include <string>

#include "schedules/timing/compute_timing.h"
#include "viz/picture/scene.h"

namespace rehearse::viz {

struct ChartOptions {
  std::int32_t columns = 80;  // of a line, row labels included
  bool color = false;         // ANSI colours
};

// One line per row: "r0 F0F1F2......B0F3B1". An op is its kind and micro-batch, filled with '-' or
// cut to the columns that it takes; '.' is idle; small letters are the later chunks of a position.
// Never wider than options.columns. REQUIRES: timing of that schedule.
std::string chart(const Schedule& schedule, const ComputeTiming& timing,
                  const ChartOptions& options);

// The same as shapes; ops wide enough have their micro-batch as text.
Scene chart_scene(const Schedule& schedule, const ComputeTiming& timing, const std::string& title,
                  std::int32_t width);

}  // namespace rehearse::viz
