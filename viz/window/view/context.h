// SPDX-License-Identifier: Apache-2.0
// What every part of the window's picture needs: the session, its state, and where things are.
// Internal to viz/window.
#pragma once

#include <array>
#include <cmath>
#include <span>
#include <string>
#include <utility>

#include "viz/picture/scene.h"
#include "viz/window/geometry.h"
#include "viz/window/view/scene.h"

namespace rehearse::viz {

struct ViewContext {
  ViewContext(const Session& of, const ViewState& shown);

  const Session& session;
  const ViewState& state;
  Geometry at;
  Theme theme;
  const Palette& colors;

  double x_of(double time) const { return at.x_of(state, time); }
  // What colours stand for in a trace: the difference is seen in the second one alone.
  ColorBy color_by(std::int32_t document) const {
    return state.color_by == ColorBy::Difference && document == 0 ? ColorBy::Kinds : state.color_by;
  }
  // By these colours and the filter.
  const TraceIndex& index(std::int32_t document) const {
    return session.at(document).index(color_by(document), state.filter);
  }
  const Coloring& coloring(std::int32_t document) const {
    return session.at(document).coloring(color_by(document), state.filter);
  }
  std::array<std::int64_t, 2> origins{};  // of each trace's own times that which is 0 on the axis
  // On the axis, of a trace's own time.
  double since(std::int32_t document, std::int64_t time) const {
    return static_cast<double>(time - origins[static_cast<std::size_t>(document)]);
  }
  // The trace's own time of one on the axis.
  std::int64_t at_ns(std::int32_t document, double time) const {
    return origins[static_cast<std::size_t>(document)] +
           static_cast<std::int64_t>(std::llround(time));
  }
  std::string name_of(std::int32_t document) const { return session.name_of(document); }
  std::int64_t lag_scale() const;  // of every rank's lane of differences, up and down [ns]
  // What is added to every lag where other things than the steps begin together.
  std::int64_t lag_shift() const { return session.at(1).trace().begin.value - origins[1]; }
  // The measured range, or what is in view of the step.
  std::pair<double, double> shown_range() const;
  // Rows [first, last) of a document within times since the step's begin; last -1: all rows.
  Summary summary_of(std::int32_t document, double begin, double end, std::int32_t first = 0,
                     std::int32_t last = -1) const;
  // The same by an index of one of the documents.
  Summary summary_by(const TraceIndex& index, double begin, double end, std::int32_t first = 0,
                     std::int32_t last = -1) const;
};

void add_text(Scene& to, double x, double y, std::string what, TextSize size, Color color,
              Anchor anchor = Anchor::Begin);

struct Fact;
// Facts in a box beside the mouse.
void draw_facts(const ViewContext& c, Scene& layer, std::span<const Fact> facts);

// The parts, each added to `scene`.
void draw_bar(const ViewContext& c, Scene& scene);  // title, step time, live bubble ratio
// Heat maps of ranks, in the place of lanes; and what their colours mean.
void draw_heats(const ViewContext& c, Scene& scene, SceneCache& cache);
void draw_heat_legend(const ViewContext& c, double left, double y, Scene& scene, SceneCache& cache);
void draw_minimap(const ViewContext& c, Scene& scene, SceneCache& cache);
// The selected op, or a table; where the time went.
void draw_panel(const ViewContext& c, Scene& scene, SceneCache& cache);
void draw_fields(const ViewContext& c, Scene& scene);  // the line that one types into
void draw_tabs(const ViewContext& c, Scene& scene);
// REQUIRES: a table is open.
void draw_table(const ViewContext& c, const Table& table, Scene& scene);
Scene top_layer(const ViewContext& c);  // tooltip, and the boxes below
// An empty box, and what stands in one above the lanes.
void draw_box(const ViewContext& c, Scene& layer, double x, double y, double width, double height);
void draw_inside(const ViewContext& c, Scene& layer);  // REQUIRES: an op is selected
// The heat map of a run's experts, with what the cell under the mouse is. REQUIRES: trace 0 has
// them.
void draw_expert_box(const ViewContext& c, Scene& layer);
void draw_memory_box(const ViewContext& c, Scene& layer);  // REQUIRES: a moment is chosen
void draw_help(const ViewContext& c, Scene& layer);

}  // namespace rehearse::viz
