// SPDX-License-Identifier: Apache-2.0
// The window's picture: session + state -> scene. Pure; a back end only draws it.
#pragma once

#include "viz/picture/layout.h"
#include "viz/picture/scene.h"
#include "viz/window/geometry.h"
#include "viz/window/session.h"
#include "viz/window/state/table.h"

namespace rehearse::viz {

// What one frame may keep for the next of the same session: it changes the speed, never the
// picture.
struct SceneCache {
  double minimap_width = -1;  // of its time axis
  Theme minimap_theme{};
  ColorBy minimap_color_by{};
  double minimap_y = -1;
  Filter minimap_filter;
  Scene minimap;              // the whole step, without the view's frame
  double minimap_begin = 0;   // where its axis begins, as traces are aligned
  std::vector<Frame> frames;  // memory of the layouts
  // Of each document the heat map that was drawn last.
  struct Heat {
    View view;
    HeatOf of = kHeatIdle;
    HeatSpot spot;
    Theme theme{};
    HeatTable table;
    Scene picture;
  };
  std::vector<Heat> heats;
  TableCache table;
};

Scene view_scene(const Session& session, const ViewState& state);
Scene view_scene(const Session& session, const ViewState& state, SceneCache& cache);

}  // namespace rehearse::viz
