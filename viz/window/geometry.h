// SPDX-License-Identifier: Apache-2.0
// Where everything of the window is, from its state alone: drawing and the mouse ask the same.
#pragma once

#include <algorithm>
#include <vector>

#include "viz/window/session.h"

namespace rehearse::viz {

struct LaneSpot {
  std::int32_t document = 0, row = 0, lane = 0;
  double y = 0, height = 0;  // on screen, scrolled [px]
  bool pinned = false;       // above the others, not scrolled
};
struct RowSpot {
  std::int32_t document = 0, row = 0;
  double y = 0, height = 0;  // all of it
  double memory_y = -1;      // its memory curve; -1: none
  double lag_y = -1;         // of the second of two: the lane of differences; -1: none
  bool pinned = false;
  std::int32_t of_class = 0;  // ranks of the class that it stands for; 0: it stands for itself
};
struct LinkSpot {
  std::int32_t document = 0;
  std::int32_t link = 0;  // -1: the line that counts those without load
  double y = 0;
};

// The ranks of a trace as bands over time.
struct HeatSpot {
  std::int32_t document = 0;
  double y = 0, height = 0;
  RankRange ranks;  // in sight
  std::int32_t bands = 1;

  std::int32_t band_at(double at) const {
    return std::clamp(static_cast<std::int32_t>((at - y) / height * bands), 0, bands - 1);
  }
  RankRange band(std::int32_t number) const {
    const std::int64_t count = ranks.last - ranks.first;
    return {ranks.first + count * number / bands, ranks.first + count * (number + 1) / bands};
  }
};

struct FieldSpot {
  Field field{};
  double x = 0, width = 0;  // of its box; its name stands before it
};
struct TabSpot {
  TableKind table{};
  double x = 0, y = 0, width = 0;  // y: below the panel's upper edge
};

struct Geometry {
  static constexpr double kMenus = 210;     // width of the window's menus, at the upper left
  double fields_y = 30, fields_height = 0;  // the line of fields; 0: closed
  double minimap_y = 30, minimap_height = 34;
  double axis_y = 64;
  double left = 150, right = 70;  // of the lanes
  double top = 86, bottom = 0;    // of the lanes
  double width = 0;               // of the time axis
  double pin_bottom = 0;          // pinned rows end there, and the others begin
  double panel_y = 0, panel_height = 190;
  static constexpr double kTabLine = 22;
  double tabs_height = kTabLine;
  double panel_middle = 0;            // on the left the tabs and what they show
  double legend_x = 0, legend_y = 0;  // on the right; of a narrow window below
  bool narrow = false;                // one above the other: a page on a phone
  double table_x = 0, table_y = 0, table_width = 0, table_height = 0;  // 0: no table
  double table_bottom = 0;                                             // of its note
  static constexpr double kTableLine = 18, kNoteLine = 14;
  std::int32_t note_lines = 1;  // below the table
  double lane_height = 0, memory_height = 0, link_height = 0, lag_height = 0;
  double content_height = 0;  // of all lanes, to scroll
  std::vector<RowSpot> rows;
  std::vector<LaneSpot> lanes;
  std::vector<LinkSpot> links;
  std::vector<HeatSpot> heats;  // instead of rows, lanes and links
  std::vector<FieldSpot> fields;
  std::vector<TabSpot> tabs;

  double x_of(const ViewState& state, double time) const {
    return left + (time - state.begin) / (state.end - state.begin) * width;
  }
  double time_at(const ViewState& state, double x) const {
    return state.begin + (x - left) / width * (state.end - state.begin);
  }
  bool over_lanes(double x, double y) const {
    return x >= left && x < left + width && y >= top && y < bottom;
  }
  // Whether a height belongs to the pinned rows, or to the others.
  bool in_band(bool pinned, double y) const { return (y < pin_bottom) == pinned; }
  bool over_table(double x, double y) const {
    return x >= table_x && x < table_x + table_width && y >= table_y && y < table_y + table_height;
  }
  // Lines below the heads that have room; the line at a height, -1: the heads.
  std::int32_t table_lines() const {
    return std::max(0, static_cast<std::int32_t>(table_height / kTableLine) - 1);
  }
  std::int32_t table_line(double y) const {
    return static_cast<std::int32_t>((y - table_y) / kTableLine) - 1;
  }
};

Geometry geometry(const Session& session, const ViewState& state);
std::string_view field_name(Field field);
double field_name_width(Field field);  // [px], with the space behind it

// Whether one row stands for the class of a row: the one that computes longest.
bool is_folded_class(const Session& session, const ViewState& state, std::int32_t document,
                     std::int32_t row);

// What is under the mouse: a lane, and the op or the idle span there; or a curve.
struct Hit {
  const LaneSpot* lane = nullptr;   // into the geometry
  const RowSpot* memory = nullptr;  // likewise
  const LinkSpot* link = nullptr;
  const RowSpot* lag = nullptr;    // likewise
  const HeatSpot* heat = nullptr;  // likewise
  OpRef op;
  std::int32_t idle = -1;  // index into Trace::idle
};
Hit hit(const Session& session, const ViewState& state, const Geometry& at, double x, double y);

}  // namespace rehearse::viz
