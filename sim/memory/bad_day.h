// SPDX-License-Identifier: Apache-2.0
// The day on which a plan breaks that fits at even load: what a step may bring to one rank beyond
// what ranks have on average, and the plan's layout as that rank sees it.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "schedules/scenario/layout.h"

namespace rehearse::sim {

// Whether a plan fits in memory, in one word: always; at even load, but not on a bad day; never.
enum class Verdict : std::uint8_t { Yes, Tight, No };
inline constexpr std::array<std::string_view, 3> kVerdictNames{"yes", "tight", "no"};
constexpr std::string_view name_of(Verdict verdict) {
  return kVerdictNames[static_cast<std::size_t>(verdict)];
}

struct DayLoad {
  double rows = 1;  // of the busiest rank's experts over the mean, as plan.expert_routing says
  std::int64_t sample = 0;  // [tokens] of the longest one, where no sequence holds it; else 0
};
// What the plan says of its worst day. Our own executor reserves its rows, and more fail or are
// dropped: 1.
DayLoad day_load(const Layout& layout);

// A plan's layout under a load: as many rows for the experts, samples of that length.
// REQUIRES: the layout's model outlives it.
class LoadedLayout {
 public:
  LoadedLayout(const Layout& of, const DayLoad& load);
  LoadedLayout(const LoadedLayout&) = delete;
  LoadedLayout& operator=(const LoadedLayout&) = delete;

  const Layout& layout() const { return layout_; }

 private:
  Plan plan_;
  Layout layout_;
};

enum class BadDayCause : std::uint8_t { None, BusiestRank, LongestSample, AllocatorMargin };
inline constexpr std::array<std::string_view, 4> kBadDayNames{"none", "busiest_rank",
                                                              "longest_sample", "allocator_margin"};
constexpr std::string_view name_of(BadDayCause cause) {
  return kBadDayNames[static_cast<std::size_t>(cause)];
}
struct BadDay {
  BadDayCause cause = BadDayCause::None;
  std::int64_t peak_device = 0;  // [B] of the fullest rank on that day
};

}  // namespace rehearse::sim
