// SPDX-License-Identifier: Apache-2.0
// What opens above the lanes: the inside of an op.
#include <algorithm>
#include <array>

#include "schedules/trace/kind_name.h"
#include "schedules/trace/trace_inside.h"
#include "viz/analysis/inside.h"
#include "viz/analysis/units_text.h"
#include "viz/window/view/context.h"

namespace rehearse::viz {
namespace {

// One column of a table: where it begins or ends, and its head.
struct Head {
  double x = 0;
  std::string_view text;
  Anchor anchor = Anchor::Begin;
};

void heads(const ViewContext& c, Scene& layer, double x, double y, std::span<const Head> all) {
  for (const Head& head : all) {
    add_text(layer, x + head.x, y, std::string(head.text), TextSize::Small, c.colors.faint_text,
             head.anchor);
  }
}

// Predicted, all repetitions together [ns]; 0: unknown.
std::int64_t time_of(const Trace& trace, const NodeLine& line) {
  const TraceNode& node = trace.nodes[static_cast<std::size_t>(line.node)];
  return std::max<std::int64_t>(0, node.time_ns) * line.times;
}

// What lines are chosen by where there is no room for all: time, or work where no time is known.
std::int64_t weight(const Trace& trace, const NodeLine& line) {
  const TraceNode& node = trace.nodes[static_cast<std::size_t>(line.node)];
  return node.time_ns >= 0 ? time_of(trace, line) : (node.flops + node.bytes) * line.times;
}

// The `most` heaviest of the lines, in the order in which they run.
std::vector<NodeLine> heaviest(const Trace& trace, std::vector<NodeLine> lines, std::size_t most) {
  if (lines.size() <= most) return lines;
  std::vector<std::int64_t> weights;
  for (const NodeLine& line : lines) weights.push_back(weight(trace, line));
  std::ranges::nth_element(weights, weights.begin() + static_cast<std::ptrdiff_t>(most) - 1,
                           std::greater{});
  const std::int64_t least = weights[most - 1];
  std::vector<NodeLine> kept;
  for (const NodeLine& line : lines) {
    if (kept.size() < most && weight(trace, line) >= least) kept.push_back(line);
  }
  return kept;
}

// "309 G"
std::string flops_text(std::int64_t flops) {
  static constexpr std::array<std::string_view, 5> kUnits{"", " k", " M", " G", " T"};
  auto value = static_cast<double>(flops);
  std::size_t unit = 0;
  for (; value >= 1000 && unit + 1 < kUnits.size(); ++unit) value /= 1000;
  return fixed_text(value, value < 10 ? 2 : value < 100 ? 1 : 0) + std::string(kUnits[unit]);
}

// Lines of the table: nodes, and a head for each body.
std::size_t height_of(const std::vector<NodeLine>& nodes) {
  std::size_t lines = nodes.size();
  for (std::size_t i = 0; i < nodes.size(); ++i)
    lines += i == 0 || nodes[i].body != nodes[i - 1].body;
  return lines;
}

constexpr double kLine = 16;

void nodes_table(const ViewContext& c, Scene& layer, const Trace& trace, OpId op, double x,
                 double y, double width, std::size_t most) {
  const std::vector<NodeLine> all = nodes_of(trace, op);
  if (all.empty()) {
    add_text(layer, x, y, "Its kernels are not in this trace.", TextSize::Small,
             c.colors.faint_text);
    return;
  }
  std::int64_t sum = 0, count = 0, longest = 1;
  for (const NodeLine& line : all) {
    sum += time_of(trace, line);
    count += line.times;
    longest = std::max(longest, time_of(trace, line));
  }
  const std::vector<NodeLine> lines = heaviest(trace, all, most);
  const std::array<Head, 7> columns{{{0, "kernel or collective"},
                                     {width * 0.36, "×", Anchor::End},
                                     {width * 0.38, "shape"},
                                     {width * 0.66, "FLOP", Anchor::End},
                                     {width * 0.77, "bytes", Anchor::End},
                                     {width * 0.88, "alone", Anchor::End},
                                     {width * 0.90, ""}}};
  heads(c, layer, x, y, columns);
  std::int32_t body = -1;
  double at = y;
  for (const NodeLine& line : lines) {
    const TraceNode& node = trace.nodes[static_cast<std::size_t>(line.node)];
    at += kLine;
    if (line.body != body) {
      body = line.body;
      std::string name(trace.text(trace.bodies[static_cast<std::size_t>(body)].name));
      if (line.times > 1) name += ", " + std::to_string(line.times) + " times";
      add_text(layer, x, at, name, TextSize::Small, c.colors.faint_text);
      at += kLine;
    }
    const auto cell = [&](std::size_t column, std::string text) {
      add_text(layer, x + columns[column].x, at, std::move(text), TextSize::Small, c.colors.text,
               columns[column].anchor);
    };
    std::string name(trace.text(node.name));
    if (node.recompute != 0) name += " (again)";
    if (node.overlapped != 0) name += " (beside)";
    cell(0, clipped(name, TextSize::Small, width * 0.33));
    if (line.times > 1) cell(1, std::to_string(line.times));
    cell(2, clipped(shape_text(node), TextSize::Small, width * 0.22));
    if (node.flops > 0) cell(3, flops_text(node.flops));
    if (node.bytes > 0) cell(4, bytes_text(node.bytes));
    if (node.time_ns < 0) continue;
    cell(5, time_text(node.time_ns));
    layer.rects.push_back({.x = x + columns[6].x,
                           .y = at - 9,
                           .width = width * 0.10 * static_cast<double>(time_of(trace, line)) /
                                    static_cast<double>(longest),
                           .height = 10,
                           .fill = node.collective != 0 ? color_of(OpKind::AllReduce)
                                                        : color_of(trace.class_of(op).kind)});
  }
  std::string foot = std::to_string(count) + " in all";
  if (sum > 0) foot += ", " + time_text(sum) + " one after another";
  if (lines.size() < all.size())
    foot += "; the " + std::to_string(lines.size()) + " heaviest are shown";
  add_text(layer, x, at + kLine + 4, foot, TextSize::Small, c.colors.faint_text);
}

std::string life_text(const Trace& trace, const TraceValue& value) {
  const std::string from = value.define ? op_name(trace, value.define) : "before the step";
  const std::string to =
      value.last_use && value.hold_until ? op_name(trace, value.last_use) : "kept";
  return from + " to " + to;
}

void operands_table(const ViewContext& c, Scene& layer, const Trace& trace, OpId op, double x,
                    double y, double width, std::size_t most) {
  const std::span<const TraceOperand> operands = operands_of(trace, op);
  if (operands.empty()) {
    add_text(layer, x, y, "Its operands are not in this trace.", TextSize::Small,
             c.colors.faint_text);
    return;
  }
  static constexpr std::array<std::string_view, 4> kAccess{"reads", "writes", "updates",
                                                           "works in"};
  const std::array<Head, 4> columns{{{0, ""},
                                     {width * 0.18, "operand"},
                                     {width * 0.58, "bytes", Anchor::End},
                                     {width * 0.61, "alive"}}};
  heads(c, layer, x, y, columns);
  std::vector<TraceOperand> lines(operands.begin(), operands.end());
  const auto value_of = [&](const TraceOperand& operand) -> const TraceValue& {
    return trace.values[static_cast<std::size_t>(operand.value)];
  };
  std::ranges::stable_sort(lines, std::greater{},
                           [&](const TraceOperand& o) { return value_of(o).bytes; });
  std::int64_t sum = 0;
  for (const TraceOperand& operand : lines) sum += value_of(operand).bytes;
  const std::size_t all = lines.size();
  if (all > most) lines.resize(most);
  double at = y;
  for (const TraceOperand& operand : lines) {
    at += kLine;
    const TraceValue& value = value_of(operand);
    const std::array<std::string, 4> cells{
        std::string(kAccess[static_cast<std::size_t>(operand.access)]),
        clipped(value_name(trace, operand.value), TextSize::Small, width * 0.24),
        bytes_text(value.bytes), clipped(life_text(trace, value), TextSize::Small, width * 0.39)};
    for (std::size_t i = 0; i < cells.size(); ++i) {
      add_text(layer, x + columns[i].x, at, cells[i], TextSize::Small, c.colors.text,
               columns[i].anchor);
    }
  }
  std::string foot = std::to_string(all) + " operands, " + bytes_text(sum);
  if (lines.size() < all) foot += "; the " + std::to_string(lines.size()) + " largest are shown";
  add_text(layer, x, at + kLine + 4, foot, TextSize::Small, c.colors.faint_text);
}

}  // namespace

void draw_box(const ViewContext& c, Scene& layer, double x, double y, double width, double height) {
  layer.rects.push_back({.x = x,
                         .y = y,
                         .width = width,
                         .height = height,
                         .fill = c.colors.background,
                         .outlined = true,
                         .outline = c.colors.faint_text});
}

void draw_inside(const ViewContext& c, Scene& layer) {
  const OpRef shown = c.state.selected;
  const Trace& trace = c.session.at(shown.document).trace();
  // A measured trace has no times inside ops: those of the prediction beside it.
  const Trace* nodes = &trace;
  OpId same = shown.op;
  if (c.session.compares() && trace.label == TraceLabel::Measured) {
    if (const OpId there = c.session.counterpart(shown)) {
      nodes = &c.session.at(1 - shown.document).trace();
      same = there;
    }
  }
  const double width = std::min(1240.0, c.state.width - 40.0);
  const double x = (c.state.width - width) / 2, y = c.at.top + 10;
  const double room = c.at.panel_y - y - 10;
  const double left = width * 0.62;
  constexpr double kAround = 84;  // heads and feet
  const auto fits = static_cast<std::size_t>(std::max(1.0, (room - kAround) / kLine));
  const std::vector<NodeLine> lines = nodes_of(*nodes, same);
  const std::size_t heads = height_of(lines) - lines.size();
  const std::size_t most = fits > heads ? fits - heads : 1;
  const std::size_t tall = std::max(std::min(lines.size(), most) + heads,
                                    std::min(operands_of(trace, shown.op).size(), most));
  draw_box(c, layer, x, y, width,
           std::min(room, kAround + kLine * static_cast<double>(std::max<std::size_t>(1, tall))));
  const std::int64_t took = trace.end_ns[shown.op.index()] - trace.start_ns[shown.op.index()];
  add_text(layer, x + 14, y + 24, "Inside " + op_name(trace, shown.op), TextSize::Title,
           c.colors.text);
  add_text(layer, x + width - 14, y + 24,
           (trace.label == TraceLabel::Measured ? "measured " : "predicted ") + time_text(took),
           TextSize::Normal, c.colors.faint_text, Anchor::End);
  nodes_table(c, layer, *nodes, same, x + 14, y + 50, left - 28, most);
  operands_table(c, layer, trace, shown.op, x + left, y + 50, width - left - 14, most);
}

}  // namespace rehearse::viz
