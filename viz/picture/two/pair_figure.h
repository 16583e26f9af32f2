// SPDX-License-Identifier: Apache-2.0
// Two traces as one picture: rank by rank, the first above the second, below them how far the
// second is behind; and the waterfall of causes from the one step to the other. As a figure and as
// text. Two of different schedules stand one below the other.
#pragma once

#include <optional>
#include <span>

#include "viz/analysis/index.h"
#include "viz/analysis/two/lag.h"
#include "viz/picture/charts/waterfall.h"
#include "viz/picture/scene.h"

namespace rehearse::viz {

// What tells one of two traces from the other: "predicted", its schedule, else "first" or "second".
std::string side_name(const Trace& one, const Trace& other, bool first);

struct Pair {
  const TraceIndex& a;
  const TraceIndex& b;
  // Per op of b, the op of a that does the same; empty: they do not correspond.
  std::span<const OpId> same;
  std::int64_t origin = 0;               // b's time at which a's step begins
  std::string aligned;                   // what begins together, in words
  const Waterfall* waterfall = nullptr;  // null: none
};
struct PairOptions {
  Theme theme = Theme::Light;
  std::int32_t width = 1600;                  // [px]
  Nanoseconds begin{0}, end{0};               // of a's time; equal: both steps whole
  std::int32_t first_row = 0, last_row = -1;  // rows [first, last) of each; -1: all
};
Scene pair_figure(const Pair& pair, const PairOptions& options);
std::string pair_text(const Pair& pair, const PairOptions& options, std::int32_t columns,
                      bool color);

}  // namespace rehearse::viz
