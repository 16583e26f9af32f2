// SPDX-License-Identifier: Apache-2.0
#include "viz/window/geometry.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "viz/picture/font.h"
#include "viz/picture/layout.h"
#include "viz/picture/ranks/heat_map.h"
#include "viz/window/state/table.h"

namespace rehearse::viz {
namespace {

// Of a line of the picture, by what is left for it [px].
struct Heights {
  double least = 0, most = 0;
};
constexpr Heights kLane{11, 110}, kStream{11, 18}, kMemory{34, 130}, kLink{16, 30}, kLag{13, 44};
constexpr double kGap = 3, kBlockGap = 18, kPanelSide = 12;
constexpr double kLeftWithLinks = 256, kLeftWithClasses = 184;  // names are long [px]

// A lane for each link that carries something, and a line for all that do not.
std::size_t link_lines(const Document& document) {
  const std::size_t loaded = document.loaded_links().size();
  return loaded + (loaded < document.trace().links.size() ? 1 : 0);
}

// The line of fields, while one types there or something is asked for.
void place_fields(const ViewState& state, Geometry& at) {
  if (state.field == Field::None && !state.filter_open && state.filter.empty()) return;
  constexpr std::array<double, kNumFields> kShares{0, 2.2, 1.2, 1.2, 0.7, 1, 0.9};
  constexpr double kSum = 7.2, kEdge = 12, kClear = 70;
  at.fields_height = 30;
  const double room = state.width - 2 * kEdge - kClear;
  double x = kEdge;
  for (std::size_t i = 1; i < kNumFields; ++i) {
    const double width = room * kShares[i] / kSum, name = field_name_width(static_cast<Field>(i));
    at.fields.push_back({static_cast<Field>(i), x + name, std::max(24.0, width - name - 10)});
    x += width;
  }
  at.minimap_y += at.fields_height;
  at.axis_y += at.fields_height;
  at.top += at.fields_height;
}

// Where they do not fit beside the legend, that stands below them; of a narrow window they have as
// many lines as they need.
void place_tabs(const Session& session, const ViewState& state, Geometry& at) {
  constexpr double kPad = 9;
  double x = kPanelSide, y = 0;
  for (std::size_t i = 0; i < kNumTables; ++i) {
    if (!has_table(session, static_cast<TableKind>(i))) continue;
    const double width = text_width(kTableNames[i], TextSize::Small) + 2 * kPad;
    if (at.narrow && x > kPanelSide && x + width > state.width - kPanelSide) {
      x = kPanelSide;
      y += Geometry::kTabLine;
    }
    at.tabs.push_back({static_cast<TableKind>(i), x, y, width});
    x += width + 2;
  }
  at.tabs_height = y + Geometry::kTabLine;
}

void place_panel(const Session& session, const ViewState& state, Geometry& at) {
  constexpr double kNarrow = 600;
  const double legend_below = session.compares() ? 220 : 190;
  at.narrow = state.width < kNarrow;
  place_tabs(session, state, at);
  const bool table = state.table != TableKind::None;
  const double beside = std::round(state.width * (table ? 0.58 : 0.46));
  const TabSpot& last = at.tabs.back();
  const double below_tabs = last.x + last.width > beside ? at.tabs_height : 0;
  if (session.compares()) at.panel_height += 30;  // two bars
  if (table) at.panel_height = std::max(at.panel_height, std::min(340.0, state.height * 0.36));
  at.panel_height += at.narrow ? legend_below : below_tabs;
  at.panel_y = std::max(at.top + 60.0, state.height - at.panel_height);
  at.panel_middle = at.narrow ? state.width : beside;
  at.legend_x = at.narrow ? kPanelSide : beside;
  at.legend_y = at.panel_y + 20 + (at.narrow ? at.panel_height - legend_below : below_tabs);
  if (!table) return;
  at.table_x = kPanelSide;
  at.table_y = at.panel_y + at.tabs_height + 4;
  at.table_width = at.panel_middle - kPanelSide - 16;
  if (state.table == TableKind::Causes && session.waterfall()) {
    constexpr std::size_t kMostNotes = 3;
    at.note_lines = static_cast<std::int32_t>(std::min(
        kMostNotes, wrapped(session.waterfall()->title, TextSize::Small, at.table_width).size()));
  }
  // A note stands below.
  at.table_bottom = at.narrow ? at.legend_y - 20 : state.height;
  at.table_height = at.table_bottom - at.table_y - 6 - Geometry::kNoteLine * at.note_lines;
}

}  // namespace

std::string_view field_name(Field field) {
  constexpr std::array<std::string_view, kNumFields> kNames{
      "", "search", "kinds", "ranks", "chunks", "micro-batches", "longer than"};
  return kNames[static_cast<std::size_t>(field)];
}
double field_name_width(Field field) {
  return text_width(field_name(field), TextSize::Small) + 8.0;
}

bool is_folded_class(const Session& session, const ViewState& state, std::int32_t document,
                     std::int32_t row) {
  const std::size_t number = session.class_number(document, row);
  return number < state.classes_folded.size() && state.classes_folded[number] != 0;
}

namespace {

// Maps of all traces, one below the other; a filter of ranks chooses from the first to the last of
// them.
void place_heats(const Session& session, const ViewState& state, Geometry& at) {
  constexpr double kTopGap = -1, kBetween = 22, kMostBand = 40;  // heads stand beside the ticks
  const auto count = static_cast<double>(session.documents().size());
  const double room =
      std::max(40.0, (at.bottom - at.top - kTopGap - 4 - (count - 1) * kBetween) / count);
  double y = at.top + kTopGap;
  for (std::int32_t d = 0; d < static_cast<std::int32_t>(session.documents().size()); ++d) {
    const HeatSource& source = session.at(d).heat();
    RankRange all{0, source.ranks()};
    if (!state.filter.of(FilterPart::Ranks).empty()) {
      const std::vector<std::uint8_t> kept = kept_rows(source.trace(), state.filter);
      const auto first = std::ranges::find(kept, 1) - kept.begin();
      const auto last = kept.rend() - std::find(kept.rbegin(), kept.rend(), 1);
      if (first < last)
        all = source.ranks_of(static_cast<std::int32_t>(first), static_cast<std::int32_t>(last));
    }
    const auto ranks = static_cast<double>(all.last - all.first);
    HeatSpot spot{.document = d, .y = y};
    spot.ranks.first = std::min(
        all.first + static_cast<std::int64_t>(std::floor(state.heat_first * ranks)), all.last - 1);
    spot.ranks.last =
        std::clamp(all.first + static_cast<std::int64_t>(std::ceil(state.heat_last * ranks)),
                   spot.ranks.first + 1, all.last);
    spot.bands = static_cast<std::int32_t>(std::min<std::int64_t>(
        heat_bands(room, state.scale()), spot.ranks.last - spot.ranks.first));
    // Bands of whole pixels: no seams between them.
    const double band = std::min(kMostBand, room / spot.bands) * state.scale();
    spot.height = std::max(1.0, std::floor(band)) / state.scale() * spot.bands;
    at.heats.push_back(spot);
    y += room + kBetween;
  }
}

// Some class has one row alone: but for ranks that are asked for by their numbers.
bool folds_classes(const ViewState& state) {
  return state.filter.of(FilterPart::Ranks).empty() &&
         std::ranges::find(state.classes_folded, 1) != state.classes_folded.end();
}

// Per row of a document: 1 where it is shown.
std::vector<std::uint8_t> shown_rows(const Session& session, const ViewState& state,
                                     std::int32_t document) {
  std::vector<std::uint8_t> shown = kept_rows(session.at(document).trace(), state.filter);
  if (!folds_classes(state)) return shown;
  const RankClasses& classes = session.classes(document);
  for (std::int32_t row = 0; row < static_cast<std::int32_t>(shown.size()); ++row) {
    if (is_folded_class(session, state, document, row) && classes.slowest(row) != row)
      shown[static_cast<std::size_t>(row)] = 0;
  }
  return shown;
}

// Rows from above; where some classes are folded, class by class.
std::vector<std::int32_t> row_order(const Session& session, std::int32_t document, bool folds) {
  std::vector<std::int32_t> rows(session.at(document).trace().rows.size());
  std::iota(rows.begin(), rows.end(), 0);
  if (!folds) return rows;
  const RankClasses& classes = session.classes(document);
  std::ranges::stable_sort(rows, {}, [&](std::int32_t row) { return classes.first(row); });
  return rows;
}

}  // namespace

Geometry geometry(const Session& session, const ViewState& state) {
  Geometry at;
  const bool folds = folds_classes(state);
  if (folds || state.heats) at.left = kLeftWithClasses;
  if (state.links && !state.heats) at.left = kLeftWithLinks;
  place_fields(state, at);
  place_panel(session, state, at);
  if (at.narrow) at.left = std::min(at.left, std::max(90.0, std::round(state.width * 0.25)));
  at.width = std::max(100.0, state.width - at.left - at.right);
  at.bottom = at.panel_y;
  at.pin_bottom = at.top;
  if (state.heats) {
    place_heats(session, state, at);
    return at;
  }
  std::vector<std::vector<std::uint8_t>> shown;  // per document and row
  for (std::int32_t d = 0; d < static_cast<std::int32_t>(session.documents().size()); ++d)
    shown.push_back(shown_rows(session, state, d));

  // What is asked for beside the compute lanes decides how much is left for them.
  double computes = 0, streams = 0, memories = 0, links = 0, lags = 0, gaps = 0;  // how many; [px]
  std::size_t flat = 0;
  const std::int32_t first_rows = session.at(0).trace().num_rows();
  const auto is_folded = [&](std::size_t index) {
    return index < state.folded.size() && state.folded[index] != 0;
  };
  const auto each_stream = [&](const Document& document, std::int32_t row, std::size_t index,
                               auto visit) {
    const Trace& trace = document.trace();
    if (!state.streams || is_folded(index)) return;
    for (std::int32_t slot = 1; slot < trace.slots; ++slot) {
      const std::int32_t lane = row * trace.slots + slot;
      if (document.index().lane(lane).items.count > 0) visit(lane);
    }
  };
  const auto has_memory = [&](const Document& document, std::size_t index) {
    return state.memory && !is_folded(index) && !document.trace().memory_time.empty();
  };
  const bool has_lags = state.lags && session.compares() && session.corresponds();
  for (std::size_t d = 0; d < session.documents().size(); ++d) {
    const Document& document = session.documents()[d];
    for (std::int32_t row = 0; row < document.trace().num_rows(); ++row, ++flat) {
      if (shown[d][static_cast<std::size_t>(row)] == 0) continue;
      computes += 1;
      gaps += kGap;
      each_stream(document, row, flat, [&](std::int32_t) { streams += 1; });
      memories += has_memory(document, flat) ? 1 : 0;
      lags += has_lags && d == 1 ? 1 : 0;
    }
    if (state.links) links += static_cast<double>(link_lines(document));
    gaps += session.compares() && !session.corresponds() ? kBlockGap : 0;
  }
  gaps += streams + 2 * memories + lags;
  // All grow alike from the least that can be read to the most that helps.
  const double least = computes * kLane.least + streams * kStream.least + memories * kMemory.least +
                       links * kLink.least + lags * kLag.least,
               most = computes * kLane.most + streams * kStream.most + memories * kMemory.most +
                      links * kLink.most + lags * kLag.most;
  const double room = at.bottom - at.top - 6 - gaps;
  const double share = most > least ? std::clamp((room - least) / (most - least), 0.0, 1.0) : 0;
  const auto height_of = [share](const Heights& of) {
    return std::floor(of.least + share * (of.most - of.least));
  };
  const double height = height_of(kLane), stream_height = height_of(kStream);
  at.lane_height = height;
  at.memory_height = height_of(kMemory);
  at.link_height = height_of(kLink);
  at.lag_height = height_of(kLag);

  // Two traces whose ops correspond interleave: predicted over measured, rank by rank, and below
  // them how far the second is behind. Others follow one another.
  double y = at.top + 4;
  const auto place = [&](std::int32_t d, std::int32_t row, bool pinned, double gap) {
    const Document& document = session.at(d);
    const auto index = static_cast<std::size_t>(row + (d == 1 ? first_rows : 0));
    const double begin = y;
    const Trace& trace = document.trace();
    if (trace.slots > 0) at.lanes.push_back({d, row, row * trace.slots, y, height, pinned});
    y += height;
    each_stream(document, row, index, [&](std::int32_t lane) {
      y += 1;
      at.lanes.push_back({d, row, lane, y, stream_height, pinned});
      y += stream_height;
    });
    RowSpot spot{.document = d, .row = row, .y = begin, .pinned = pinned};
    if (folds && is_folded_class(session, state, d, row) && session.classes(d).slowest(row) == row)
      spot.of_class = session.classes(d).ranks(row);
    if (has_memory(document, index)) {
      spot.memory_y = y + 2;
      y += at.memory_height + 2;
    }
    if (has_lags && d == 1) {
      spot.lag_y = y + 1;
      y += at.lag_height + 1;
    }
    spot.height = y - begin;
    at.rows.push_back(spot);
    y += gap;
  };
  const auto place_row = [&](std::int32_t d, std::int32_t row, double gap) {
    const bool pinned = std::ranges::find(state.pinned, PinnedRow{d, row}) != state.pinned.end();
    if (!pinned && shown[static_cast<std::size_t>(d)][static_cast<std::size_t>(row)] != 0)
      place(d, row, false, gap);
  };
  for (const PinnedRow& one : state.pinned) place(one.document, one.row, true, kGap);
  at.pin_bottom = state.pinned.empty() ? at.top : std::min(y + 1, at.bottom - 40);
  y = at.pin_bottom + 4 - state.scroll;
  const auto place_links = [&](std::int32_t d) {
    if (!state.links) return;
    const Document& document = session.at(d);
    const auto add = [&](std::int32_t link) {
      at.links.push_back({d, link, y});
      y += at.link_height;
    };
    for (const std::int32_t link : document.loaded_links()) add(link);
    if (link_lines(document) > document.loaded_links().size()) add(-1);
  };
  if (session.compares() && session.corresponds()) {
    for (const std::int32_t row : row_order(session, 0, folds)) {
      place_row(0, row, 1);
      place_row(1, row, 2 * kGap);
    }
    place_links(0);
    place_links(1);
  } else {
    for (std::int32_t d = 0; d < static_cast<std::int32_t>(session.documents().size()); ++d) {
      for (const std::int32_t row : row_order(session, d, folds)) place_row(d, row, kGap);
      place_links(d);
      y += session.compares() ? kBlockGap : 0;
    }
  }
  at.content_height = y + state.scroll - at.pin_bottom;
  return at;
}

Hit hit(const Session& session, const ViewState& state, const Geometry& at, double x, double y) {
  Hit found;
  if (!at.over_lanes(x, y)) return found;
  for (const LaneSpot& lane : at.lanes) {
    if (y < lane.y || y >= lane.y + lane.height || !at.in_band(lane.pinned, y)) continue;
    const Document& document = session.at(lane.document);
    const std::int64_t time = session.origin(lane.document, state.alignment) +
                              std::llround(std::floor(at.time_at(state, x)));
    found.lane = &lane;
    found.op = {lane.document, op_at(document.index(), lane.lane, time)};
    if (!found.op && lane.lane % document.trace().slots == 0) {
      found.idle = idle_at(document.index(), lane.row, time);
    }
    return found;
  }
  for (const RowSpot& row : at.rows) {
    if (row.memory_y >= 0 && y >= row.memory_y && y < row.memory_y + at.memory_height &&
        at.in_band(row.pinned, y))
      found.memory = &row;
    if (row.lag_y >= 0 && y >= row.lag_y && y < row.lag_y + at.lag_height &&
        at.in_band(row.pinned, y))
      found.lag = &row;
  }
  for (const HeatSpot& spot : at.heats) {
    if (y >= spot.y && y < spot.y + spot.height) found.heat = &spot;
  }
  for (const LinkSpot& link : at.links) {
    if (link.link >= 0 && at.in_band(false, y) && y >= link.y && y < link.y + at.link_height)
      found.link = &link;
  }
  return found;
}

}  // namespace rehearse::viz
