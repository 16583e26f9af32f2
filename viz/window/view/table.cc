// SPDX-License-Identifier: Apache-2.0
// The tabs below the lanes; and what the window's widgets stand for elsewhere: the line of fields
// and the table.
#include <algorithm>

#include "viz/window/view/context.h"

namespace rehearse::viz {
namespace {

constexpr Color kFault{213, 94, 0};

void frame(const ViewContext& c, Scene& scene, double x, double y, double width, double height,
           Color outline) {
  scene.rects.push_back({.x = x,
                         .y = y,
                         .width = width,
                         .height = height,
                         .fill = c.colors.background,
                         .outlined = true,
                         .outline = outline});
}

// Why what stands in a field asks for nothing; empty: it does.
std::string fault_of(const ViewContext& c, Field field) {
  if (field == Field::Search) return {};
  return filter_fault(
      c.session.at(0).trace(),
      static_cast<FilterPart>(static_cast<int>(field) - static_cast<int>(Field::Kinds)),
      text_of(c.state, field));
}

struct TableColumns {
  std::vector<double> begin, end;
  std::size_t count() const { return begin.size(); }
};
// Of those for which there is room: in a narrow window the last ones are left out.
TableColumns columns_of(const ViewContext& c, const Table& table) {
  constexpr double kPadding = 12;
  double x = c.at.table_x;
  TableColumns all;
  for (const double width : column_widths(table, c.at.table_width)) {
    if (x + width > c.at.table_x + c.at.table_width + kPadding + 1) break;
    all.begin.push_back(x);
    x += width;
    all.end.push_back(x - kPadding);
  }
  return all;
}

void table_heads(const ViewContext& c, const Table& table, const TableColumns& at, Scene& scene) {
  const Sort& by = c.state.sorts[static_cast<std::size_t>(c.state.table)];
  for (std::size_t i = 0; i < at.count(); ++i) {
    const TableColumn& column = table.columns[i];
    const bool sorted = by.column == static_cast<std::int32_t>(i);
    add_text(scene, column.number ? at.end[i] : at.begin[i] + (i == 0 ? 14 : 0), c.at.table_y + 13,
             clipped(std::string(column.name), TextSize::Small, at.end[i] - at.begin[i]),
             TextSize::Small, sorted ? c.colors.text : c.colors.faint_text,
             column.number ? Anchor::End : Anchor::Begin);
    if (!sorted) continue;  // a line above the least or below the greatest
    const double y = c.at.table_y + (by.falling ? 16 : 2);
    scene.lines.push_back({.x1 = at.begin[i],
                           .y1 = y,
                           .x2 = at.end[i],
                           .y2 = y,
                           .width = 1,
                           .color = c.colors.accent});
  }
}

void table_histogram(const TableLine& line, double x, double end, double base, Scene& scene) {
  const double bin = (end - x) / static_cast<double>(line.histogram.size());
  for (std::size_t i = 0; i < line.histogram.size(); ++i) {
    if (line.histogram[i] <= 0) continue;
    const double tall = std::max(1.0, 13.0 * static_cast<double>(line.histogram[i]));
    scene.rects.push_back({.x = x + bin * static_cast<double>(i),
                           .y = base - tall,
                           .width = bin * 0.9,
                           .height = tall,
                           .fill = line.color});
  }
}

}  // namespace

void draw_fields(const ViewContext& c, Scene& scene) {
  if (c.at.fields_height == 0) return;
  const double y = c.at.fields_y + 3, height = c.at.fields_height - 8;
  std::string wrong;
  for (const FieldSpot& spot : c.at.fields) {
    const bool here = c.state.field == spot.field;
    const std::string fault = fault_of(c, spot.field);
    if (!fault.empty()) wrong = fault;
    add_text(scene, spot.x - field_name_width(spot.field), y + 15,
             std::string(field_name(spot.field)), TextSize::Small, c.colors.faint_text);
    frame(c, scene, spot.x, y, spot.width, height,
          !fault.empty() ? kFault
          : here         ? c.colors.accent
                         : c.colors.grid);
    const std::string& text = text_of(c.state, spot.field);
    const bool example = text.empty() && !here && spot.field != Field::Search;
    add_text(
        scene, spot.x + 6, y + 15,
        clipped(example ? std::string(kFilterExamples[static_cast<std::size_t>(spot.field) - 2])
                        : text + (here ? "_" : ""),
                TextSize::Small, spot.width - 10),
        TextSize::Small, example ? c.colors.faint_text : c.colors.text);
  }
  if (!wrong.empty()) {
    Scene said;  // over the axis
    said.rects.push_back({.x = c.at.left - 4,
                          .y = c.at.axis_y + 3,
                          .width = text_width(wrong, TextSize::Small) + 12.0,
                          .height = 17,
                          .fill = c.colors.background});
    add_text(said, c.at.left, c.at.axis_y + 15, wrong, TextSize::Small, kFault);
    scene.layers.push_back(std::move(said));
  }
}

void draw_tabs(const ViewContext& c, Scene& scene) {
  for (const TabSpot& tab : c.at.tabs) {
    const bool here = tab.table == c.state.table;
    const double y = c.at.panel_y + tab.y;
    if (here) {
      scene.rects.push_back({.x = tab.x,
                             .y = y,
                             .width = tab.width,
                             .height = Geometry::kTabLine,
                             .fill = c.colors.background});
      scene.rects.push_back(
          {.x = tab.x, .y = y, .width = tab.width, .height = 2, .fill = c.colors.accent});
    }
    add_text(scene, tab.x + tab.width / 2, y + 15,
             std::string(kTableNames[static_cast<std::size_t>(tab.table)]), TextSize::Small,
             here ? c.colors.text : c.colors.faint_text, Anchor::Middle);
  }
}

namespace {

// Its lines; those in sight are said.
std::string draw_lines(const ViewContext& c, const Table& table, Scene& scene) {
  const TableColumns at = columns_of(c, table);
  table_heads(c, table, at, scene);
  const auto count = static_cast<std::int32_t>(table.lines.size());
  const std::int32_t room = c.at.table_lines();
  const std::int32_t first = std::clamp(c.state.table_first, 0, std::max(0, count - room));
  double y = c.at.table_y + Geometry::kTableLine;
  for (std::int32_t i = first; i < std::min(count, first + room); ++i, y += Geometry::kTableLine) {
    const TableLine& line = table.lines[static_cast<std::size_t>(i)];
    if (line.op && line.op == c.state.selected) {
      scene.rects.push_back({.x = c.at.table_x,
                             .y = y,
                             .width = c.at.table_width,
                             .height = Geometry::kTableLine,
                             .fill = c.colors.text,
                             .alpha = 40});
    }
    scene.rects.push_back(
        {.x = c.at.table_x, .y = y + 5, .width = 8, .height = 8, .fill = line.color});
    for (std::size_t k = 0; k < std::min(at.count(), line.cells.size()); ++k) {
      const bool number = table.columns[k].number;
      const double begin = at.begin[k] + (k == 0 ? 14 : 0);
      add_text(scene, number ? at.end[k] : begin, y + 13,
               clipped(line.cells[k].text, TextSize::Small, at.end[k] - begin), TextSize::Small,
               c.colors.text, number ? Anchor::End : Anchor::Begin);
    }
    if (at.count() < table.columns.size()) continue;
    for (const TableLine::Bar& bar : line.bars) {  // below a text thin
      const double width = at.end.back() - at.begin.back(),
                   tall = line.cells.back().text.empty() ? 13 : 2;
      scene.rects.push_back({.x = at.begin.back() + width * bar.begin,
                             .y = y + 18 - tall - (tall > 2 ? 1 : 0),
                             .width = std::max(1.0, width * (bar.end - bar.begin)),
                             .height = tall,
                             .fill = bar.color});
    }
    if (!line.histogram.empty())
      table_histogram(line, at.begin.back(), at.end.back(), y + 16, scene);
  }
  if (count <= room) return {};
  return std::to_string(first + 1) + " to " + std::to_string(std::min(count, first + room)) +
         " of " + std::to_string(count);
}

}  // namespace

void draw_table(const ViewContext& c, const Table& table, Scene& scene) {
  std::string note = table.note;
  if (!c.state.widgets) {
    const std::string sight = draw_lines(c, table, scene);
    if (!sight.empty()) note += (note.empty() ? "" : ", ") + sight;
  }
  std::vector<std::string> lines = wrapped(note, TextSize::Small, c.at.table_width);
  const auto room = static_cast<std::size_t>(c.at.note_lines);
  if (lines.size() > room && room == 1) lines = {clipped(note, TextSize::Small, c.at.table_width)};
  lines.resize(std::min(room, lines.size()));
  double y = c.at.table_bottom - 7.0 - Geometry::kNoteLine * static_cast<double>(lines.size() - 1);
  for (std::string& line : lines) {
    add_text(scene, c.at.table_x, y, std::move(line), TextSize::Small, c.colors.faint_text);
    y += Geometry::kNoteLine;
  }
}

}  // namespace rehearse::viz
