// SPDX-License-Identifier: Apache-2.0
#include "viz/picture/scene.h"

#include <utility>

namespace rehearse::viz {

Scene moved(Scene scene, double x, double y) {
  for (auto* rects : {&scene.plates, &scene.rects}) {
    for (Rect& rect : *rects) {
      rect.x += x;
      rect.y += y;
    }
  }
  for (Strip& strip : scene.strips) {
    strip.x += x;
    strip.y += y;
  }
  for (Line& line : scene.lines) {
    line.x1 += x;
    line.x2 += x;
    line.y1 += y;
    line.y2 += y;
  }
  for (Text& text : scene.texts) {
    text.x += x;
    text.y += y;
  }
  for (Area& area : scene.areas) {
    for (float& at : area.x) at += static_cast<float>(x);
    for (float& at : area.y) at += static_cast<float>(y);
    area.end += static_cast<float>(x);
    area.base += static_cast<float>(y);
  }
  scene.clip_x += x;
  scene.clip_y += y;
  for (Scene& layer : scene.layers) layer = moved(std::move(layer), x, y);
  return scene;
}

}  // namespace rehearse::viz
