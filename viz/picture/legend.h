// SPDX-License-Identifier: Apache-2.0
// Where the time of a summary went, as the entries of a legend.
#pragma once

#include <string>
#include <vector>

#include "viz/analysis/analysis.h"
#include "viz/picture/coloring.h"

namespace rehearse::viz {

struct LegendEntry {
  KindStyle style;
  std::string name;
  std::int64_t time = 0;  // [ns over ranks]; the entries add up to the summary's total
  double share = 0;       // of the summary's total
  bool shown = true;      // at least 0.05 %: every form of picture leaves out the same
};

// Kinds (those of one name together, without what their bodies wait), causes, waiting inside
// bodies, and idle time without a cause; entries without time are left out. What every picture, in
// pixels or letters, says of the time that it shows.
std::vector<LegendEntry> legend(const Summary& summary, Theme theme);
// The same by what colours stand for. REQUIRES: `summary` is of an index by the coloring's classes.
std::vector<LegendEntry> legend(const Summary& summary, const Coloring& coloring, Theme theme);
// What memory is for, in the order in which it is stacked, and the line of its capacity.
std::vector<LegendEntry> memory_legend(const Trace& trace);

}  // namespace rehearse::viz
