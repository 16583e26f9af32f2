// SPDX-License-Identifier: Apache-2.0
// How a run's tokens fell on its experts, as a heat map over its steps, with what all ranks wait
// for: the busiest one's rows. Pure: trace + options -> scene.
#pragma once

#include "viz/picture/experts/expert_grid.h"
#include "viz/picture/scene.h"

namespace rehearse::viz {

// The colour of rows over their mean: blue has fewer, vermilion more, by the logarithm up to a
// quarter and four times; no rows at all have a colour of their own.
Color color_of_share(double over_mean, Theme theme);

// Around a grid: room for names on the left, numbers on the right, the legend and steps below (more
// where the grid is narrow, and words need further lines).
inline constexpr double kExpertsLeft = 128, kExpertsRight = 64, kExpertsBelow = 124;

// Cells, names of layers, ranks and experts, the busiest's mean on the right; below it the steps,
// the busiest over the steps, and what colours mean. Returns where all of it ends [px].
double draw_experts(const ExpertRows& rows, const ExpertGrid& grid, Theme theme, Scene& scene);

struct ExpertMapOptions {
  Theme theme = Theme::Light;
  std::int32_t width = 1600;  // [px]
};
// REQUIRES: the trace has rows of experts.
Scene expert_map(const Trace& trace, const ExpertMapOptions& options);

}  // namespace rehearse::viz
