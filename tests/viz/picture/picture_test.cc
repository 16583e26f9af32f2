// SPDX-License-Identifier: Apache-2.0
// Pictures: exact pixels of small scenes, files that are well-formed, colours that can be told
// apart, and goldens of two figures (UPDATE_GOLDEN=1 rewrites them).
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "tests/viz/picture/full_trace.h"
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

struct Lab {
  double l, a, b;
};

// What eyes of a kind see: matrices on linear RGB, severity 1.0, of Machado, Oliveira & Fernandes,
// "A Physiologically-based Model for Simulation of Color Vision Deficiency" (2009), table 1.
using Matrix = std::array<double, 9>;
constexpr std::array<Matrix, 4> kEyes{{{1, 0, 0, 0, 1, 0, 0, 0, 1},
                                       {0.152286, 1.052583, -0.204868, 0.114503, 0.786281, 0.099216,
                                        -0.003882, -0.048116, 1.051998},  // protan
                                       {0.367322, 0.860646, -0.227968, 0.280085, 0.672501, 0.047413,
                                        -0.011820, 0.042940, 0.968881},  // deutan
                                       {1.255528, -0.076749, -0.178779, -0.078411, 0.930809,
                                        0.147602, 0.004733, 0.691367, 0.303900}}};  // tritan

Lab seen(Color color, const Matrix& m) {
  const std::array<double, 3> rgb{static_cast<double>(to_linear(color.red)),
                                  static_cast<double>(to_linear(color.green)),
                                  static_cast<double>(to_linear(color.blue))};
  std::array<double, 3> v{};
  for (std::size_t i = 0; i < 3; ++i) {
    v[i] = std::fmin(
        1, std::fmax(0, m[3 * i] * rgb[0] + m[3 * i + 1] * rgb[1] + m[3 * i + 2] * rgb[2]));
  }
  const auto f = [](double t) {
    return t > 216.0 / 24389 ? std::cbrt(t) : (24389.0 / 27 * t + 16) / 116;
  };
  const double x = f((0.4124564 * v[0] + 0.3575761 * v[1] + 0.1804375 * v[2]) / 0.95047);
  const double y = f(0.2126729 * v[0] + 0.7151522 * v[1] + 0.0721750 * v[2]);
  const double z = f((0.0193339 * v[0] + 0.1191920 * v[1] + 0.9503041 * v[2]) / 1.08883);
  return {116 * y - 16, 500 * (x - y), 200 * (y - z)};
}

// Work of different meaning differs by at least 15 (CIE 1976) for every kind of eye.
TEST(Colors, KindsAreToldApartByColourBlindEyes) {
  constexpr std::array kKinds{OpKind::Forward,   OpKind::Backward,  OpKind::WeightGradient,
                              OpKind::Recompute, OpKind::AllReduce, OpKind::OptimizerStep};
  for (std::size_t eye = 0; eye < kEyes.size(); ++eye) {
    for (std::size_t i = 0; i < kKinds.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        const Lab a = seen(color_of(kKinds[i]), kEyes[eye]),
                  b = seen(color_of(kKinds[j]), kEyes[eye]);
        EXPECT_GE(
            std::sqrt(std::pow(a.l - b.l, 2) + std::pow(a.a - b.a, 2) + std::pow(a.b - b.b, 2)), 15)
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
