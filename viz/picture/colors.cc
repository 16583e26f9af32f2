// SPDX-License-Identifier: Apache-2.0
#include "viz/picture/colors.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace rehearse::viz {
namespace {

constexpr Color kOrange{230, 159, 0}, kSkyBlue{86, 180, 233}, kGreen{0, 158, 115},
    kYellow{240, 228, 66}, kBlue{0, 114, 178}, kVermilion{213, 94, 0}, kPurple{204, 121, 167},
    kGrey{153, 153, 153};

constexpr Palette kLight{.background = {255, 255, 255},
                         .lane = {246, 246, 244},
                         .text = {25, 25, 28},
                         .faint_text = {104, 104, 110},
                         .grid = {222, 222, 220},
                         .outline = {60, 60, 64},
                         .accent = kVermilion};
constexpr Palette kDark{.background = {24, 25, 28},
                        .lane = {34, 35, 39},
                        .text = {236, 236, 238},
                        .faint_text = {160, 160, 168},
                        .grid = {58, 59, 64},
                        .outline = {10, 10, 12},
                        .accent = kVermilion};

struct CauseRow {
  Color light, light_ink, dark, dark_ink;
  Hatch hatch;
};
constexpr std::array<CauseRow, kNumIdleCauses> kCauses{{
    {{238, 238, 236}, {176, 176, 172}, {44, 45, 49}, {92, 93, 98}, Hatch::Slash},      // warmup
    {{238, 238, 236}, {176, 176, 172}, {44, 45, 49}, {92, 93, 98}, Hatch::Backslash},  // cooldown
    {{226, 226, 222}, {128, 128, 124}, {52, 53, 58}, {128, 129, 136}, Hatch::Dense},   // dependency
    {{250, 232, 241}, {190, 96, 150}, {66, 44, 57}, {204, 121, 167}, Hatch::Dots},  // communication
    {{250, 232, 241}, {190, 96, 150}, {66, 44, 57}, {204, 121, 167}, Hatch::Cross},  // contention
    {{253, 228, 212}, {213, 94, 0}, {72, 46, 28}, {213, 94, 0}, Hatch::Cross},       // straggler
    {{222, 238, 248}, {0, 114, 178}, {32, 50, 64}, {86, 180, 233}, Hatch::Horizontal},  // host
    {{250, 246, 206}, {150, 138, 0}, {62, 58, 26}, {240, 228, 66}, Hatch::Vertical},    // resource
    {{253, 228, 212}, {213, 94, 0}, {72, 46, 28}, {213, 94, 0}, Hatch::Vertical},       // imbalance
}};

constexpr std::string_view long_name(OpKind kind) {
  switch (kind) {
    case OpKind::Forward:
      return "forward";
    case OpKind::Backward:
      return "backward";
    case OpKind::InputGradient:
      return "backward, input";
    case OpKind::WeightGradient:
      return "backward, weights";
    case OpKind::Recompute:
      return "recompute";
    case OpKind::Overlap:
      return "forward beside backward";
    case OpKind::Send:
      return "send";
    case OpKind::Recv:
      return "receive";
    case OpKind::OptimizerStep:
    case OpKind::GradNorm:
      return "optimizer";
    case OpKind::AllReduce:
      return "all-reduce";
    case OpKind::ReduceScatter:
      return "reduce-scatter";
    case OpKind::AllGather:
      return "all-gather";
    case OpKind::Unshard:
      return "gather parameters";
    case OpKind::Offload:
      return "offload";
    case OpKind::Fetch:
      return "fetch";
    case OpKind::Pass:
      return "hand over";
    case OpKind::Add:
      return "other work";
    case OpKind::Loss:
      return "loss";
    default:
      return traits(kind).name;
  }
}

std::array<float, 256> linear_table() {
  std::array<float, 256> table{};
  for (std::size_t i = 0; i < table.size(); ++i) {
    const double c = static_cast<double>(i) / 255;
    table[i] = static_cast<float>(c <= 0.04045 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4));
  }
  return table;
}

double luminance(Color c) {
  return 0.2126 * static_cast<double>(to_linear(c.red)) +
         0.7152 * static_cast<double>(to_linear(c.green)) +
         0.0722 * static_cast<double>(to_linear(c.blue));
}

}  // namespace

const Palette& palette(Theme theme) {
  return theme == Theme::Light ? kLight : kDark;
}

Color color_of(OpKind kind) {
  switch (kind) {
    case OpKind::Forward:
      return kBlue;
    case OpKind::Backward:
    case OpKind::InputGradient:
      return kOrange;
    case OpKind::WeightGradient:
      return kGreen;
    case OpKind::Recompute:
      return kSkyBlue;
    case OpKind::Overlap:
      return kVermilion;
    case OpKind::OptimizerStep:
    case OpKind::GradNorm:
      return kYellow;
    case OpKind::Pass:
    case OpKind::Add:
    case OpKind::Loss:
      return kGrey;
    default:
      return kPurple;  // transfers, collectives and copies
  }
}

KindStyle style_of(Kind kind, Theme theme) {
  if (!is_idle(kind)) {
    const auto op = static_cast<OpKind>(kind);
    return {.fill = color_of(op), .ink = color_of(op), .name = long_name(op)};
  }
  const auto cause = static_cast<std::size_t>(cause_of(kind));
  const CauseRow& row = kCauses[cause];
  const bool light = theme == Theme::Light;
  return {.fill = light ? row.light : row.dark,
          .ink = light ? row.light_ink : row.dark_ink,
          .hatch = row.hatch,
          .name = kIdleCauseNames[cause]};
}

Color shade(Color color, std::int32_t microbatch) {
  if (microbatch < 0 || microbatch % 2 == 0) return color;
  const auto lighter = [](std::uint8_t c) {
    return static_cast<std::uint8_t>(c + (255 - c) * 22 / 100);
  };
  return {lighter(color.red), lighter(color.green), lighter(color.blue)};
}

double contrast(Color a, Color b) {
  const double x = luminance(a), y = luminance(b);
  return (std::max(x, y) + 0.05) / (std::min(x, y) + 0.05);
}

Color text_on(Color background) {
  constexpr Color kBlack{0, 0, 0}, kWhite{255, 255, 255};
  return contrast(kWhite, background) >= contrast(kBlack, background) ? kWhite : kBlack;
}

float to_linear(std::uint8_t srgb) {
  static const std::array<float, 256> kTable = linear_table();
  return kTable[srgb];
}

std::uint8_t to_srgb(float linear) {
  const double c = std::clamp(static_cast<double>(linear), 0.0, 1.0);
  const double s = c <= 0.0031308 ? 12.92 * c : 1.055 * std::pow(c, 1 / 2.4) - 0.055;
  return static_cast<std::uint8_t>(std::lround(s * 255));
}

}  // namespace rehearse::viz
