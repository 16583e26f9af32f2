// SPDX-License-Identifier: Apache-2.0
// A scene through Dear ImGui's draw lists on the OpenGL 3.3 context that is current, and its
// widgets over it: what the window shows, and what its pictures without a display show. Neither a
// window nor input is known here.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "viz/picture/scene.h"

namespace rehearse::viz {

class Fonts;

class GlCanvas {
 public:
  // REQUIRES: an OpenGL 3.3 context is current, here and whenever a member is called; there is one
  // canvas at a time.
  GlCanvas();
  ~GlCanvas();
  GlCanvas(const GlCanvas&) = delete;
  GlCanvas& operator=(const GlCanvas&) = delete;

  bool ready() const;  // false: OpenGL could not be set up
  // A frame of Dear ImGui in which `build` makes widgets; nothing is drawn. Sizes in pixels.
  void frame(double scale, std::int32_t framebuffer_width, std::int32_t framebuffer_height,
             const std::function<void()>& build);
  // The same, and fills the current framebuffer, whose size the scene has up to rounding.
  void draw(const Scene& scene, std::int32_t framebuffer_width, std::int32_t framebuffer_height,
            const std::function<void()>& build = {});
  Fonts& fonts();
  // How fields copy and paste; `window` is handed back to both.
  void use_clipboard(void (*set)(void*, const char*), const char* (*get)(void*), void* window);
  // The current framebuffer, from above: 0xAABBGGRR.
  static std::vector<std::uint32_t> pixels(std::int32_t width, std::int32_t height);

 private:
  class Painter;
  std::unique_ptr<Painter> painter_;
  bool ready_ = false;
};

}  // namespace rehearse::viz
