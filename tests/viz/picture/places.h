// SPDX-License-Identifier: Apache-2.0
// Where the texts of a picture are: faults that a person sees at once, and a hash does not.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "viz/picture/scene.h"

namespace rehearse::viz::fixture {

struct PlacedText {
  std::string text;
  double left = 0, top = 0, right = 0, bottom = 0;
};

// The letters' bodies, without what rises or hangs below most of them.
inline PlacedText placed(const Text& text) {
  const double width = text_width(text.text, text.size);
  const double left = text.anchor == Anchor::Begin    ? text.x
                      : text.anchor == Anchor::Middle ? text.x - width / 2
                                                      : text.x - width;
  const double tall = text.size == TextSize::Small ? 8 : text.size == TextSize::Normal ? 9 : 12;
  return {text.text, left, text.y - tall, left + width, text.y};
}

// Texts of one scene, without its layers, that run into one another or beyond its right or left
// edge.
inline std::vector<std::string> misplaced(const Scene& scene, double width) {
  std::vector<PlacedText> all;
  std::vector<std::string> faults;
  const double left = scene.clip_width > 0 ? scene.clip_x : 0;
  const double right = scene.clip_width > 0 ? scene.clip_x + scene.clip_width : width;
  for (const Text& text : scene.texts) {
    if (text.text.empty()) continue;
    const PlacedText one = placed(text);
    if (one.right <= left || one.left >= right) continue;  // out of sight
    if (one.left < left - 0.5 || one.right > right + 0.5)
      faults.push_back("\"" + one.text + "\" is cut by the edge");
    all.push_back(one);
  }
  std::ranges::sort(all, {}, &PlacedText::top);
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t k = i + 1; k < all.size() && all[k].top < all[i].bottom; ++k) {
      if (all[k].left < all[i].right + 1 && all[i].left < all[k].right + 1)
        faults.push_back("\"" + all[i].text + "\" touches \"" + all[k].text + "\"");
    }
  }
  return faults;
}
// The same of a scene and all of its layers, each for itself.
inline std::vector<std::string> all_misplaced(const Scene& scene, double width) {
  std::vector<std::string> faults = misplaced(scene, width);
  for (const Scene& layer : scene.layers) {
    for (std::string& fault : all_misplaced(layer, width)) faults.push_back(std::move(fault));
  }
  return faults;
}

// What is drawn beside one another though it lies in several layers, as one scene without layers
// and bounds. The last layer lies above everything.
inline Scene below_the_top(const Scene& scene) {
  Scene all = scene;
  all.layers.clear();
  for (std::size_t i = 0; i + 1 < scene.layers.size(); ++i) {
    const Scene& layer = scene.layers[i];
    const double bottom = layer.clip_y + layer.clip_height;
    for (const Text& text : layer.texts) {
      if (layer.clip_height == 0 || (text.y > layer.clip_y && text.y - 8 < bottom))
        all.texts.push_back(text);
    }
  }
  return all;
}

}  // namespace rehearse::viz::fixture
