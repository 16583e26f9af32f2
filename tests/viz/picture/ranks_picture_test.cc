// SPDX-License-Identifier: Apache-2.0
// Many ranks and two traces as pictures: text and SVG say the same, colours are ordered for every
// eye, one bad rank of many is seen. Goldens: UPDATE_GOLDEN=1 rewrites them.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "tests/viz/picture/full_trace.h"
#include "tests/viz/picture/places.h"
#include "viz/analysis/analysis.h"
#include "viz/analysis/units_text.h"
#include "viz/picture/formats/svg.h"
#include "viz/picture/ranks/heat_map.h"
#include "viz/picture/ranks/straggler_chart.h"
#include "viz/picture/two/paint_lag.h"
#include "viz/picture/two/pair_figure.h"

namespace rehearse::viz {
namespace {

Trace measured(std::int32_t p, std::int32_t m, std::int32_t copies, std::int32_t slow) {
  Trace trace = fixture::replicas_trace(p, m, copies, slow, {.forward = 1003, .backward = 1999});
  attribute_idle(trace);
  return trace;
}

void expect_golden(const std::string& name, const Scene& scene) {
  const std::string path = "tests/golden/viz/" + name + ".svg";
  const std::string text = svg(scene);
  if (std::getenv("UPDATE_GOLDEN") != nullptr) std::ofstream(path, std::ios::binary) << text;
  std::ifstream in(path, std::ios::binary);
  const std::string golden{std::istreambuf_iterator<char>(in), {}};
  EXPECT_EQ(text, golden) << path << " differs; UPDATE_GOLDEN=1 rewrites it";
}

// No word beyond the picture's edges, none upon another one.
void expect_words_placed(const Scene& scene) {
  for (const std::string& fault : fixture::misplaced(scene, scene.width)) ADD_FAILURE() << fault;
  for (const Text& text : scene.texts) EXPECT_LE(text.y, scene.height) << text.text;
}

TEST(HeatMap, TextAndPictureSayTheSame) {
  const Trace trace = measured(4, 9, 3, 1);
  const TraceIndex index(trace);
  const HeatSource source(index);
  for (const HeatOf of : {kHeatIdle, heat_of(IdleCause::Dependency), kHeatExcess}) {
    ASSERT_TRUE(source.has(of));
    const Scene scene = heat_map(source, {.shown = {.of = of}, .width = 1000});
    const std::string picture = svg(scene), text = heat_text(source, {.of = of}, 80);
    const HeatTable table = source.table(of, std::array{trace.begin.value, trace.end.value}, 12);
    for (std::size_t b = 0; b < table.bands.size(); ++b) {
      EXPECT_NE(picture.find(percent_text(table.mean(b))), std::string::npos) << b;
      EXPECT_NE(text.find(percent_text(table.mean(b))), std::string::npos) << b;
      EXPECT_NE(picture.find(source.ranks_text(table.bands[b].first, table.bands[b].last)),
                std::string::npos);
    }
    expect_words_placed(scene);
  }
}

// A hundred ranks in one band: the mean hardly moves for one of them, its mark is seen.
TEST(HeatMap, OneBadRankOfManyIsMarked) {
  const Trace trace = measured(1, 40, 100, 63);
  const TraceIndex index(trace);
  const HeatSource source(index);
  std::vector<std::int64_t> edges{trace.begin.value, trace.begin.value + trace.step().value / 2,
                                  trace.end.value};
  const HeatTable table = source.table(kHeatExcess, edges, 1);
  Scene scene;
  paint_heat(table, kHeatExcess, {.begin = trace.begin, .end = trace.end, .width_px = 100},
             {.height = 4}, Theme::Light, scene);
  EXPECT_LT(table.mean(0), 0.01);
  EXPECT_EQ(table.bands[0].worst_row, 63);
  // Forwards that take half as long again, a third of them beyond the median, beside backwards:
  // less than a quarter of the cell, so only the worst rank's column says it.
  ASSERT_EQ(scene.strips.size(), 2u);
  EXPECT_NE(scene.strips[1].colors[0], scene.strips[0].colors[0]);
  // Within one forward of the slow rank it is a third.
  const HeatTable near = source.table(kHeatExcess, std::array<std::int64_t, 2>{100, 1300}, 1);
  Scene close;
  paint_heat(near, kHeatExcess, {.begin = {100}, .end = {1300}, .width_px = 100}, {.height = 4},
             Theme::Light, close);
  EXPECT_EQ(close.strips.size(), 3u);
}

// From none to all a scale is darker with every step (on dark lighter): whoever sees no hue reads
// it.
TEST(HeatMap, SharesAreOrderedByLightness) {
  for (const Theme theme : {Theme::Light, Theme::Dark}) {
    double last = 0;
    for (int i = 0; i <= 20; ++i) {
      const double share = i / 20.0;
      const double here = contrast(heat_color(kHeatIdle, share, theme), palette(theme).lane);
      EXPECT_GE(here, i == 0 ? 0 : last * 0.999) << share;
      last = here;
    }
    EXPECT_GT(last, 7);
    // A hundredth is seen, and so is a tenth beyond the median, either way.
    EXPECT_NE(heat_color(kHeatIdle, 0.01, theme), heat_color(kHeatIdle, 0, theme));
    const Color slow = heat_color(kHeatExcess, 0.1, theme),
                fast = heat_color(kHeatExcess, -0.1, theme);
    EXPECT_GT(slow.red, slow.blue + 30);
    EXPECT_GT(fast.blue, fast.red + 30);
  }
}

TEST(HeatMap, LooksAsItDid) {
  const Trace trace = measured(4, 9, 4, 2);
  const TraceIndex index(trace);
  const HeatSource source(index);
  expect_golden("heat_idle", heat_map(source, {.width = 900}));
  expect_golden(
      "heat_excess",
      heat_map(source, {.shown = {.of = kHeatExcess}, .theme = Theme::Dark, .width = 900}));
}

TEST(Stragglers, TextAndPictureSayTheSame) {
  const Trace trace = measured(4, 9, 2, 1);
  const std::vector<WaitedFor> ranks = waited_for_ranks(trace, Causality(trace));
  ASSERT_GT(ranks.size(), 3u);
  const Scene scene = straggler_chart(trace, ranks, {.width = 1000});
  const std::string picture = svg(scene), text = stragglers_text(trace, ranks);
  for (const WaitedFor& rank : ranks) {
    const StragglerWords words = straggler_words(trace, rank);
    for (const std::string& word : {words.rank, words.time, words.op, words.waiter, words.cause}) {
      EXPECT_NE(picture.find(word), std::string::npos) << word;
      EXPECT_NE(text.find(word), std::string::npos) << word;
    }
  }
  expect_words_placed(scene);
  expect_golden("stragglers", scene);
  EXPECT_NE(stragglers_text(trace, {}).find("no rank waited"), std::string::npos);
}

struct Two {
  Trace a, b;
  TraceIndex index_a, index_b;
  std::vector<OpId> same;
  Waterfall waterfall{.title = "B takes longer than A.",
                      .from = "A: predicted",
                      .to = "B: measured",
                      .begin = 40'000,
                      .steps = {{"waiting for what other ranks compute", 5'000},
                                {"filling of the pipeline", -1'000}}};

  explicit Two(std::int32_t m)
      : a(fixture::one_f_one_b_trace(3, m, {.forward = 1000, .backward = 2000},
                                     {.title = "two traces"})),
        b(fixture::one_f_one_b_trace(3, m, {.forward = 1150, .backward = 1900},
                                     {.label = TraceLabel::Measured, .title = "two traces"})),
        index_a(explained(a)),
        index_b(explained(b)) {
    for (OpId op{0}; op.value < b.num_ops(); ++op.value) same.push_back(op);
  }
  Two(const Two&) = delete;
  static const Trace& explained(Trace& trace) {
    attribute_idle(trace);
    return trace;
  }
  Pair pair() {
    return {.a = index_a,
            .b = index_b,
            .same = same,
            .origin = b.begin.value,
            .aligned = "steps begin together",
            .waterfall = &waterfall};
  }
};

TEST(PairFigure, TextAndPictureSayTheSame) {
  Two two(8);
  const Scene scene = pair_figure(two.pair(), {.width = 1000});
  const std::string picture = svg(scene), text = pair_text(two.pair(), {}, 80, false);
  for (std::int32_t row = 0; row < 3; ++row) {
    const LagCurve lag(two.a, two.b, two.same, {row});
    for (const std::string& words :
         {row_name(two.a, {row}), lag_text(lag.at(two.b.end.value)), std::string("predicted"),
          percent_text(summarize(two.index_a, two.a.begin.value, two.a.end.value, row, row + 1)
                           .bubble_ratio())}) {
      EXPECT_NE(picture.find(words), std::string::npos) << words;
      EXPECT_NE(text.find(words), std::string::npos) << words;
    }
  }
  for (const char* words : {"+5.00 µs", "-1.00 µs", "44.0 µs", "filling of the pipeline"}) {
    EXPECT_NE(picture.find(words), std::string::npos) << words;
    EXPECT_NE(text.find(words), std::string::npos) << words;
  }
  expect_words_placed(scene);
  expect_golden("pair", scene);
}

// Begun together at an op, that op has no lag left, and all others what they had less.
TEST(PairFigure, AlignedAtAnOpNothingElseMoves) {
  Two two(8);
  const OpId op{static_cast<std::int32_t>(two.a.row_begin[1]) + 6};
  Pair pair = two.pair();
  pair.origin = origin_of_second(two.a, two.b, Align::Op, op, op);
  const std::int64_t moved = two.b.begin.value - pair.origin;
  EXPECT_EQ(two.b.start_ns[op.index()] - pair.origin,
            two.a.start_ns[op.index()] - two.a.begin.value);
  const LagCurve lag(two.a, two.b, two.same, {0});
  EXPECT_NE(pair_text(pair, {}, 80, false).find(lag_text(lag.whole().most + moved)),
            std::string::npos);
}

// Of two schedules there are no lags; every row of both is there.
TEST(PairFigure, OtherSchedulesStandBelowOneAnother) {
  Two two(5);
  Pair pair = two.pair();
  pair.same = {};
  const std::string picture = svg(pair_figure(pair, {.width = 1000}));
  EXPECT_EQ(picture.find("is behind"), std::string::npos);
  EXPECT_NE(picture.find(row_name(two.b, {2})), std::string::npos);
}

}  // namespace
}  // namespace rehearse::viz
