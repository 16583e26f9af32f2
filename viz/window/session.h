// SPDX-License-Identifier: Apache-2.0
// What a viewer's window shows, as a value, and how events change it: reduce() is a pure function,
// so a recorded list of events replays, without a window too. No drawing (view_scene.h), no GLFW.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "viz/window/state/document.h"
#include "viz/window/state/event.h"
#include "viz/window/state/filter.h"

namespace rehearse::viz {

// A moment of a row's memory, which its box tells of.
struct MemoryAt {
  std::int32_t document = 0, row = 0;
  std::int64_t since = 0;  // the step's begin [ns]
  bool operator==(const MemoryAt&) const = default;
};

// What was in view, to go back to.
struct PastView {
  double begin = 0, end = 1, scroll = 0;
  bool operator==(const PastView&) const = default;
};

enum class Drag : std::uint8_t { None, Pan, Range, Scrub, Minimap };

// Tables below the lanes (table.h).
enum class TableKind : std::uint8_t {
  None,
  Statistics,
  Hits,
  Bubbles,
  Memory,
  Stragglers,
  Waits,
  Causes,
};
inline constexpr std::size_t kNumTables = 8;
struct Sort {
  std::int32_t column = -1;  // -1: as the table is made
  bool falling = false;
  bool operator==(const Sort&) const = default;
};

// What one types into: the search, or a part of the filter.
enum class Field : std::uint8_t { None, Search, Kinds, Ranks, Chunks, Microbatches, Longer };
inline constexpr std::size_t kNumFields = 7;

struct PinnedRow {
  std::int32_t document = 0, row = 0;
  bool operator==(const PinnedRow&) const = default;
};

// Times are ns since the first step's begin; doubles, so that zooming in and out again comes back.
// Places and sizes are in units of `scale` pixels.
struct ViewState {
  std::int32_t width = 1440, height = 900;
  std::int32_t pixel_width = 1440, pixel_height = 900;
  double content_scale = 1, text_scale = 1;  // of the screen; as a person chose it
  double scale() const { return content_scale * text_scale; }
  double begin = 0, end = 1;
  double scroll = 0;  // [px]
  OpRef selected;
  double mouse_x = -1, mouse_y = -1;
  bool dark = true, wheel_zooms = false;
  bool causes = true, critical = false, memory = true, links = false, streams = true;
  ColorBy color_by = ColorBy::Kinds;  // Difference: of the second trace to the first
  bool inside = false, experts = false, help = false;
  std::vector<std::uint8_t> folded;  // per row of all documents: only its compute lane is shown
  std::vector<PinnedRow> pinned;     // stay above the others, in this order
  // Per number of a class (Session::class_number): one row stands for it.
  std::vector<std::uint8_t> classes_folded;
  bool heats = false;                    // ranks over time as a heat map, instead of lanes
  HeatOf heat = kHeatIdle;               // what it counts, where the trace has it
  double heat_first = 0, heat_last = 1;  // the ranks in view, as shares of all
  bool lags = true;                      // a lane of differences below each pair of rows
  Alignment alignment;
  Filter filter;
  bool filter_open = false;  // the line of fields is shown though nothing is typed there
  Field field = Field::None;
  bool searching() const { return field == Field::Search; }
  std::string search;
  TableKind table = TableKind::None;
  std::array<Sort, kNumTables> sorts;
  std::int32_t table_first = 0;                    // its first line in sight
  std::optional<std::pair<double, double>> range;  // measured
  bool playing = false;
  std::optional<double> play;  // the time under the scrubber
  Drag drag = Drag::None;
  double drag_x = 0, drag_y = 0, drag_begin = 0, drag_scroll = 0;
  bool moved = false;         // since the press
  bool wants_export = false;  // the window writes a picture, clears it and says where
  bool wants_quit = false;
  std::string clipboard;  // what was copied; the window hands it on and clears it
  std::string notice;     // one line for the person, until the next key or click
  std::string refused;    // likewise: why the last command was not done
  bool widgets = false;   // menus, fields and tables are drawn by the window, not in the scene
  std::optional<MemoryAt> memory_at;
  std::vector<PastView> past, future;  // what undo and redo go to
  std::int32_t last_change = -1;       // what changed the view last: one gesture is one step
  bool operator==(const ViewState&) const = default;
};

// Width and height in pixels; `scale` of them per unit.
ViewState initial_state(const Session& session, std::int32_t width, std::int32_t height,
                        double scale = 1);
ViewState reduce(const Session& session, ViewState state, const Event& event);

// The text that is typed into a field. REQUIRES: not Field::None.
std::string& text_of(ViewState& state, Field field);
const std::string& text_of(const ViewState& state, Field field);

}  // namespace rehearse::viz
