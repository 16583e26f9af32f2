// SPDX-License-Identifier: Apache-2.0
// Ranks over time as heat maps, in the place of the lanes, and what their colours mean.
#include <algorithm>
#include <cmath>

#include "viz/analysis/units_text.h"
#include "viz/picture/ranks/heat_map.h"
#include "viz/window/heat_view.h"
#include "viz/window/view/context.h"

namespace rehearse::viz {
namespace {

bool is_drawn(const SceneCache::Heat& heat, const View& view, HeatOf of, const HeatSpot& spot,
              Theme theme) {
  return heat.of == of && heat.theme == theme && heat.view.begin == view.begin &&
         heat.view.end == view.end && heat.view.width_px == view.width_px &&
         heat.spot.y == spot.y && heat.spot.height == spot.height &&
         heat.spot.bands == spot.bands && heat.spot.ranks.first == spot.ranks.first &&
         heat.spot.ranks.last == spot.ranks.last;
}

HeatPlace place_of(const ViewContext& c, const HeatSpot& spot) {
  return {.x = c.at.left, .y = spot.y, .height = spot.height};
}

const SceneCache::Heat& heat_of_spot(const ViewContext& c, const HeatSpot& spot,
                                     SceneCache& cache) {
  const std::int32_t d = spot.document;
  cache.heats.resize(c.session.documents().size());
  SceneCache::Heat& heat = cache.heats[static_cast<std::size_t>(d)];
  const View view = heat_time(c.session, c.state, c.at, d);
  const HeatOf of = heat_shown(c.session, c.state, d);
  if (is_drawn(heat, view, of, spot, c.theme)) return heat;
  heat = {.view = view, .of = of, .spot = spot, .theme = c.theme, .table = {}, .picture = {}};
  const std::vector<std::int64_t> edges =
      heat_edges(c.session, view, d, spot.ranks.last - spot.ranks.first);
  if (edges.empty()) return heat;  // the step is out of sight
  heat.table = c.session.at(d).heat().table(of, edges, spot.bands, spot.ranks);
  heat.picture.clip_x = c.at.left;
  heat.picture.clip_y = spot.y;
  heat.picture.clip_width = c.at.width + kHeatWorstGap + kHeatWorst;
  heat.picture.clip_height = spot.height;
  paint_heat(heat.table, of, view, place_of(c, spot), c.theme, heat.picture);
  return heat;
}

// Where the selected op is.
void mark_selected(const ViewContext& c, const HeatSpot& spot, Scene& layer) {
  if (!c.state.selected || c.state.selected.document != spot.document) return;
  const Document& document = c.session.at(spot.document);
  const Trace& trace = document.trace();
  const std::size_t op = c.state.selected.op.index();
  const std::int32_t row = trace.row_of(c.state.selected.op).value;
  const RankRange ranks = document.heat().ranks_of(row, row + 1);
  const auto count = static_cast<double>(spot.ranks.last - spot.ranks.first);
  const auto y_of = [&](std::int64_t rank) {
    return spot.y + spot.height *
                        static_cast<double>(std::clamp(rank, spot.ranks.first, spot.ranks.last) -
                                            spot.ranks.first) /
                        count;
  };
  const double y = y_of(ranks.first), bottom = y_of(ranks.last);
  if (bottom <= y) return;
  const double x = c.x_of(c.since(spot.document, trace.start_ns[op])),
               end = c.x_of(c.since(spot.document, trace.end_ns[op]));
  layer.rects.push_back({.x = x - 1,
                         .y = y - 1,
                         .width = std::max(5.0, end - x + 2),
                         .height = std::max(5.0, bottom - y + 2),
                         .fill = c.colors.text,
                         .alpha = 0,
                         .outlined = true,
                         .outline = c.colors.accent});
}

std::string words_of_heat(HeatOf of) {
  if (of == kHeatIdle) return "Idle time of ranks";
  if (of == kHeatExcess) return "Time beyond the median of the ranks that do the same";
  return "Idle time of ranks: " + std::string(heat_name(of));
}

}  // namespace

void draw_heats(const ViewContext& c, Scene& scene, SceneCache& cache) {
  for (const HeatSpot& spot : c.at.heats) {
    const SceneCache::Heat& heat = heat_of_spot(c, spot, cache);
    if (heat.table.bands.empty()) continue;
    scene.layers.push_back(heat.picture);
    Scene names;
    name_bands(c.session.at(spot.document).heat(), heat.table, heat.view, place_of(c, spot),
               c.state.width - 12.0, c.theme, names);
    if (c.session.compares()) {
      add_text(names, 10, spot.y - 4, c.name_of(spot.document), TextSize::Small,
               c.colors.faint_text);
    }
    scene.layers.push_back(std::move(names));
    Scene marks;
    marks.clip_x = c.at.left;
    marks.clip_y = spot.y - 1;
    marks.clip_width = c.at.width;
    marks.clip_height = spot.height + 2;
    mark_selected(c, spot, marks);
    scene.layers.push_back(std::move(marks));
  }
}

// REQUIRES: the maps were drawn.
void draw_heat_legend(const ViewContext& c, double left, double y, Scene& scene,
                      SceneCache& cache) {
  const double width = c.state.width - left - 12;
  add_text(scene, c.state.width - 12, y, "Shift + Y: the next", TextSize::Small,
           c.colors.faint_text, Anchor::End);
  bool several = false;
  HeatOf shown = kHeatIdle;
  for (const HeatSpot& spot : c.at.heats) {
    const SceneCache::Heat& heat = heat_of_spot(c, spot, cache);
    if (heat.table.bands.empty()) continue;
    const HeatTotals totals = heat_totals(heat.table);
    const bool excess = heat.of == kHeatExcess;
    const auto share = [&](double of) { return (excess && of > 0 ? "+" : "") + percent_text(of); };
    const Trace& trace = c.session.at(spot.document).trace();
    if (&spot == &c.at.heats.front()) {
      shown = heat.of;
      add_text(scene, left, y, clipped(words_of_heat(shown), TextSize::Normal, width - 130),
               TextSize::Normal, c.colors.text);
    }
    std::string line = (c.session.compares() ? c.name_of(spot.document) + ": " : std::string()) +
                       share(totals.mean) + " of the time in view of " +
                       std::to_string(static_cast<std::int64_t>(totals.ranks)) +
                       (totals.ranks == 1 ? " rank" : " ranks");
    if (totals.ranks > 1)
      line += ", most " + share(totals.worst) + " (" + row_name(trace, {totals.worst_row}) + ")";
    y += 18;
    add_text(scene, left, y, clipped(line, TextSize::Small, width), TextSize::Small, c.colors.text);
    several = several || holds_several(heat.table);
  }
  y += 26;
  heat_colors(shown, left + (c.at.narrow ? 12 : 0), y, c.theme, scene);  // its marks are centred
  y += 32;
  for (const std::string& line : wrapped(heat_words(several), TextSize::Small, width)) {
    add_text(scene, left, y, line, TextSize::Small, c.colors.faint_text);
    y += 15;
  }
}

}  // namespace rehearse::viz
