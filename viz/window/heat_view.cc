// SPDX-License-Identifier: Apache-2.0
#include "viz/window/heat_view.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace rehearse::viz {

HeatOf heat_shown(const Session& session, const ViewState& state, std::int32_t document) {
  return session.at(document).heat().has(state.heat) ? state.heat : kHeatIdle;
}

View heat_time(const Session& session, const ViewState& state, const Geometry& at,
               std::int32_t document) {
  const std::int64_t origin = session.origin(document, state.alignment);
  const auto begin = origin + static_cast<std::int64_t>(std::floor(state.begin)),
             end = origin + static_cast<std::int64_t>(std::ceil(state.end));
  return {.begin = {begin},
          .end = {std::max(begin + 1, end)},
          .width_px = static_cast<std::int32_t>(at.width),
          .snap = true};
}

std::vector<std::int64_t> heat_edges(const Session& session, const View& view,
                                     std::int32_t document, std::int64_t ranks) {
  constexpr std::int64_t kMany = 2000;
  View columns = view;
  if (ranks > kMany) columns.width_px = std::max(1, view.width_px / 2);
  Frame frame;
  layout(session.at(document).index(), columns, {}, frame);
  const Trace& trace = session.at(document).trace();
  std::vector<std::int64_t> edges;
  for (const std::int64_t edge : frame.edges) {
    const std::int64_t within = std::clamp(edge, trace.begin.value, trace.end.value);
    if (edges.empty() || edges.back() < within) edges.push_back(within);
  }
  if (edges.size() < 2) edges.clear();
  return edges;
}

std::optional<HeatCell> heat_cell(const Session& session, const ViewState& state,
                                  const Geometry& at, const Hit& hit, double x, double y) {
  if (hit.heat == nullptr) return std::nullopt;
  const std::int32_t d = hit.heat->document;
  HeatCell cell{.document = d,
                .of = heat_shown(session, state, d),
                .ranks = hit.heat->band(hit.heat->band_at(y)),
                .time = session.origin(d, state.alignment) +
                        static_cast<std::int64_t>(std::floor(at.time_at(state, x)))};
  const std::vector<std::int64_t> edges = heat_edges(session, heat_time(session, state, at, d), d,
                                                     hit.heat->ranks.last - hit.heat->ranks.first);
  const auto after = std::ranges::upper_bound(edges, cell.time);
  if (after == edges.begin() || after == edges.end()) return std::nullopt;
  cell.begin = *(after - 1);
  cell.end = *after;
  const std::array column{cell.begin, cell.end};
  const HeatTable table = session.at(d).heat().table(cell.of, column, 1, cell.ranks);
  cell.mean = table.mean(0);
  cell.most = table.most(0);
  cell.worst_row = table.bands[0].worst_row;
  return cell;
}

}  // namespace rehearse::viz
