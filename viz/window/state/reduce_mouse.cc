// SPDX-License-Identifier: Apache-2.0
// The mouse over lanes, names, axis and minimap; and time that goes by while the step is played.
#include <algorithm>
#include <cmath>

#include "viz/window/heat_view.h"
#include "viz/window/state/reducer.h"

namespace rehearse::viz {

void Reducer::wheel(const Event& e) {
  const Geometry at = geometry(session, state);
  if (at.over_table(state.mouse_x, state.mouse_y)) {
    scroll_table(static_cast<std::int32_t>(-e.y * 3));
  } else if (state.heats && e.control && e.shift) {
    zoom_ranks(std::pow(kZoom, e.y), state.mouse_y);
  } else if (e.control != state.wheel_zooms) {
    const double where = focus();
    for (double left = std::fabs(e.y); left > 0; left -= 1) {
      const double part = std::min(1.0, left);
      zoom(std::pow(e.y > 0 ? kZoom : 1 / kZoom, part), where);
    }
  } else if (e.shift) {
    pan(-e.y * 0.1);
  } else {
    if (state.heats) scroll_ranks(-e.y * 0.1);
    scroll_to(state.scroll - e.y * 60);
    pan(e.x * -0.1);
  }
}

void Reducer::press(const Event& e) {
  state.mouse_x = e.x;
  state.mouse_y = e.y;
  const Geometry at = geometry(session, state);
  state.drag_x = e.x;
  state.drag_y = e.y;
  state.drag_begin = state.begin;
  state.drag_scroll = state.heats ? state.heat_first : state.scroll;
  state.moved = false;
  if (press_field(at, e) || press_below(at, e)) return;
  if (state.field != Field::None) {  // letters are keys again; the line stays where it is
    state.field = Field::None;
    state.filter_open = true;
  }
  if (e.y >= at.minimap_y && e.y < at.minimap_y + at.minimap_height && e.x >= at.left) {
    state.drag = Drag::Minimap;
    move_minimap(at, e.x);
  } else if (e.y >= at.axis_y && e.y < at.top && e.x >= at.left) {
    state.drag = Drag::Scrub;
    state.play = std::clamp(at.time_at(state, e.x), extent().first, extent().second);
  } else if (at.over_lanes(e.x, e.y)) {
    state.drag = e.button != 0 || e.shift ? Drag::Pan : Drag::Range;
  } else if (e.x < at.left && e.y >= at.top && e.y < at.bottom) {
    press_name(at, e);
  }
}

// A click folds the row's streams; with Shift it pins the row, with Ctrl it shows all of its class.
void Reducer::press_name(const Geometry& at, const Event& e) {
  for (const RowSpot& row : at.rows) {
    if (e.y < row.y || e.y >= row.y + row.height || !at.in_band(row.pinned, e.y)) continue;
    if (e.shift) {
      pin({row.document, row.row});
    } else if (e.control) {
      if (has_class({row.document, row.row}))
        fold_class({row.document, row.row}, row.of_class == 0);
    } else {
      fold(row);
    }
    return;
  }
}

void Reducer::fold(const RowSpot& row) {
  auto index = static_cast<std::size_t>(row.row);
  if (row.document == 1) index += static_cast<std::size_t>(session.at(0).trace().num_rows());
  state.folded.resize(std::max(state.folded.size(), index + 1));
  state.folded[index] ^= 1;
  scroll_to(state.scroll);
}

void Reducer::move_minimap(const Geometry& at, double x) {
  const auto [first, last] = extent();
  const double time = first + (x - at.left) / at.width * (last - first), half = span() / 2;
  show(time - half, time + half);
}

void Reducer::move(const Event& e) {
  state.mouse_x = e.x;
  state.mouse_y = e.y;
  if (state.drag == Drag::None) return;
  constexpr double kStill = 3;  // [px]
  state.moved = state.moved || std::hypot(e.x - state.drag_x, e.y - state.drag_y) > kStill;
  const Geometry at = geometry(session, state);
  switch (state.drag) {
    case Drag::Pan: {
      const double width = span();
      state.begin = state.drag_begin - (e.x - state.drag_x) / at.width * width;
      state.end = state.begin + width;
      if (state.heats) {
        const double ranks = state.heat_last - state.heat_first;
        const double by = (e.y - state.drag_y) / (at.bottom - at.top) * ranks;
        scroll_ranks((state.drag_scroll - by - state.heat_first) / ranks);
      }
      scroll_to(state.drag_scroll - (e.y - state.drag_y));
      break;
    }
    case Drag::Range:
      if (state.moved) {
        const double a = at.time_at(state, state.drag_x),
                     b = at.time_at(state, std::clamp(e.x, at.left, at.left + at.width));
        state.range = std::minmax(a, b);
      }
      break;
    case Drag::Scrub:
      state.play = std::clamp(at.time_at(state, e.x), extent().first, extent().second);
      break;
    case Drag::Minimap:
      move_minimap(at, e.x);
      break;
    case Drag::None:
      break;
  }
}

void Reducer::release(const Event& e) {
  move(e);
  if (state.drag == Drag::Range && !state.moved) {
    const Geometry at = geometry(session, state);
    const Hit found = hit(session, state, at, e.x, e.y);
    select(found.heat != nullptr ? op_in_heat(at, e.x, e.y) : found.op, false);
    if (found.memory != nullptr) {
      const std::int32_t d = found.memory->document;
      state.memory_at =
          MemoryAt{d, found.memory->row,
                   static_cast<std::int64_t>(std::floor(at.time_at(state, e.x))) +
                       session.origin(d, state.alignment) - session.at(d).trace().begin.value};
    }
    // A click on a bubble selects the op that ends it.
    if (!found.op && found.idle >= 0) {
      const Trace& of = session.at(found.lane->document).trace();
      select({found.lane->document, of.idle[static_cast<std::size_t>(found.idle)].op}, false);
    }
    state.range.reset();
  }
  state.drag = Drag::None;
}

void Reducer::double_click(const Event& e) {
  const Geometry at = geometry(session, state);
  const Hit found = hit(session, state, at, e.x, e.y);
  if (found.heat != nullptr) {  // to that rank's lane
    const OpRef op = op_in_heat(at, e.x, e.y);
    if (!op) return;
    state.heats = false;
    return select(op, true);
  }
  if (!found.op) return;
  select(found.op, false);
  const auto [begin, end] = times(found.op);
  const double middle = (begin + end) / 2;
  show(middle - (end - begin) * 1.5, middle + (end - begin) * 1.5);
}

// Of the rank with most of what the map counts in the cell under a place: the op there, or the one
// that ends the bubble there.
OpRef Reducer::op_in_heat(const Geometry& at, double x, double y) const {
  const Hit found = hit(session, state, at, x, y);
  const std::optional<HeatCell> cell = heat_cell(session, state, at, found, x, y);
  if (!cell) return {};
  const Document& document = session.at(cell->document);
  const std::int32_t lane = cell->worst_row * document.trace().slots;
  const OpId op = op_at(document.index(), lane, cell->time);
  if (op) return {cell->document, op};
  const std::int32_t idle = idle_at(document.index(), cell->worst_row, cell->time);
  if (idle < 0) return {};
  return {cell->document, document.trace().idle[static_cast<std::size_t>(idle)].op};
}

// The whole view in eight seconds.
void Reducer::tick(double seconds) {
  if (!state.playing || !state.play) return;
  state.play = *state.play + span() / 8 * seconds;
  if (*state.play >= extent().second) {
    state.play = extent().second;
    state.playing = false;
  }
  if (*state.play > state.end) {
    const double width = span();
    state.begin = *state.play;
    state.end = state.begin + width;
  }
}

}  // namespace rehearse::viz
