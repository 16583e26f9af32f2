// SPDX-License-Identifier: Apache-2.0
// The lane of differences below a rank of two traces: how far the second is behind the first, op by
// op. What figure and window share.
#pragma once

#include "viz/analysis/two/lag.h"
#include "viz/picture/layout.h"
#include "viz/picture/scene.h"

namespace rehearse::viz {

Color lag_color(bool behind);  // vermilion: behind; blue: ahead

struct LagPlace {
  double x = 0, y = 0, height = 0;  // [px]; the width is the view's
  std::int64_t top = 1;             // [ns] at the upper edge; -top at the lower one
  std::int64_t shift = 0;           // [ns] added to every lag, where not the steps begin together
};
// Above the middle line as far as the second is behind, below it as far as it is ahead: of each
// column the greatest of both.
void paint_lag(const LagCurve& curve, const View& view, std::span<const std::int64_t> edges,
               const LagPlace& place, Theme theme, Scene& scene);
// "+12.3 ms", "-4.5 ms", "0"
std::string lag_text(std::int64_t ns);
// The same height for every rank: the greatest lag of any, rounded up to a number that reads well.
std::int64_t lag_top(std::int64_t greatest);

}  // namespace rehearse::viz
