// SPDX-License-Identifier: Apache-2.0
// Pictures: exact pixels of small scenes, files that are well-formed, colours that can be told
// apart, and goldens of two figures (UPDATE_GOLDEN=1 rewrites them).
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "tests/viz/picture/eyes.h"
#include "tests/viz/picture/full_trace.h"
#include "tests/viz/picture/places.h"
#include "viz/analysis/units_text.h"
#include "viz/picture/figure.h"
#include "viz/picture/formats/png.h"
#include "viz/picture/formats/svg.h"
#include "viz/picture/terminal.h"

namespace rehearse::viz {
namespace {

void expect_golden(const std::string& path, const std::string& text) {
  if (std::getenv("UPDATE_GOLDEN") != nullptr) std::ofstream(path, std::ios::binary) << text;
  std::ifstream in(path, std::ios::binary);
  const std::string golden{std::istreambuf_iterator<char>(in), {}};
  EXPECT_EQ(text, golden) << path << " differs; UPDATE_GOLDEN=1 rewrites it";
}

Trace small_trace() {
  Trace trace =
      fixture::one_f_one_b_trace(4, 6,
                                 {.forward = 10'000'000,
                                  .backward = 20'000'000,
                                  .transfer = 2'000'000,
                                  .optimizer = 5'000'000},
                                 {.title = "1F1B on 4 ranks", .caption = "F = 10 ms & B = 20 ms"});
  attribute_idle(trace);
  return trace;
}

TEST(Figure, LooksAsItDid) {
  const Trace trace = small_trace();
  const TraceIndex index(trace);
  const Scene scene = figure(index, {.width = 1200});
  expect_golden("tests/golden/viz/1f1b.svg", svg(scene));
}

TEST(Terminal, LooksAsItDid) {
  const Trace trace = small_trace();
  const TraceIndex index(trace);
  expect_golden("tests/golden/viz/1f1b.txt", terminal_chart(index, {.columns = 100}));
}

TEST(Figure, EqualTracesGiveEqualBytes) {
  const Trace a = small_trace(), b = small_trace();
  const TraceIndex index_a(a), index_b(b);
  EXPECT_EQ(svg(figure(index_a, {})), svg(figure(index_b, {})));
  EXPECT_EQ(png(figure(index_a, {.theme = Theme::Dark})),
            png(figure(index_b, {.theme = Theme::Dark})));
}

// Whatever the view: every shape lies in the picture, and no number is broken.
TEST(Figure, StaysInsideThePicture) {
  const Trace trace = fixture::full_trace(5, 40);
  const TraceIndex index(trace);
  const std::int64_t end = trace.end.value;
  for (const auto& [from, to] : {std::pair{std::int64_t{0}, end},
                                 {end / 3, end / 3 + 50},
                                 {-end, 2 * end},
                                 {end, end + 9}}) {
    const Scene scene = figure(index, {.width = 900, .begin = {from}, .end = {to}});
    for (const Rect& rect : scene.rects) {
      EXPECT_GE(rect.x, 0);
      EXPECT_LE(rect.x + rect.width, scene.width);
      EXPECT_LE(rect.y + rect.height, scene.height);
      EXPECT_GE(rect.width, 0);
    }
    for (const Strip& strip : scene.strips) EXPECT_LE(strip.x + strip.width, scene.width + 1e-6);
    const std::string text = svg(scene);
    EXPECT_EQ(text.find("nan"), std::string::npos);
    EXPECT_EQ(text.find("inf"), std::string::npos);
  }
}

// However narrow: no word is cut by the edge, none stands upon another one.
TEST(Figure, WordsHaveTheirPlace) {
  Trace trace = small_trace();
  trace.caption = "predicted on 128 nodes of NVIDIA DGX A100 80GB, over which nothing else runs";
  const TraceIndex index(trace);
  const std::int64_t end = trace.end.value;
  for (const std::int32_t width : {640, 700, 900, 1000, 1400}) {
    for (const std::int64_t to : {end, end / 2, end / 7 * 4}) {
      const Scene scene = figure(index, {.width = width, .begin = {0}, .end = {to}});
      for (const std::string& fault : fixture::misplaced(scene, width))
        ADD_FAILURE() << width << ": " << fault;
      for (const Text& text : scene.texts) EXPECT_LE(text.y, scene.height) << text.text;
    }
  }
}

TEST(Svg, EscapesTexts) {
  Trace trace = small_trace();
  trace.title = "a<b>&\"c\"\x01";
  const TraceIndex index(trace);
  const std::string text = svg(figure(index, {}));
  EXPECT_NE(text.find("a&lt;b&gt;&amp;&quot;c&quot;</text>"), std::string::npos);
  EXPECT_EQ(text.find('\x01'), std::string::npos);
}

std::uint32_t pixel(const std::vector<std::uint32_t>& pixels, const Scene& scene, int x, int y) {
  return pixels[static_cast<std::size_t>(y * scene.width + x)] & 0xFFFFFF;
}

TEST(Raster, CoversPixelsByArea) {
  Scene scene{.width = 4, .height = 3, .background = {0, 0, 0}};
  scene.rects.push_back({.x = 1, .y = 1, .width = 1.5, .height = 1, .fill = {200, 100, 50}});
  const auto pixels = rasterize(scene);
  EXPECT_EQ(pixel(pixels, scene, 1, 1), 50u << 16 | 100u << 8 | 200u);
  EXPECT_EQ(pixel(pixels, scene, 2, 1), 25u << 16 | 50u << 8 | 100u);  // half of it
  EXPECT_EQ(pixel(pixels, scene, 0, 1), 0u);
  EXPECT_EQ(pixel(pixels, scene, 1, 0), 0u);
}

TEST(Raster, StripsAreAveragedWhereTheyAreNarrow) {
  Scene scene{.width = 2, .height = 1, .background = {0, 0, 0}};
  scene.strips.push_back(
      {.width = 2, .height = 1, .colors = {0xFF0000FF, 0xFF000001, 0, 0xFF00FF00}});
  const auto pixels = rasterize(scene);
  EXPECT_EQ(pixel(pixels, scene, 0, 0), 0x80u);    // (255 + 1) / 2
  EXPECT_EQ(pixel(pixels, scene, 1, 0), 0x8000u);  // half is transparent
}

// Steps of an area meet within a pixel: what they cover together is covered once.
TEST(Raster, AreasHaveNoSeams) {
  Scene scene{.width = 6, .height = 4, .background = {0, 0, 0}};
  scene.areas.push_back({.x = {0.25f, 1.5f, 3.3f, 3.6f},
                         .y = {1, 1, 2, 1},
                         .base = 4,
                         .end = 5.5f,
                         .fill = {200, 100, 50}});
  const auto pixels = rasterize(scene);
  const std::uint32_t whole = 50u << 16 | 100u << 8 | 200u;
  for (int x = 1; x < 5; ++x) {
    EXPECT_EQ(pixel(pixels, scene, x, 0), 0u) << x;
    for (int y = 2; y < 4; ++y) EXPECT_EQ(pixel(pixels, scene, x, y), whole) << x << " " << y;
  }
  EXPECT_EQ(pixel(pixels, scene, 1, 1), whole);                        // of two steps of one height
  EXPECT_EQ(pixel(pixels, scene, 3, 1), 35u << 16 | 70u << 8 | 140u);  // 0.3 of it is lower
  EXPECT_EQ(pixel(pixels, scene, 5, 3), 25u << 16 | 50u << 8 | 100u);
}

// A picture of twice the scale has four pixels for each, of edges as of areas; letters are drawn
// from bitmaps of their own, as wide as they are tall.
TEST(Raster, ScalesToTheScreen) {
  Scene scene{.width = 40, .height = 30, .background = {0, 0, 0}};
  scene.rects.push_back({.x = 10, .y = 10, .width = 20, .height = 10, .fill = {200, 100, 50}});
  const auto once = rasterize(scene);
  scene.scale = 2;
  EXPECT_EQ(scene.pixel_width(), 80);
  const auto twice = rasterize(scene);
  ASSERT_EQ(twice.size(), 4 * once.size());
  for (std::size_t y = 0; y < 60; ++y) {
    for (std::size_t x = 0; x < 80; ++x)
      ASSERT_EQ(twice[y * 80 + x], once[y / 2 * 40 + x / 2]) << x << " " << y;
  }
  const auto ink = [](double scale) {
    Scene text{.width = 100, .height = 30, .scale = scale, .background = {0, 0, 0}};
    text.texts.push_back({.x = 5, .y = 20, .color = {255, 255, 255}, .text = "Rehearse 2B5"});
    double sum = 0;
    for (const std::uint32_t pixel : rasterize(text)) sum += pixel & 255;
    return sum / (scale * scale);
  };
  for (const double scale : {0.75, 1.25, 1.5, 2.0, 3.0})
    EXPECT_NEAR(ink(scale) / ink(1), 1, 0.12) << scale;
}

std::uint32_t u32(const std::string& bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i)
    value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
  return value;
}

// CRC-32 by its definition, bit by bit (PNG specification, annex D).
std::uint32_t crc(std::string_view bytes) {
  std::uint32_t value = 0xFFFFFFFF;
  for (const char byte : bytes) {
    value ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit)
      value = (value & 1) != 0 ? value >> 1 ^ 0xEDB88320 : value >> 1;
  }
  return ~value;
}

TEST(Png, HasItsChunksInOrder) {
  const std::vector<std::uint32_t> pixels(35, 0xFF102030);
  const std::string file = encode_png(7, 5, pixels, false);
  EXPECT_EQ(file.substr(0, 8), "\x89PNG\r\n\x1a\n");
  std::string types;
  for (std::size_t at = 8; at < file.size();) {
    const std::uint32_t size = u32(file, at);
    ASSERT_LE(at + 12 + size, file.size());
    types += file.substr(at + 4, 4) + " ";
    EXPECT_EQ(crc(std::string_view(file).substr(at + 4, size + 4)), u32(file, at + 8 + size));
    at += 12 + size;
  }
  EXPECT_EQ(types, "IHDR IDAT IEND ");
  EXPECT_EQ(u32(file, 16), 7u);
  EXPECT_EQ(u32(file, 20), 5u);
}

// --- Colours ---

// Work of different meaning differs by at least 15 (CIE 1976) for every kind of eye.
TEST(Colors, KindsAreToldApartByColourBlindEyes) {
  constexpr std::array kKinds{OpKind::Forward,   OpKind::Backward,  OpKind::WeightGradient,
                              OpKind::Recompute, OpKind::AllReduce, OpKind::OptimizerStep};
  for (std::size_t eye = 0; eye < kEyes.size(); ++eye) {
    for (std::size_t i = 0; i < kKinds.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        const Lab a = seen(color_of(kKinds[i]), kEyes[eye]),
                  b = seen(color_of(kKinds[j]), kEyes[eye]);
        EXPECT_GE(distance(a, b), 15)
            << traits(kKinds[i]).name << " and " << traits(kKinds[j]).name << " for eye " << eye;
      }
    }
  }
}

TEST(Colors, LabelsAreReadable) {
  for (std::size_t kind = 0; kind < kNumOpKinds; ++kind) {
    for (const std::int32_t microbatch : {0, 1}) {
      const Color fill = shade(color_of(static_cast<OpKind>(kind)), microbatch);
      EXPECT_GE(contrast(text_on(fill), fill), 4.5) << kOpTraits[kind].name;
    }
  }
  for (const Theme theme : {Theme::Light, Theme::Dark}) {
    const Palette& colors = palette(theme);
    EXPECT_GE(contrast(colors.text, colors.background), 7);
    EXPECT_GE(contrast(colors.faint_text, colors.background), 4.5);
    for (std::size_t cause = 0; cause < kNumIdleCauses; ++cause) {
      EXPECT_GE(contrast(colors.text, style_of(kind_of(static_cast<IdleCause>(cause)), theme).fill),
                4.5);
    }
  }
}

// A cause never rests on hue alone: no two causes have both the same hatch and a similar ink.
TEST(Colors, CausesDifferInTheirPattern) {
  for (std::size_t i = 0; i < kNumIdleCauses; ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const KindStyle a = style_of(kind_of(static_cast<IdleCause>(i)), Theme::Light);
      const KindStyle b = style_of(kind_of(static_cast<IdleCause>(j)), Theme::Light);
      EXPECT_NE(a.hatch, Hatch::None);
      EXPECT_FALSE(a.hatch == b.hatch && a.ink == b.ink) << a.name << " " << b.name;
    }
  }
}

TEST(UnitsText, IsWhatPeopleRead) {
  EXPECT_EQ(time_text(0), "0 ns");
  EXPECT_EQ(time_text(999), "999 ns");
  EXPECT_EQ(time_text(1'234), "1.23 µs");
  EXPECT_EQ(time_text(12'345'678), "12.3 ms");
  EXPECT_EQ(time_text(999'499), "999 µs");  // what rounds to a thousand is one of the next unit
  EXPECT_EQ(time_text(999'500), "1.00 ms");
  EXPECT_EQ(time_text(999'600'000), "1.00 s");
  EXPECT_EQ(bytes_text(999), "999 B");
  EXPECT_EQ(bytes_text(999'600), "1.00 MB");
  EXPECT_EQ(time_text(123'456'789'000), "123 s");
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(85'899'345'920), "85.9 GB");
  EXPECT_EQ(percent_text(0.2727), "27.3 %");
  EXPECT_EQ(tick_text(50'000'000, 10'000'000), "50 ms");
  EXPECT_EQ(tick_text(0, 10'000'000), "0");
  EXPECT_EQ(tick_text(2'500'000'000, 500'000'000), "2.5 s");
  EXPECT_EQ(nice_step(3), 5);
  EXPECT_EQ(nice_step(1), 1);
  EXPECT_EQ(nice_step(51), 100);
}

}  // namespace
}  // namespace rehearse::viz
