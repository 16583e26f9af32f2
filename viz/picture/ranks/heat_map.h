// SPDX-License-Identifier: Apache-2.0
// A heat map of ranks over time: bands of ranks down, time across. For more ranks than a window has
// lines. As a figure, as text, and the parts that the window draws. Pure: numbers -> scene.
#pragma once

#include <string>

#include "viz/analysis/ranks/heat.h"
#include "viz/picture/layout.h"
#include "viz/picture/scene.h"

namespace rehearse::viz {

// The colour of a share of time. Idle time: from the lanes' background to dark (on dark: to light),
// by the root of the share, so that a hundredth is seen. Excess: blue is faster than the median,
// vermilion slower.
Color heat_color(HeatOf of, double share, Theme theme);

// Where a map is drawn; the width of its time axis is the view's. Beside it, on the right, stands a
// column with each band's worst rank, where bands hold several.
struct HeatPlace {
  double x = 0, y = 0, height = 0;  // [px]
};
inline constexpr double kHeatWorst = 8, kHeatWorstGap = 4;  // width of that column, and before it
// Bands that a height has room for: a line for the mean, one for marks; no more than can be told
// apart. `scale`: pixels per unit.
std::int32_t heat_bands(double height, double scale);

// Every cell is its mean, exactly. In the lower half of a cell of several ranks stands the worst
// one's colour where that has a quarter of the cell's time more than the mean: one bad rank of
// many is seen.
void paint_heat(const HeatTable& table, HeatOf of, const View& view, const HeatPlace& place,
                Theme theme, Scene& scene);
// Where the head of that column begins: "mean" stands behind it and ends at `right`. What stands
// beside it ends before.
double worst_head(double end_of_map, double right);
// Names on the left of x, shares on the right, as many as there is room for.
void name_bands(const HeatSource& source, const HeatTable& table, const View& view,
                const HeatPlace& place, double right, Theme theme, Scene& scene);
// The scale of colours at the base line y, with its marks; and what it is of, in words. `several`:
// cells have lower halves.
void heat_colors(HeatOf of, double x, double y, Theme theme, Scene& scene);
std::string heat_words(bool several);
// Both in one line.
void heat_scale(HeatOf of, bool several, double x, double y, Theme theme, Scene& scene);
// Of all bands together.
struct HeatTotals {
  double ranks = 0, mean = 0, worst = 0;  // shares: of all ranks, of the rank with most
  std::int32_t worst_row = 0;
};
HeatTotals heat_totals(const HeatTable& table);
// Whether some band holds several ranks that differ.
bool holds_several(const HeatTable& table);

struct HeatOptions {
  HeatOf of = kHeatIdle;                      // REQUIRES: the source has it
  Nanoseconds begin{0}, end{0};               // equal: the whole step
  std::int32_t first_row = 0, last_row = -1;  // rows [first, last); -1: all
};
struct HeatMapOptions {
  HeatOptions shown;
  Theme theme = Theme::Light;
  std::int32_t width = 1600;  // [px]
};
Scene heat_map(const HeatSource& source, const HeatMapOptions& options);

// The same in `columns` letters: a line for each band, at most `lines` of them, with its share, its
// worst rank and that one's share.
std::string heat_text(const HeatSource& source, const HeatOptions& shown, std::int32_t columns,
                      std::int32_t lines = 32);

}  // namespace rehearse::viz
