// SPDX-License-Identifier: Apache-2.0
// The heat map of a run's experts, above the lanes.
#include <algorithm>
#include <string>
#include <vector>

#include "viz/analysis/units_text.h"
#include "viz/picture/experts/expert_map.h"
#include "viz/window/describe.h"
#include "viz/window/view/context.h"

namespace rehearse::viz {
namespace {

std::vector<Fact> facts_of(const ExpertRows& rows, const ExpertGrid& grid, const ExpertCell& cell) {
  const std::int32_t each = rows.experts() / grid.parts(), first = cell.part * each;
  std::string experts = "expert " + std::to_string(first);
  if (each > 1) experts += " to " + std::to_string(first + each - 1);
  std::string steps = std::to_string(rows.step_number(cell.steps.first));
  if (cell.steps.last > cell.steps.first + 1) {
    steps += " to " + std::to_string(rows.step_number(cell.steps.last - 1));
  }
  std::vector<Fact> facts{
      {"layer " + std::to_string(rows.layer_number(cell.layer)), experts},
      {"step", steps},
      {"tokens", std::to_string(rows.rows(cell.steps, cell.layer, cell.part, grid.parts()))},
      {"over the mean",
       fixed_text(rows.over_mean(cell.steps, cell.layer, cell.part, grid.parts()), 2) + " ×"}};
  if (rows.ranks() > 1) {
    const std::int32_t rank = cell.part * rows.ranks() / grid.parts();
    facts.push_back({"on rank", std::to_string(rank) + " of " + std::to_string(rows.ranks())});
    facts.push_back(
        {"rank over the mean",
         fixed_text(rows.over_mean(cell.steps, cell.layer, rank, rows.ranks()), 2) + " ×"});
  }
  facts.push_back(
      {rows.ranks() > 1 ? "busiest rank" : "busiest expert",
       fixed_text(rows.busiest(cell.steps, cell.layer, rows.parts_that_wait()), 2) + " ×"});
  return facts;
}

}  // namespace

void draw_expert_box(const ViewContext& c, Scene& layer) {
  constexpr double kHead = 56, kSide = 14;
  const ExpertRows rows(c.session.at(0).trace());
  const double width = std::min(1240.0, c.state.width - 40.0);
  const double x = (c.state.width - width) / 2, y = c.at.top + 10;
  const double room = c.state.height - y - 10 - kHead - kExpertsBelow;
  const ExpertGrid grid(rows, x + kSide + kExpertsLeft, y + kHead,
                        width - 2 * kSide - kExpertsLeft - kExpertsRight, std::max(60.0, room));
  // In a layer of its own: the box is a rectangle, and strips are drawn before those.
  Scene map;
  const double bottom = draw_experts(rows, grid, c.theme, map);
  draw_box(c, layer, x, y, width, bottom - y);
  add_text(layer, x + kSide, y + 26,
           clipped("Tokens of every expert over the mean", TextSize::Title, width - 2 * kSide),
           TextSize::Title, c.colors.text);
  if (const auto cell = grid.at(c.state.mouse_x, c.state.mouse_y)) {
    map.layers.emplace_back();
    draw_facts(c, map.layers.back(), facts_of(rows, grid, *cell));
  }
  layer.layers.push_back(std::move(map));
}

}  // namespace rehearse::viz
