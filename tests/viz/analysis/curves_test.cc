// SPDX-License-Identifier: Apache-2.0
// What a picture reads of memory and links, against sums over every sample.
#include "viz/analysis/curves.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/viz/picture/full_trace.h"
#include "viz/analysis/units_text.h"
#include "viz/picture/paint_curves.h"

namespace rehearse::viz {
namespace {

using fixture::full_trace;
using Random = std::mt19937;

std::int64_t drawn(Random& random, std::int64_t least, std::int64_t most) {
  return least + static_cast<std::int64_t>(random() % static_cast<std::uint32_t>(most - least + 1));
}

// A link with `count` samples, several at one time and some outside of the step [1000, 50000).
Trace link_trace(Random& random, std::int64_t count) {
  Trace trace;
  trace.begin = {1000};
  trace.end = {50000};
  std::vector<LinkSample> samples;
  std::int64_t time = drawn(random, 0, 2000);
  for (std::int64_t i = 0; i < count; ++i) {
    samples.push_back(
        {.time = time, .load_ppm = static_cast<std::int32_t>(drawn(random, 0, 3) * 333'333)});
    time += drawn(random, 0, 2 * 50000 / count);
  }
  trace.links = std::vector<TraceLink>{TraceLink{}};
  trace.link_begin = std::vector<std::int64_t>{0, count};
  trace.link_samples = std::move(samples);
  return trace;
}

struct Exact {
  std::int64_t integral = 0, peak = 0;  // [ppm ns], [ppm]
};
Exact exact(const Trace& trace, std::int64_t begin, std::int64_t end) {
  Exact sum;
  const auto samples = trace.link_samples.view();
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const std::int64_t until = i + 1 < samples.size() ? samples[i + 1].time : trace.end.value;
    const std::int64_t from = std::max({samples[i].time, begin, trace.begin.value}),
                       to = std::min({until, end, trace.end.value});
    if (from >= to) continue;
    sum.integral += samples[i].load_ppm * (to - from);
    sum.peak = std::max<std::int64_t>(sum.peak, samples[i].load_ppm);
  }
  return sum;
}

// 1,000 random views of random links, any number of columns: each column's mean is the exact
// integral over it by its width, its peak the greatest load that holds within it for any time.
TEST(LinkCurve, ColumnMeansAreTheExactIntegrals) {
  Random random(38);
  std::int64_t loaded = 0;
  for (int view = 0; view < 1000; ++view) {
    const Trace trace = link_trace(random, drawn(random, 1, 600));
    const LinkCurve curve(trace, 0);
    std::vector<std::int64_t> edges{drawn(random, -3000, 49000)};
    const std::int64_t columns = drawn(random, 1, 20), widest = drawn(random, 1, 3000);
    for (std::int64_t c = 0; c < columns; ++c)
      edges.push_back(edges.back() + drawn(random, 1, widest));
    const std::vector<LinkUse> uses = curve.over(edges);
    ASSERT_EQ(uses.size(), static_cast<std::size_t>(columns));
    std::uint64_t sum = 0;
    for (std::size_t c = 0; c < uses.size(); ++c) {
      const Exact expected = exact(trace, edges[c], edges[c + 1]);
      const std::uint64_t integral = curve.integral(edges[c], edges[c + 1]);
      ASSERT_EQ(integral, static_cast<std::uint64_t>(expected.integral)) << view << " " << c;
      ASSERT_EQ(uses[c].mean, static_cast<double>(expected.integral) / 1e6 /
                                  static_cast<double>(edges[c + 1] - edges[c]));
      ASSERT_EQ(uses[c].peak, static_cast<double>(expected.peak) / 1e6);
      sum += integral;
      loaded += expected.integral > 0;
    }
    ASSERT_EQ(sum, curve.integral(edges.front(), edges.back()));
  }
  EXPECT_GT(loaded, 3000);
}

TEST(LinkCurve, ALinkWithoutLoadIsTold) {
  Trace trace = full_trace();
  EXPECT_TRUE(LinkCurve(trace, 0).loaded());
  trace.link_begin = std::vector<std::int64_t>{0, 0, 3};
  EXPECT_FALSE(LinkCurve(trace, 0).loaded());
  EXPECT_EQ(LinkCurve(trace, 0).over(0, 100).peak, 0);
}

// `count` samples of two parts, several at one time.
Trace memory_trace(Random& random, std::int64_t count) {
  Trace trace;
  trace.end = {60000};
  trace.rows = std::vector<TraceRow>(2);
  trace.memory_parts = {"parameters", "activations"};
  std::vector<std::int64_t> time, bytes;
  for (int row = 0; row < 2; ++row) {
    std::int64_t now = drawn(random, 0, 500);
    for (std::int64_t i = 0; i < count; ++i) {
      time.push_back(now);
      bytes.push_back(drawn(random, 0, 50));
      bytes.push_back(drawn(random, 0, 50));
      now += drawn(random, 0, 2 * 50000 / count);
    }
  }
  trace.memory_begin = std::vector<std::int64_t>{0, count, 2 * count};
  trace.memory_time = std::move(time);
  trace.memory_bytes = std::move(bytes);
  return trace;
}

// Of all samples that hold in [begin, end) the first with the greatest sum, read one by one; -1:
// none.
std::int64_t greatest(const Trace& trace, std::int32_t row, std::int64_t begin, std::int64_t end) {
  std::int64_t most = -1, sample = -1;
  const auto last = static_cast<std::size_t>(trace.memory_begin[static_cast<std::size_t>(row) + 1]);
  for (auto i = static_cast<std::size_t>(trace.memory_begin[static_cast<std::size_t>(row)]);
       i < last; ++i) {
    const bool over =
        i + 1 < last && trace.memory_time[i + 1] <= begin && !(trace.memory_time[i] == begin);
    const std::int64_t sum = trace.memory_bytes[2 * i] + trace.memory_bytes[2 * i + 1];
    if (over || trace.memory_time[i] >= end || sum <= most) continue;
    most = sum;
    sample = static_cast<std::int64_t>(i);
  }
  return sample;
}

// 1,000 random views: columns of any width, and those of the window's grid, which are powers of two
// from the step's begin on but for the first and the last. Equal sums are frequent: the first of
// them is meant.
TEST(MemoryCurve, AColumnShowsTheGreatestSumWithinIt) {
  Random random(7);
  std::int64_t shown = 0;
  for (int view = 0; view < 1000; ++view) {
    Trace trace = memory_trace(random, drawn(random, 1, 700));
    trace.begin = {drawn(random, -3000, 3000)};
    const MemoryCurve curve(trace, {1});
    std::vector<std::int64_t> edges{drawn(random, -500, 60000)};
    if (view % 2 == 0) {
      const std::int64_t widest = drawn(random, 1, 4000);
      for (int column = 0; column < 10; ++column)
        edges.push_back(edges.back() + drawn(random, 1, widest));
    } else {
      const std::int64_t step = std::int64_t{1} << drawn(random, 0, 12);
      const std::int64_t first = (edges[0] - trace.begin.value) / step * step + trace.begin.value;
      for (int column = 1; column < 10; ++column) {
        if (first + column * step > edges.back()) edges.push_back(first + column * step);
      }
      edges.push_back(edges.back() + drawn(random, 1, step));
    }
    const std::vector<std::int64_t> samples = curve.greatest(edges);
    ASSERT_EQ(samples.size() + 1, edges.size());
    for (std::size_t c = 0; c < samples.size(); ++c) {
      ASSERT_EQ(samples[c], greatest(trace, 1, edges[c], edges[c + 1])) << view << " " << c;
      ASSERT_EQ(samples[c], curve.greatest(edges[c], edges[c + 1]));
      shown += samples[c] >= 0;
    }
    ASSERT_EQ(curve.peak().bytes, curve.sum(greatest(trace, 1, -1000, 70000)));
  }
  EXPECT_GT(shown, 7000);
}

// Every run of entries, through all levels of blocks.
TEST(GreatestOf, IsTheFirstGreatestOfEveryRun) {
  Random random(3);
  for (const std::int64_t count : {1, 8, 9, 64, 65, 130, 600}) {
    std::vector<std::int64_t> entries;
    for (std::int64_t i = 0; i < count; ++i) entries.push_back(drawn(random, -5, 5));
    const auto value = [&](std::int64_t i) { return entries[static_cast<std::size_t>(i)]; };
    const GreatestOf greatest(count, value);
    for (std::int64_t begin = 0; begin <= count; ++begin) {
      GreatestOf::Entry most;
      for (std::int64_t end = begin; end <= count; ++end) {
        const GreatestOf::Entry found = greatest.of(begin, end, value);
        ASSERT_EQ(found.index, most.index) << begin << " " << end << " of " << count;
        ASSERT_EQ(found.value, most.value);
        if (end < count && (most.index < 0 || value(end) > most.value)) most = {value(end), end};
      }
    }
  }
}

TEST(MemoryCurve, PeakHasItsParts) {
  const Trace trace = full_trace();
  const MemoryCurve curve(trace, {2});
  EXPECT_EQ(curve.peak().bytes, (1 << 20) + (2 << 18));
  EXPECT_EQ(curve.peak().time, 3000);  // sample 2: the first with two parts
  EXPECT_EQ(curve.peak().parts, (std::vector<std::int64_t>{1 << 20, 2 << 18}));
  EXPECT_EQ(curve.at(-1), -1);
  EXPECT_EQ(curve.at(1499), trace.memory_begin[2]);
  EXPECT_EQ(curve.at(1500), trace.memory_begin[2] + 1);
}

// The upper edge of what is drawn in each pixel column is the greatest sum in it, its parts are of
// one moment.
TEST(MemoryCurve, IsDrawnAsItIs) {
  Random random(11);
  const Trace trace = memory_trace(random, 300);
  const MemoryCurve curve(trace, {0});
  Frame frame;
  frame.view = {.begin = {0}, .end = {60000}, .width_px = 120};
  for (std::int64_t edge = 0; edge <= 60000; edge += 500) frame.edges.push_back(edge);
  Scene scene;
  paint_memory(trace, {0}, curve, frame, {.x = 10, .y = 0, .height = 110}, Theme::Light, scene);
  ASSERT_EQ(scene.areas.size(), 2u);
  const auto height_at = [&](const Area& area, double x) {
    float y = area.base;
    for (std::size_t i = 0; i < area.x.size() && area.x[i] <= x; ++i) y = area.y[i];
    return area.base - y;
  };
  const double scale = 110 / memory_scale(curve.peak(), 0).top;
  for (int column = 1; column < 100; ++column) {  // from the first sample to the last
    const std::int64_t sample = curve.greatest(column * 500, column * 500 + 500);
    ASSERT_GE(sample, 0);
    const auto i = static_cast<std::size_t>(sample);
    const double x = 10 + column + 0.5;
    EXPECT_NEAR(height_at(scene.areas[0], x), static_cast<double>(curve.sum(sample)) * scale, 1e-3);
    EXPECT_NEAR(height_at(scene.areas[1], x),
                static_cast<double>(trace.memory_bytes[2 * i]) * scale, 1e-3);
  }
}

}  // namespace
}  // namespace rehearse::viz
