// SPDX-License-Identifier: Apache-2.0
// A number against the values of a key, with the band in which the truth is likely to lie.
#pragma once

#include <string>
#include <vector>

#include "viz/picture/scene.h"

namespace rehearse::viz {

struct CurvePoint {
  std::string label;                    // of the key's value
  double value = 0, low = 0, high = 0;  // low <= value <= high
  std::string reason;                   // not empty: there is no value, for this reason
};

struct Curve {
  std::string title, x_title, y_title;
  bool connected = true;           // neighbours are joined: false where labels have no order
  std::vector<CurvePoint> points;  // equally spaced
};

// The y axis begins at 0. Points without a value are marked at its foot, with their reasons below
// the axis. As wide as its labels need; title and reasons are broken into lines.
Scene curve_scene(const Curve& curve, Theme theme = Theme::Light);

}  // namespace rehearse::viz
