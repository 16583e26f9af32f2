// SPDX-License-Identifier: Apache-2.0
// The mouse over lanes, names, axis and minimap; and time that goes by while the step is played.
#include <algorithm>
#include <cmath>

#include "viz/window/state/reducer.h"

namespace rehearse::viz {

void Reducer::wheel(const Event& e) {
  const Geometry at = geometry(session, state);
  if (at.over_table(state.mouse_x, state.mouse_y)) {
    scroll_table(static_cast<std::int32_t>(-e.y * 3));
  } else if (e.control != state.wheel_zooms) {
    const double where = focus();
    for (double left = std::fabs(e.y); left > 0; left -= 1) {
      const double part = std::min(1.0, left);
      zoom(std::pow(e.y > 0 ? kZoom : 1 / kZoom, part), where);
    }
  } else if (e.shift) {
    pan(-e.y * 0.1);
  } else {
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
  state.drag_scroll = state.scroll;
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
    state.play = std::clamp(at.time_at(state, e.x), 0.0, step());
  } else if (at.over_lanes(e.x, e.y)) {
    state.drag = e.button != 0 || e.shift ? Drag::Pan : Drag::Range;
  } else if (e.x < at.left && e.y >= at.top && e.y < at.bottom) {
    press_name(at, e);
  }
}

// A click folds the row's streams; with Shift it pins the row.
void Reducer::press_name(const Geometry& at, const Event& e) {
  for (const RowSpot& row : at.rows) {
    if (e.y < row.y || e.y >= row.y + row.height || !at.in_band(row.pinned, e.y)) continue;
    if (e.shift) {
      pin({row.document, row.row});
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
  const double time = (x - at.left) / at.width * step(), half = span() / 2;
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
      state.play = std::clamp(at.time_at(state, e.x), 0.0, step());
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
    select(found.op, false);
    if (found.memory != nullptr) {
      state.memory_at = MemoryAt{found.memory->document, found.memory->row,
                                 static_cast<std::int64_t>(std::floor(at.time_at(state, e.x)))};
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
  if (!found.op) return;
  select(found.op, false);
  const auto [begin, end] = times(found.op);
  const double middle = (begin + end) / 2;
  show(middle - (end - begin) * 1.5, middle + (end - begin) * 1.5);
}

// The whole view in eight seconds.
void Reducer::tick(double seconds) {
  if (!state.playing || !state.play) return;
  state.play = *state.play + span() / 8 * seconds;
  if (*state.play >= step()) {
    state.play = step();
    state.playing = false;
  }
  if (*state.play > state.end) {
    const double width = span();
    state.begin = *state.play;
    state.end = state.begin + width;
  }
}

}  // namespace rehearse::viz
