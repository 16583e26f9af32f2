// SPDX-License-Identifier: Apache-2.0
// Terminal, figure and window say the same of a trace, and each says what a bubble is.
#include <gtest/gtest.h>

#include "tests/viz/window/sessions.h"
#include "viz/analysis/units_text.h"
#include "viz/picture/figure.h"
#include "viz/picture/formats/svg.h"
#include "viz/picture/terminal.h"
#include "viz/window/describe.h"
#include "viz/window/geometry.h"
#include "viz/window/view/scene.h"

namespace rehearse::viz {
namespace {

using fixture::one;
using fixture::run;

// Names and shares of kinds, causes and waits, of the whole step and of parts of it; idle shares
// of the rows; what memory is for.
TEST(Forms, SayTheSameOfAStep) {
  const Session session = one(fixture::full_trace(4, 9));
  const Document& document = session.at(0);
  const Trace& trace = document.trace();
  ViewState state = initial_state(session, 1280, 900);
  const std::string window = svg(view_scene(session, state));
  const std::string figure_text = svg(figure(document.index(), {.width = 1280}));
  const std::string terminal = terminal_chart(document.index(), {});
  int compared = 0;
  const auto expect_in_all = [&](const std::string& text) {
    EXPECT_NE(window.find(text), std::string::npos) << text;
    EXPECT_NE(figure_text.find(text), std::string::npos) << text;
    EXPECT_NE(terminal.find(text), std::string::npos) << text;
    ++compared;
  };
  const Summary whole =
      summarize(document.index(), trace.begin.value, trace.end.value, 0, trace.num_rows());
  double sum = 0;
  for (const LegendEntry& entry : legend(whole, Theme::Dark)) {
    sum += entry.share;
    if (entry.shown) expect_in_all(entry.name + " " + percent_text(entry.share));
  }
  EXPECT_NEAR(sum, 1, 1e-12);
  EXPECT_GE(compared, 6);
  for (std::int32_t row = 0; row < trace.num_rows(); ++row) {
    const Summary of =
        summarize(document.index(), trace.begin.value, trace.end.value, row, row + 1);
    expect_in_all(percent_text(of.bubble_ratio()));
  }
  for (const LegendEntry& part : memory_legend(trace)) {
    EXPECT_NE(window.find(part.name), std::string::npos) << part.name;
    EXPECT_NE(figure_text.find(part.name), std::string::npos) << part.name;
  }
}

// The mouse over any part of a bubble tells of all of it: length, causes, and the rank that it
// waits for.
TEST(Forms, ABubbleIsToldWhole) {
  const Session session = one(fixture::full_trace(3, 5));
  const Document& document = session.at(0);
  const Trace& trace = document.trace();
  const ViewState state = initial_state(session, 1280, 900);
  const Geometry at = geometry(session, state);
  int told = 0;
  for (const LaneSpot& lane : at.lanes) {
    if (lane.lane % trace.slots != 0) continue;
    for (auto i = static_cast<std::int32_t>(trace.idle_begin[static_cast<std::size_t>(lane.row)]);
         i < trace.idle_begin[static_cast<std::size_t>(lane.row) + 1]; ++i) {
      const Bubble bubble = bubble_at(trace, document.causality(), i);
      const IdleSpan& span = trace.idle[static_cast<std::size_t>(i)];
      const double x = at.x_of(state, static_cast<double>((span.begin + span.end) / 2));
      const std::string seen = svg(view_scene(
          session, run(session, state,
                       "move " + std::to_string(x) + " " + std::to_string(lane.y + 5) + "\n")));
      EXPECT_NE(
          seen.find(time_text(bubble.end - bubble.begin) + " on " + row_name(trace, {lane.row})),
          std::string::npos)
          << i;
      if (!bubble.wait.source || trace.row_of(bubble.wait.source).value == lane.row) continue;
      EXPECT_NE(seen.find(op_name(trace, bubble.wait.source) + " on " +
                          row_name(trace, trace.row_of(bubble.wait.source))),
                std::string::npos);
      ++told;
    }
  }
  EXPECT_GT(told, 5);
}

// Idle links are one line that counts them; a loaded one shows its mean, not its peak.
TEST(Forms, LinksWithoutLoadAreFolded) {
  Trace trace = fixture::full_trace();
  const auto name = trace.links[0].name;
  trace.links = std::vector<TraceLink>{{.name = name}, {.name = name}, {.name = name}};
  trace.link_begin = std::vector<std::int64_t>{0, 2, 2, 4};
  trace.link_samples = std::vector<LinkSample>{{.time = 0, .load_ppm = 1'000'000},
                                               {.time = 50, .load_ppm = 0},
                                               {.time = 0, .load_ppm = 0},
                                               {.time = 9, .load_ppm = 0}};
  const double mean = 50 / static_cast<double>(trace.step().value);
  const Session session = one(std::move(trace));
  const ViewState state = run(session, initial_state(session, 1280, 900), "key L\n");
  ASSERT_EQ(geometry(session, state).links.size(), 2u);
  const std::string seen = svg(view_scene(session, state));
  EXPECT_NE(seen.find("2 links without load"), std::string::npos);
  EXPECT_NE(seen.find(percent_text(mean)), std::string::npos);
}

// Whatever is selected: the panel says what a shorter op would give, and arrows lead to it.
TEST(Forms, TheSelectedOpSaysWhatItWaitedForAndWhatIf) {
  const Session session = one(fixture::full_trace(3, 5));
  const ViewState none = initial_state(session, 1280, 900);
  const ViewState state = run(session, none, "key /\ntext 1F1\nkey Enter\nkey Escape\n");
  ASSERT_TRUE(state.selected);
  const std::string seen = svg(view_scene(session, state));
  for (const char* words : {"waited for", "0F1 on rank 0", "20 % shorter", "all like it", "step "})
    EXPECT_NE(seen.find(words), std::string::npos) << words;
}

}  // namespace
}  // namespace rehearse::viz
