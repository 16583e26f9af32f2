// SPDX-License-Identifier: Apache-2.0
#include "viz/window/geometry.h"

#include <algorithm>
#include <cmath>

namespace rehearse::viz {
namespace {

constexpr double kStreamHeight = 9, kGap = 3, kBlockGap = 18;

}  // namespace

Geometry geometry(const Session& session, const ViewState& state) {
  Geometry at;
  at.width = std::max(100.0, state.width - at.left - at.right);
  if (session.compares()) at.panel_height += 30;  // two bars
  at.panel_y = std::max(at.top + 60.0, state.height - at.panel_height);
  at.bottom = at.panel_y;

  // What is asked for beside the compute lanes decides how much is left for them.
  std::int32_t compute_lanes = 0;
  double fixed = 0;
  std::size_t flat = 0;
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
  for (const Document& document : session.documents()) {
    for (std::int32_t row = 0; row < document.trace().num_rows(); ++row, ++flat) {
      ++compute_lanes;
      fixed +=
          kGap + (kStreamHeight + 1) * static_cast<double>(streams_of(document, row, flat).size());
      if (has_memory(document, flat)) fixed += kMemoryHeight + 2;
    }
    fixed += state.links ? kLinkHeight * static_cast<double>(document.trace().links.size()) : 0;
    fixed += session.compares() ? kBlockGap : 0;
  }
  const double room = at.bottom - at.top - 6;
  const double height =
      std::clamp(std::floor((room - fixed) / std::max(1, compute_lanes)), 11.0, 56.0);

  // Two traces whose ops correspond interleave: predicted over measured, rank by rank. Others
  // follow one another.
  double y = at.top + 4 - state.scroll;
  const auto place = [&](std::int32_t d, std::int32_t row, std::size_t index, bool last_of_pair) {
    const Document& document = session.at(d);
    const double begin = y;
    const Trace& trace = document.trace();
    if (trace.slots > 0) at.lanes.push_back({d, row, row * trace.slots, y, height});
    y += height;
    for (const std::int32_t lane : streams_of(document, row, index)) {
      y += 1;
      at.lanes.push_back({d, row, lane, y, kStreamHeight});
      y += kStreamHeight;
    }
    RowSpot spot{.document = d, .row = row, .y = begin};
    if (has_memory(document, index)) {
      spot.memory_y = y + 2;
      y += kMemoryHeight + 2;
    }
    spot.height = y - begin;
    at.rows.push_back(spot);
    y += last_of_pair ? kGap : 1;
  };
  const auto place_links = [&](std::int32_t d) {
    if (!state.links) return;
    for (std::int32_t link = 0;
         link < static_cast<std::int32_t>(session.at(d).trace().links.size()); ++link) {
      at.links.push_back({d, link, y});
      y += kLinkHeight;
    }
  };
  const std::int32_t rows = session.at(0).trace().num_rows();
  if (session.compares() && session.corresponds()) {
    for (std::int32_t row = 0; row < rows; ++row) {
      place(0, row, static_cast<std::size_t>(row), false);
      place(1, row, static_cast<std::size_t>(rows + row), true);
      y += kGap;
    }
    place_links(0);
    place_links(1);
  } else {
    std::size_t index = 0;
    for (std::int32_t d = 0; d < static_cast<std::int32_t>(session.documents().size()); ++d) {
      for (std::int32_t row = 0; row < session.at(d).trace().num_rows(); ++row)
        place(d, row, index++, true);
      place_links(d);
      y += session.compares() ? kBlockGap : 0;
    }
  }
  at.content_height = y + state.scroll - at.top;
  return at;
}

Hit hit(const Session& session, const ViewState& state, const Geometry& at, double x, double y) {
  Hit found;
  if (!at.over_lanes(x, y)) return found;
  for (const LaneSpot& lane : at.lanes) {
    if (y < lane.y || y >= lane.y + lane.height) continue;
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
    if (row.memory_y >= 0 && y >= row.memory_y && y < row.memory_y + kMemoryHeight)
      found.memory = &row;
  }
  for (const LinkSpot& link : at.links) {
    if (y >= link.y && y < link.y + kLinkHeight) found.link = &link;
  }
  return found;
}

}  // namespace rehearse::viz
