// SPDX-License-Identifier: Apache-2.0
#include "viz/window/geometry.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "viz/picture/font.h"
#include "viz/picture/layout.h"
#include "viz/window/state/table.h"

namespace rehearse::viz {
namespace {

// Of a line of the picture, by what is left for it [px].
struct Heights {
  double least = 0, most = 0;
};
constexpr Heights kLane{11, 110}, kStream{11, 18}, kMemory{34, 130}, kLink{16, 30};
constexpr double kGap = 3, kBlockGap = 18;
constexpr double kLeftWithLinks = 232;  // their names are long [px]

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

void place_panel(const Session& session, const ViewState& state, Geometry& at) {
  if (session.compares()) at.panel_height += 30;  // two bars
  const bool table = state.table != TableKind::None;
  if (table) at.panel_height = std::max(at.panel_height, std::min(340.0, state.height * 0.36));
  at.panel_y = std::max(at.top + 60.0, state.height - at.panel_height);
  at.panel_middle = std::round(state.width * (table ? 0.58 : 0.46));
  constexpr double kPad = 9, kSide = 12;
  double x = kSide;
  for (std::size_t i = 0; i < kNumTables; ++i) {
    const double width = text_width(kTableNames[i], TextSize::Small) + 2 * kPad;
    at.tabs.push_back({static_cast<TableKind>(i), x, width});
    x += width + 2;
  }
  if (!table) return;
  at.table_x = kSide;
  at.table_y = at.panel_y + at.tabs_height + 4;
  at.table_width = at.panel_middle - kSide - 16;
  at.table_height = state.height - at.table_y - 20;  // a note stands below
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

Geometry geometry(const Session& session, const ViewState& state) {
  Geometry at;
  if (state.links) at.left = kLeftWithLinks;
  at.width = std::max(100.0, state.width - at.left - at.right);
  place_fields(state, at);
  place_panel(session, state, at);
  at.bottom = at.panel_y;
  std::vector<std::vector<std::uint8_t>> shown;  // per document and row
  for (const Document& document : session.documents())
    shown.push_back(kept_rows(document.trace(), state.filter));

  // What is asked for beside the compute lanes decides how much is left for them.
  double computes = 0, streams = 0, memories = 0, links = 0, gaps = 0;  // how many; [px]
  std::size_t flat = 0;
  const std::int32_t first_rows = session.at(0).trace().num_rows();
  const auto streams_of = [&](const Document& document, std::int32_t row, std::size_t index) {
    std::vector<std::int32_t> lanes;
    const Trace& trace = document.trace();
    if (!state.streams || (index < state.folded.size() && state.folded[index] != 0)) return lanes;
    for (std::int32_t slot = 1; slot < trace.slots; ++slot) {
      const std::int32_t lane = row * trace.slots + slot;
      if (document.index().lane(lane).items.count > 0) lanes.push_back(lane);
    }
    return lanes;
  };
  const auto has_memory = [&](const Document& document, std::size_t index) {
    const bool folded = index < state.folded.size() && state.folded[index] != 0;
    return state.memory && !folded && !document.trace().memory_time.empty();
  };
  for (std::size_t d = 0; d < session.documents().size(); ++d) {
    const Document& document = session.documents()[d];
    for (std::int32_t row = 0; row < document.trace().num_rows(); ++row, ++flat) {
      if (shown[d][static_cast<std::size_t>(row)] == 0) continue;
      computes += 1;
      gaps += kGap;
      streams += static_cast<double>(streams_of(document, row, flat).size());
      memories += has_memory(document, flat) ? 1 : 0;
    }
    if (state.links) links += static_cast<double>(link_lines(document));
    gaps += session.compares() ? kBlockGap : 0;
  }
  gaps += streams + 2 * memories;
  // All grow alike from the least that can be read to the most that helps.
  const double least = computes * kLane.least + streams * kStream.least + memories * kMemory.least +
                       links * kLink.least,
               most = computes * kLane.most + streams * kStream.most + memories * kMemory.most +
                      links * kLink.most;
  const double room = at.bottom - at.top - 6 - gaps;
  const double share = most > least ? std::clamp((room - least) / (most - least), 0.0, 1.0) : 0;
  const auto height_of = [share](const Heights& of) {
    return std::floor(of.least + share * (of.most - of.least));
  };
  const double height = height_of(kLane), stream_height = height_of(kStream);
  at.memory_height = height_of(kMemory);
  at.link_height = height_of(kLink);

  // Two traces whose ops correspond interleave: predicted over measured, rank by rank. Others
  // follow one another.
  double y = at.top + 4;
  const auto place = [&](std::int32_t d, std::int32_t row, bool pinned, double gap) {
    const Document& document = session.at(d);
    const auto index = static_cast<std::size_t>(row + (d == 1 ? first_rows : 0));
    const double begin = y;
    const Trace& trace = document.trace();
    if (trace.slots > 0) at.lanes.push_back({d, row, row * trace.slots, y, height, pinned});
    y += height;
    for (const std::int32_t lane : streams_of(document, row, index)) {
      y += 1;
      at.lanes.push_back({d, row, lane, y, stream_height, pinned});
      y += stream_height;
    }
    RowSpot spot{.document = d, .row = row, .y = begin, .pinned = pinned};
    if (has_memory(document, index)) {
      spot.memory_y = y + 2;
      y += at.memory_height + 2;
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
    for (std::int32_t row = 0; row < first_rows; ++row) {
      place_row(0, row, 1);
      place_row(1, row, 2 * kGap);
    }
    place_links(0);
    place_links(1);
  } else {
    for (std::int32_t d = 0; d < static_cast<std::int32_t>(session.documents().size()); ++d) {
      for (std::int32_t row = 0; row < session.at(d).trace().num_rows(); ++row)
        place_row(d, row, kGap);
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
    const std::int64_t time =
        document.trace().begin.value + std::llround(std::floor(at.time_at(state, x)));
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
  }
  for (const LinkSpot& link : at.links) {
    if (link.link >= 0 && at.in_band(false, y) && y >= link.y && y < link.y + at.link_height)
      found.link = &link;
  }
  return found;
}

}  // namespace rehearse::viz
