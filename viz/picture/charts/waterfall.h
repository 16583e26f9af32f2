// SPDX-License-Identifier: Apache-2.0
// From one total to another, cause by cause: a bar for each, which begins where the one before it
// ended.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "viz/picture/scene.h"

namespace rehearse::viz {

struct WaterfallStep {
  std::string label;
  std::int64_t difference = 0;  // [ns]
};

struct Waterfall {
  std::string title;       // broken into lines
  std::string from, to;    // what the totals are of
  std::int64_t begin = 0;  // [ns]; the last bar ends at begin and all differences
  std::vector<WaterfallStep> steps;
};

// Totals above and below, between them what adds time to the right and what takes it away to the
// left. Where the differences are small against the totals the axis does not begin at 0, and says
// so.
Scene waterfall_scene(const Waterfall& waterfall, Theme theme = Theme::Light);
// The same numbers, a line each.
std::string waterfall_text(const Waterfall& waterfall);

}  // namespace rehearse::viz
