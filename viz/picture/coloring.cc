// SPDX-License-Identifier: Apache-2.0
#include "viz/picture/coloring.h"

#include <algorithm>
#include <cmath>

#include "viz/analysis/units_text.h"

namespace rehearse::viz {
namespace {

// Okabe and Ito's, and a dark grey, in an order in which neighbours differ in lightness too.
constexpr std::array<Color, 8> kHues{{{0, 114, 178},
                                      {240, 228, 66},
                                      {213, 94, 0},
                                      {86, 180, 233},
                                      {0, 158, 115},
                                      {230, 159, 0},
                                      {204, 121, 167},
                                      {90, 90, 96}}};
constexpr Color kNone{160, 160, 164};

Color mixed(Color a, Color b, double share) {  // share of b
  const auto mix = [share](std::uint8_t x, std::uint8_t y) {
    return static_cast<std::uint8_t>(std::lround(x + (y - x) * share));
  };
  return {mix(a.red, b.red), mix(a.green, b.green), mix(a.blue, b.blue)};
}
Color lighter(Color color, double share) {
  return mixed(color, {255, 255, 255}, share);
}

// Differences fall into steps of 6.25 %, four to each side; slower is vermilion, faster blue.
constexpr std::int32_t kSteps = 4;
constexpr double kStep = 0.0625;
std::int32_t step_of(double error) {
  return std::clamp(static_cast<std::int32_t>(std::lround(error / kStep)), -kSteps, kSteps);
}
Color step_color(std::int32_t step) {
  constexpr Color kEqual{150, 150, 150}, kSlower{213, 94, 0}, kFaster{0, 114, 178};
  return mixed(kEqual, step > 0 ? kSlower : kFaster,
               static_cast<double>(std::abs(step)) / static_cast<double>(kSteps));
}
std::string step_name(std::int32_t step) {
  if (step == 0) return "equal (3 %)";
  std::string name = (step > 0 ? "+" : "-") + fixed_text(std::abs(step) * kStep * 100, 0) + " %";
  if (std::abs(step) == kSteps) name += " and more";
  return name;
}

bool has_stage(const TraceClass& c) {
  const OpClass op_class = traits(c.kind).op_class;
  return c.stage && (op_class == OpClass::Compute || op_class == OpClass::Transfer);
}

}  // namespace

Coloring::Coloring(const Trace& trace, ColorBy by, std::span<const std::int64_t> elsewhere)
    : trace_(&trace), by_(by), stages_(trace.rows.size()) {
  const auto n = static_cast<std::size_t>(trace.num_ops());
  for (std::size_t row = 0; row < stages_.size(); ++row) {
    std::vector<std::uint8_t> seen(trace.classes.size());
    std::vector<std::int32_t>& stages = stages_[row];
    for (auto i = static_cast<std::size_t>(trace.row_begin[row]);
         i < static_cast<std::size_t>(trace.row_begin[row + 1]); ++i) {
      std::uint8_t& known = seen[static_cast<std::size_t>(trace.op_class[i])];
      if (known != 0) continue;
      known = 1;
      const TraceClass& c = trace.class_of({static_cast<std::int32_t>(i)});
      if (traits(c.kind).op_class == OpClass::Compute && c.stage) stages.push_back(c.stage.value);
    }
    std::ranges::sort(stages);
    stages.erase(std::unique(stages.begin(), stages.end()), stages.end());
    most_chunks_ = std::max(most_chunks_, static_cast<std::int32_t>(stages.size()));
  }
  if (by == ColorBy::Kinds) return;
  classes_.assign(n, 0);
  const auto set = [&](const auto& class_of) {
    for (std::size_t row = 0; row < stages_.size(); ++row) {
      for (auto i = trace.row_begin[row]; i < trace.row_begin[row + 1]; ++i) {
        const OpId op{static_cast<std::int32_t>(i)};
        classes_[op.index()] = static_cast<Kind>(class_of(op, static_cast<std::int32_t>(row)));
      }
    }
  };
  const auto of_eight = [&](std::int32_t number) { return 1 + number % 8; };
  const auto name_eight = [&](const std::string& one, std::int32_t count) {
    for (std::int32_t i = 0; i < std::min(count, 8); ++i) {
      add(kHues[static_cast<std::size_t>(i)],
          one + " " + std::to_string(i) + (count > 8 ? ", " + std::to_string(i + 8) + " …" : ""));
    }
  };
  add(kNone, by == ColorBy::Difference ? "not in the other" : "neither");
  switch (by) {
    case ColorBy::Kinds:
      break;
    case ColorBy::Chunk:
      name_eight("chunk", most_chunks_);
      set([&](OpId op, std::int32_t) {
        return has_stage(trace.class_of(op)) ? of_eight(chunk_of(op)) : 0;
      });
      break;
    case ColorBy::Direction:
      by_direction();
      break;
    case ColorBy::Microbatch: {
      std::int32_t most = 0;
      for (const std::int32_t number : trace.microbatch) most = std::max(most, number + 1);
      name_eight("micro-batch", most);
      set([&](OpId op, std::int32_t) {
        const std::int32_t number = trace.microbatch[op.index()];
        return number < 0 ? 0 : of_eight(number);
      });
      break;
    }
    case ColorBy::CostLevel:
      for (std::size_t level = 0; level < kCostLevelNames.size(); ++level) {
        constexpr std::array<std::size_t, 4> kHueOf{4, 3, 5, 2};  // from sure to unsure
        add(kHues[kHueOf[level]], std::string(kCostLevelNames[level]));
      }
      set([&](OpId op, std::int32_t) {
        const std::size_t level =
            trace.cost_level.empty() ? kCostLevelNames.size() : trace.cost_level[op.index()];
        return level < kCostLevelNames.size() ? static_cast<std::int32_t>(level) + 1 : 0;
      });
      break;
    case ColorBy::Rank:
      name_eight("row", trace.num_rows());
      set([&](OpId, std::int32_t row) { return of_eight(row); });
      break;
    case ColorBy::Difference:
      for (std::int32_t step = -kSteps; step <= kSteps; ++step)
        add(step_color(step), step_name(step));
      set([&](OpId op, std::int32_t) {
        const std::int64_t here = trace.end_ns[op.index()] - trace.start_ns[op.index()];
        const std::int64_t there = op.index() < elsewhere.size() ? elsewhere[op.index()] : -1;
        if (there < 0) return 0;
        const double error =
            there > 0 ? static_cast<double>(here) / static_cast<double>(there) - 1 : here > 0;
        return 1 + kSteps + step_of(error);
      });
      break;
  }
}

// Stages rise with the position where the next one lies on the next position, and fall where it
// lies on the one before.
void Coloring::by_direction() {
  add(kHues[0], "down the positions");
  add(kHues[5], "up the positions");
  const auto holds = [&](std::int32_t position, std::int32_t stage) {
    for (std::size_t row = 0; row < stages_.size(); ++row) {
      if (trace_->rows[row].position.value == position &&
          std::ranges::binary_search(stages_[row], stage)) {
        return true;
      }
    }
    return false;
  };
  for (std::size_t row = 0; row < stages_.size(); ++row) {
    const std::int32_t at = trace_->rows[row].position.value;
    std::vector<Kind> of_class(trace_->classes.size());
    for (std::size_t i = 0; i < of_class.size(); ++i) {
      const TraceClass& c = trace_->classes[i];
      if (!has_stage(c)) continue;
      const std::int32_t stage = c.stage.value;
      const bool down = holds(at + 1, stage + 1) || holds(at - 1, stage - 1);
      const bool up = holds(at - 1, stage + 1) || holds(at + 1, stage - 1);
      of_class[i] = down || !up ? 1 : 2;
    }
    for (auto i = static_cast<std::size_t>(trace_->row_begin[row]);
         i < static_cast<std::size_t>(trace_->row_begin[row + 1]); ++i) {
      classes_[i] = of_class[static_cast<std::size_t>(trace_->op_class[i])];
    }
  }
}

void Coloring::keep_only(std::span<const std::uint8_t> kept) {
  if (by_ == ColorBy::Kinds) {
    classes_.resize(kept.size());
    for (std::size_t i = 0; i < kept.size(); ++i)
      classes_[i] = kind_of(trace_->class_of({static_cast<std::int32_t>(i)}).kind);
  }
  for (std::size_t i = 0; i < kept.size(); ++i)
    if (kept[i] == 0) classes_[i] = kNotKept;
}

std::int32_t Coloring::chunk_of(OpId op) const {
  const std::vector<std::int32_t>& stages = stages_[trace_->row_of(op).index()];
  const auto found = std::ranges::lower_bound(stages, trace_->class_of(op).stage.value);
  return found == stages.end() ? 0 : static_cast<std::int32_t>(found - stages.begin());
}

KindStyle Coloring::style(Kind kind, Theme theme) const {
  if (kind == kNotKept) {
    const Color grey = mixed(palette(theme).lane, palette(theme).text, 0.14);
    return {.fill = grey, .ink = grey, .name = "not asked for"};
  }
  if (by_ == ColorBy::Kinds || is_idle(kind)) return style_of(kind, theme);
  const ClassStyle& of = styles_[kind];
  return {.fill = of.color, .ink = of.color, .name = of.name};
}

// The lightest is still told from the background.
static constexpr double kLightest = 0.55;

Color Coloring::fill(OpId op, Kind kind, Theme theme) const {
  const Color color = style(kind, theme).fill;
  const TraceClass& c = trace_->class_of(op);
  if (by_ == ColorBy::Difference || kind == kNotKept) return color;
  if (by_ != ColorBy::Kinds) return is_backward(c.kind) ? lighter(color, 0.3) : color;
  if (!has_chunks() || !has_stage(c)) return shade(color, trace_->microbatch[op.index()]);
  return lighter(color, kLightest * chunk_of(op) / most_chunks_);
}

std::vector<KindStyle> Coloring::shades(Theme theme) const {
  std::vector<KindStyle> shades;
  if (by_ != ColorBy::Kinds || !has_chunks()) return shades;
  for (std::int32_t chunk = 0; chunk < most_chunks_; ++chunk) {
    const Color color =
        lighter(style_of(kind_of(OpKind::Forward), theme).fill, kLightest * chunk / most_chunks_);
    shades.push_back({.fill = color, .ink = color});
  }
  return shades;
}

}  // namespace rehearse::viz
