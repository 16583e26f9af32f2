// SPDX-License-Identifier: Apache-2.0
// Where everything of the window is, from its state alone: drawing and the mouse ask the same.
#pragma once

#include <vector>

#include "viz/window/session.h"

namespace rehearse::viz {

struct LaneSpot {
  std::int32_t document = 0, row = 0, lane = 0;
  double y = 0, height = 0;  // on screen, scrolled [px]
};
struct RowSpot {
  std::int32_t document = 0, row = 0;
  double y = 0, height = 0;  // all of it
  double memory_y = -1;      // its memory curve; -1: none
};
struct LinkSpot {
  std::int32_t document = 0;
  std::int32_t link = 0;  // -1: the line that counts those without load
  double y = 0;
};

struct Geometry {
  double minimap_y = 30, minimap_height = 34;
  double axis_y = 64;
  double left = 150, right = 70;  // of the lanes
  double top = 86, bottom = 0;    // of the lanes
  double width = 0;               // of the time axis
  double panel_y = 0, panel_height = 176;
  double memory_height = 0, link_height = 0;
  double content_height = 0;  // of all lanes, to scroll
  std::vector<RowSpot> rows;
  std::vector<LaneSpot> lanes;
  std::vector<LinkSpot> links;

  double x_of(const ViewState& state, double time) const {
    return left + (time - state.begin) / (state.end - state.begin) * width;
  }
  double time_at(const ViewState& state, double x) const {
    return state.begin + (x - left) / width * (state.end - state.begin);
  }
  bool over_lanes(double x, double y) const {
    return x >= left && x < left + width && y >= top && y < bottom;
  }
};

Geometry geometry(const Session& session, const ViewState& state);

// What is under the mouse: a lane, and the op or the idle span there; or a curve.
struct Hit {
  const LaneSpot* lane = nullptr;   // into the geometry
  const RowSpot* memory = nullptr;  // likewise
  const LinkSpot* link = nullptr;
  OpRef op;
  std::int32_t idle = -1;  // index into Trace::idle
};
Hit hit(const Session& session, const ViewState& state, const Geometry& at, double x, double y);

}  // namespace rehearse::viz
