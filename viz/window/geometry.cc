// SPDX-License-Identifier: Apache-2.0
#include "viz/window/geometry.h"

#include <algorithm>
#include <cmath>

namespace rehearse::viz {
namespace {

// Of a line of the picture, by what is left for it [px].
struct Heights {
  double least = 0, most = 0;
};
constexpr Heights kLane{11, 72}, kStream{11, 16}, kMemory{34, 120}, kLink{16, 30};
constexpr double kGap = 3, kBlockGap = 18;
constexpr double kLeftWithLinks = 232;  // their names are long [px]

// A lane for each link that carries something, and a line for all that do not.
std::size_t link_lines(const Document& document) {
  const std::size_t loaded = document.loaded_links().size();
  return loaded + (loaded < document.trace().links.size() ? 1 : 0);
}

}  // namespace

Geometry geometry(const Session& session, const ViewState& state) {
  Geometry at;
  if (state.links) at.left = kLeftWithLinks;
  at.width = std::max(100.0, state.width - at.left - at.right);
  if (session.compares()) at.panel_height += 30;  // two bars
  at.panel_y = std::max(at.top + 60.0, state.height - at.panel_height);
  at.bottom = at.panel_y;

  // What is asked for beside the compute lanes decides how much is left for them.
  double computes = 0, streams = 0, memories = 0, links = 0, gaps = 0;  // how many; [px]
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
  double y = at.top + 4 - state.scroll;
  const auto place = [&](std::int32_t d, std::int32_t row, std::size_t index, bool last_of_pair) {
    const Document& document = session.at(d);
    const double begin = y;
    const Trace& trace = document.trace();
    if (trace.slots > 0) at.lanes.push_back({d, row, row * trace.slots, y, height});
    y += height;
    for (const std::int32_t lane : streams_of(document, row, index)) {
      y += 1;
      at.lanes.push_back({d, row, lane, y, stream_height});
      y += stream_height;
    }
    RowSpot spot{.document = d, .row = row, .y = begin};
    if (has_memory(document, index)) {
      spot.memory_y = y + 2;
      y += at.memory_height + 2;
    }
    spot.height = y - begin;
    at.rows.push_back(spot);
    y += last_of_pair ? kGap : 1;
  };
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
    if (row.memory_y >= 0 && y >= row.memory_y && y < row.memory_y + at.memory_height)
      found.memory = &row;
  }
  for (const LinkSpot& link : at.links) {
    if (link.link >= 0 && y >= link.y && y < link.y + at.link_height) found.link = &link;
  }
  return found;
}

}  // namespace rehearse::viz
