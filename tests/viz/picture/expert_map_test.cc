// SPDX-License-Identifier: Apache-2.0
// The heat map of a run's experts: its numbers, where its cells are, colours that colour-blind eyes
// tell apart, a golden of one picture (UPDATE_GOLDEN=1 rewrites it).
#include "viz/picture/experts/expert_map.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "tests/viz/picture/full_trace.h"
#include "viz/picture/font.h"
#include "viz/picture/formats/svg.h"

namespace rehearse::viz {
namespace {

// Rows of `steps` steps of two layers (1 and 3) of four experts on two ranks: those of expert e
// grow by e in every step, and expert 3 of the second layer has none.
Trace with_experts(std::int32_t steps) {
  Trace trace = fixture::full_trace();
  trace.title = "four experts";
  std::vector<std::int32_t> numbers;
  std::vector<std::int64_t> rows;
  for (std::int32_t step = 0; step < steps; ++step) {
    numbers.push_back(step + 10);
    for (std::int64_t layer = 0; layer < 2; ++layer) {
      for (std::int64_t e = 0; e < 4; ++e)
        rows.push_back(layer == 1 && e == 3 ? 0 : 10 + step * e * e);
    }
  }
  trace.expert_shape = std::vector<std::int32_t>{4, 2};
  trace.expert_layers = std::vector<std::int32_t>{1, 3};
  trace.expert_steps = std::move(numbers);
  trace.expert_rows = std::move(rows);
  return trace;
}

TEST(ExpertRows, AreHeldAgainstTheMeanOfTheirLayer) {
  const Trace trace = with_experts(3);
  const ExpertRows rows(trace);
  // Step 2: 10, 12, 18, 28 of 68 rows; ranks 22 and 46.
  EXPECT_EQ(rows.rows({2, 3}, 0, 3, 4), 28);
  EXPECT_DOUBLE_EQ(rows.over_mean({2, 3}, 0, 3, 4), 28.0 * 4 / 68);
  EXPECT_DOUBLE_EQ(rows.over_mean({2, 3}, 0, 1, 2), 46.0 * 2 / 68);
  EXPECT_DOUBLE_EQ(rows.busiest({2, 3}, 0, 2), 46.0 * 2 / 68);
  // Even in step 0, where each has 10; 33 of 54 in step 1: the mean of the steps, not of their sum.
  EXPECT_DOUBLE_EQ(rows.busiest({0, 2}, 0, 2), (1 + 33.0 * 2 / 54) / 2);
  EXPECT_EQ(rows.step_number(0), 11);
  EXPECT_EQ(rows.layer_number(1), 3);
}

// Whatever cell is asked for, the middle of its place is found to be it.
TEST(ExpertGrid, TheMouseFindsWhatIsDrawn) {
  for (const std::int32_t steps : {1, 7, 500}) {
    const Trace trace = with_experts(steps);
    const ExpertGrid grid(ExpertRows(trace), 100, 50, 333, 120);
    ASSERT_EQ(grid.columns(), std::min(steps, 166));
    std::int32_t shown = 0;
    for (std::int32_t c = 0; c < grid.columns(); ++c) {
      EXPECT_EQ(grid.column(c).first, shown);
      shown = grid.column(c).last;
      for (std::int32_t layer = 0; layer < 2; ++layer) {
        for (std::int32_t part = 0; part < grid.parts(); ++part) {
          const double x = (grid.column_x(c) + grid.column_x(c + 1)) / 2;
          const double y = grid.layer_y(layer) + (part + 0.5) * grid.row_height();
          const auto cell = grid.at(x, y);
          ASSERT_TRUE(cell);
          EXPECT_EQ(cell->steps.first, grid.column(c).first);
          EXPECT_EQ(cell->layer, layer);
          EXPECT_EQ(cell->part, part);
        }
      }
    }
    EXPECT_EQ(shown, steps);
    EXPECT_FALSE(grid.at(99, 60));
    EXPECT_FALSE(grid.at(150, grid.layer_y(1) - 1));  // between layers
  }
}

// Where there is no room for a row of each expert, a row is a block of them, and no rank is cut.
TEST(ExpertGrid, LowRowsAreBlocksOfExperts) {
  const Trace trace = with_experts(2);
  EXPECT_EQ(ExpertGrid(ExpertRows(trace), 0, 0, 100, 200).parts(), 4);
  EXPECT_EQ(ExpertGrid(ExpertRows(trace), 0, 0, 100, 30).parts(), 2);
}

// Fewer is blue, more is vermilion: they differ in lightness from the middle, and from one another
// in the channels that protan and deutan eyes have (blue against yellow).
TEST(ExpertMap, ColoursAreToldApart) {
  for (const Theme theme : {Theme::Light, Theme::Dark}) {
    const Color few = color_of_share(0.25, theme), even = color_of_share(1, theme),
                many = color_of_share(4, theme);
    EXPECT_GT(few.blue, few.red + 100);
    EXPECT_GT(many.red, many.blue + 100);
    EXPECT_GT(contrast(even, few), 1.5);
    EXPECT_GT(contrast(even, many), 1.5);
    EXPECT_EQ(color_of_share(0.01, theme), few);
    EXPECT_EQ(color_of_share(100, theme), many);
  }
}

// However narrow: every word is there, between the edges.
TEST(ExpertMap, NoWordIsCut) {
  Trace trace = with_experts(12);
  trace.title = "a long title of a model whose experts lie on ranks, and a_word_that_is_long";
  trace.caption = "measured on a machine that has two processors of a kind with a long name";
  for (const std::int32_t width : {400, 470, 640, 1600}) {
    SCOPED_TRACE(width);
    const Scene scene = expert_map(trace, {.width = width});
    std::string all;
    for (const Text& text : scene.texts) {
      const double wide = text_width(text.text, text.size);
      const double begin = text.x - wide * (text.anchor == Anchor::End      ? 1
                                            : text.anchor == Anchor::Middle ? 0.5
                                                                            : 0);
      EXPECT_GE(begin, 0) << text.text;
      EXPECT_LE(begin + wide, width) << text.text;
      EXPECT_LE(text.y, scene.height) << text.text;
      all += text.text + ' ';
    }
    for (const std::string& whole : {trace.title, trace.caption}) {
      EXPECT_NE(all.find(whole), std::string::npos) << all;
    }
    for (const Strip& strip : scene.strips) EXPECT_LE(strip.x + strip.width, width);
    for (const Rect& rect : scene.rects) EXPECT_LE(rect.x + rect.width, width);
  }
}

TEST(ExpertMap, LooksAsItDid) {
  const std::string path = "tests/golden/viz/expert_map.svg";
  const std::string text = svg(expert_map(with_experts(12), {.width = 700}));
  if (std::getenv("UPDATE_GOLDEN") != nullptr) std::ofstream(path, std::ios::binary) << text;
  std::ifstream in(path, std::ios::binary);
  const std::string golden{std::istreambuf_iterator<char>(in), {}};
  EXPECT_EQ(text, golden) << path << " differs; UPDATE_GOLDEN=1 rewrites it";
}

}  // namespace
}  // namespace rehearse::viz
