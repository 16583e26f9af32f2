// SPDX-License-Identifier: Apache-2.0
// The selected op: going to it, along its lane and along what waited for what; what is pinned.
#include <algorithm>
#include <cmath>
#include <limits>

#include "viz/window/state/reducer.h"

namespace rehearse::viz {

void Reducer::select(OpRef op, bool reveal) {
  state.selected = op;
  if (!op || !reveal) return;
  const auto [begin, end] = times(op);
  if (end < state.begin || begin > state.end) {
    const double half = std::max(span(), (end - begin) * 1.5) / 2, middle = (begin + end) / 2;
    show(middle - half, middle + half);
  }
  const std::int32_t of = session.at(op.document).trace().row_of(op.op).value;
  if (is_folded_class(session, state, op.document, of) &&
      session.classes(op.document).slowest(of) != of && !state.heats)
    fold_class({op.document, of}, false);
  const Geometry at = geometry(session, state);
  for (const RowSpot& row : at.rows) {
    if (row.document != op.document || row.row != of || row.pinned) continue;
    if (row.y < at.pin_bottom) scroll_to(state.scroll + row.y - at.pin_bottom - 4);
    if (row.y + row.height > at.bottom)
      scroll_to(state.scroll + row.y + row.height - at.bottom + 4);
    break;
  }
}

std::pair<double, double> Reducer::times(OpRef op) const {
  const Trace& of = session.at(op.document).trace();
  const std::int64_t origin = session.origin(op.document, state.alignment);
  return {static_cast<double>(of.start_ns[op.op.index()] - origin),
          static_cast<double>(of.end_ns[op.op.index()] - origin)};
}

// First so that it is in the middle, then so that it fills a third.
void Reducer::focus_selected() {
  if (!state.selected) return;
  const auto [begin, end] = times(state.selected);
  const double middle = (begin + end) / 2, half = span() / 2;
  const bool centred = std::fabs(middle - (state.begin + state.end) / 2) < span() * 0.02;
  if (centred) {
    show(middle - (end - begin) * 1.5, middle + (end - begin) * 1.5);
  } else {
    show(middle - half, middle + half);
  }
}

void Reducer::along_lane(int by) {
  if (!state.selected) return;
  const Trace& of = trace();
  const std::int32_t lane = of.lane_of(state.selected.op);
  const auto row = static_cast<std::size_t>(of.row_of(state.selected.op).value);
  for (std::int32_t op = state.selected.op.value + by;
       op >= of.row_begin[row] && op < of.row_begin[row + 1]; op += by) {
    if (of.lane_of({op}) != lane) continue;
    select({state.selected.document, {op}}, true);
    return;
  }
}

void Reducer::to_feeder() {
  if (!state.selected) return;
  const Causality& causes = session.at(state.selected.document).causality();
  OpRef best = state.selected;
  std::int64_t latest = -1;
  causes.for_each_before(causes.node_of(state.selected.op), [&](OpId op) {
    if (trace().end_ns[op.index()] > latest) {
      latest = trace().end_ns[op.index()];
      best.op = op;
    }
  });
  select(best, true);
}

// The waits point backwards, so all are read.
void Reducer::to_fed() {
  if (!state.selected) return;
  const Causality& causes = session.at(state.selected.document).causality();
  const std::int32_t node = causes.node_of(state.selected.op);
  OpRef best = state.selected;
  std::int64_t earliest = std::numeric_limits<std::int64_t>::max();
  for (std::int32_t other = 0; other < causes.num_nodes(); ++other) {
    if (other == node) continue;
    causes.for_each_before(other, [&](OpId op) {
      const OpId first{causes.members(other)[0]};
      if (causes.node_of(op) != node || trace().start_ns[first.index()] >= earliest) return;
      earliest = trace().start_ns[first.index()];
      best.op = first;
    });
  }
  select(best, true);
}

// The next hit behind the selected op, or before it; beyond the last comes the first.
void Reducer::find_next(int by) {
  const std::int32_t document = state.selected ? state.selected.document : 0;
  const std::vector<OpId>& hits = session.at(document).hits(state.search, state.filter);
  if (hits.empty()) return;
  const OpId from = state.selected.op;
  auto next = by > 0 ? std::ranges::upper_bound(hits, from) : std::ranges::lower_bound(hits, from);
  if (!from) next = by > 0 ? hits.begin() : hits.end();
  if (by < 0) next = next == hits.begin() ? hits.end() - 1 : next - 1;
  if (next == hits.end()) next = hits.begin();
  select({document, *next}, true);
}

// Closes what was opened last, then clears.
void Reducer::escape() {
  if (state.help) {
    state.help = false;
  } else if (state.memory_at) {
    state.memory_at.reset();
  } else if (state.experts) {
    state.experts = false;
  } else if (state.inside) {
    state.inside = false;
  } else if (state.table != TableKind::None) {
    open_table(state.table);
  } else if (state.filter_open) {
    edit(Field::None);
  } else if (state.heats) {
    state.heats = false;
    scroll_to(state.scroll);
  } else if (state.range) {
    state.range.reset();
  } else if (state.play) {
    state.play.reset();
    state.playing = false;
  } else {
    state.selected = {};
  }
}

void Reducer::color_by_next(int by) {
  constexpr auto kCount = static_cast<int>(kNumColorings);
  int next = static_cast<int>(state.color_by);
  do {
    next = (next + by + kCount) % kCount;
  } while (static_cast<ColorBy>(next) == ColorBy::Difference && !session.corresponds());
  state.color_by = static_cast<ColorBy>(next);
}

bool Reducer::has_class(PinnedRow row) const {
  return session.classes(row.document).rows(row.row) > 1;
}

void Reducer::fold_class(PinnedRow row, bool folded) {
  state.classes_folded.resize(session.num_rows());
  state.classes_folded[session.class_number(row.document, row.row)] = folded ? 1 : 0;
  scroll_to(state.scroll);
}

PinnedRow Reducer::row_meant() const {
  for (const RowSpot& row : geometry(session, state).rows) {
    if (state.mouse_y >= row.y && state.mouse_y < row.y + row.height)
      return {row.document, row.row};
  }
  if (!state.selected) return {0, -1};
  return {state.selected.document, trace().row_of(state.selected.op).value};
}

// Rows of two traces that correspond stay together.
void Reducer::pin(PinnedRow row) {
  std::vector<PinnedRow> rows{row};
  if (session.compares() && session.corresponds()) rows = {{0, row.row}, {1, row.row}};
  for (const PinnedRow& one : rows) {
    const auto known = std::ranges::find(state.pinned, one);
    if (known != state.pinned.end()) {
      state.pinned.erase(known);
    } else {
      state.pinned.push_back(one);
    }
  }
  scroll_to(state.scroll);
}

}  // namespace rehearse::viz
