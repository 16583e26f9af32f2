// SPDX-License-Identifier: Apache-2.0
#include "viz/window/gl_canvas.h"

#define GL_GLEXT_PROTOTYPES
#include <GL/gl.h>
#include <GL/glext.h>
#include <backends/imgui_impl_opengl3.h>
#include <imgui.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "viz/picture/font.h"
#include "viz/picture/formats/png.h"

namespace rehearse::viz {
namespace {

GLuint make_texture(std::int32_t width, std::int32_t height, const std::uint32_t* pixels,
                    GLint filter, GLint wrap) {
  GLuint texture = 0;
  glGenTextures(1, &texture);
  glBindTexture(GL_TEXTURE_2D, texture);
  glTexParameteri(GL_TEXTURE_2D, GL_TEXTURE_MIN_FILTER, filter);
  glTexParameteri(GL_TEXTURE_2D, GL_TEXTURE_MAG_FILTER, filter);
  glTexParameteri(GL_TEXTURE_2D, GL_TEXTURE_WRAP_S, wrap);
  glTexParameteri(GL_TEXTURE_2D, GL_TEXTURE_WRAP_T, wrap);
  glTexImage2D(GL_TEXTURE_2D, 0, GL_RGBA8, width, height, 0, GL_RGBA, GL_UNSIGNED_BYTE, pixels);
  return texture;
}

ImTextureID id_of(GLuint texture) {
  return reinterpret_cast<ImTextureID>(static_cast<std::intptr_t>(texture));
}
ImU32 packed(Color c, unsigned alpha) {
  return IM_COL32(c.red, c.green, c.blue, alpha);
}
ImVec2 point(double x, double y) {
  return {static_cast<float>(x), static_cast<float>(y)};
}

}  // namespace

// Scene -> ImDrawList. Glyphs, hatches and strips are textures of our own, so that the window shows
// what png.h draws.
class GlCanvas::Painter {
 public:
  Painter() {
    make_font();
    for (std::size_t hatch = 0; hatch < hatches_.size(); ++hatch) make_hatch(hatch);
    strips_ = make_texture(kStripWidth, kStripRows, nullptr, GL_LINEAR, GL_CLAMP_TO_EDGE);
  }

  // `scale`: pixels per unit of the scene.
  void draw(const Scene& scene, double scale, ImDrawList& list) {
    row_ = 0;
    scale_ = scale;
    draw_all(scene, list);
  }

 private:
  static constexpr std::int32_t kAtlas = 1024, kStripWidth = 8192, kStripRows = 1024;

  void make_font() {
    std::vector<std::uint32_t> pixels(static_cast<std::size_t>(kAtlas) * kAtlas);
    std::int32_t x = 1, y = 1, tallest = 0;
    for (std::size_t size = 0; size < kFonts; ++size) {
      const FontData& data = size < 3 ? kFontData[size] : kLargeFontData[size - 3];
      for (std::size_t g = 0; g < kNumGlyphs; ++g) {
        const Glyph& glyph = data.glyphs[g];
        if (x + glyph.width + 1 > kAtlas) {
          x = 1;
          y += tallest + 1;
          tallest = 0;
        }
        for (std::int32_t row = 0; row < glyph.height; ++row) {
          for (std::int32_t column = 0; column < glyph.width; ++column) {
            const char digit = data.pixels[glyph.offset + row * glyph.width + column];
            const auto level =
                static_cast<std::uint32_t>(digit <= '9' ? digit - '0' : digit - 'a' + 10);
            pixels[static_cast<std::size_t>((y + row) * kAtlas + x + column)] =
                0x00FFFFFFu | (level * 17) << 24;
          }
        }
        glyph_x_[size][g] = static_cast<std::int16_t>(x);
        glyph_y_[size][g] = static_cast<std::int16_t>(y);
        x += glyph.width + 1;
        tallest = std::max<std::int32_t>(tallest, glyph.height);
      }
    }
    font_ = make_texture(kAtlas, kAtlas, pixels.data(), GL_LINEAR, GL_CLAMP_TO_EDGE);
  }

  void make_hatch(std::size_t hatch) {
    std::vector<std::uint32_t> pixels;
    for (std::int32_t y = 0; y < kHatchPeriod; ++y) {
      for (std::int32_t x = 0; x < kHatchPeriod; ++x) {
        pixels.push_back(0x00FFFFFFu | hatch_ink(static_cast<Hatch>(hatch), x, y) << 24);
      }
    }
    hatches_[hatch] =
        make_texture(kHatchPeriod, kHatchPeriod, pixels.data(), GL_NEAREST, GL_REPEAT);
  }

  void draw_all(const Scene& scene, ImDrawList& list) {
    const bool bound = scene.clip_width > 0;
    if (bound) {
      list.PushClipRect(point(std::round(scene.clip_x), std::round(scene.clip_y)),
                        point(std::round(scene.clip_x + scene.clip_width),
                              std::round(scene.clip_y + scene.clip_height)),
                        true);
    }
    for (const Rect& rect : scene.plates) draw(rect, list);
    for (const Strip& strip : scene.strips) draw(strip, list);
    for (const Area& area : scene.areas) draw(area, list);
    for (const Rect& rect : scene.rects) draw(rect, list);
    for (const Line& line : scene.lines) {
      list.AddLine(point(line.x1, line.y1), point(line.x2, line.y2), packed(line.color, line.alpha),
                   static_cast<float>(line.width));
    }
    for (const Text& text : scene.texts) draw(text, list);
    for (const Scene& layer : scene.layers) draw_all(layer, list);
    if (bound) list.PopClipRect();
  }

  void draw(const Rect& rect, ImDrawList& list) {
    const ImVec2 a = point(rect.x, rect.y), b = point(rect.x + rect.width, rect.y + rect.height);
    if (rect.width <= 0 || rect.height <= 0) return;
    if (rect.alpha > 0) list.AddRectFilled(a, b, packed(rect.fill, rect.alpha));
    if (rect.hatch != Hatch::None) {
      constexpr float kScale = 1.0f / static_cast<float>(kHatchPeriod);
      list.AddImage(id_of(hatches_[static_cast<std::size_t>(rect.hatch)]), a, b,
                    {a.x * kScale, a.y * kScale}, {b.x * kScale, b.y * kScale},
                    packed(rect.ink, 255));
    }
    if (rect.outlined) list.AddRect(a, b, packed(rect.outline, 255));
  }

  void draw(const Strip& strip, ImDrawList& list) {
    if (strip.colors.empty() || row_ == kStripRows) return;
    const auto count = std::min(static_cast<std::int32_t>(strip.colors.size()), kStripWidth);
    glBindTexture(GL_TEXTURE_2D, strips_);
    glTexSubImage2D(GL_TEXTURE_2D, 0, 0, row_, count, 1, GL_RGBA, GL_UNSIGNED_BYTE,
                    strip.colors.data());
    const float v = (static_cast<float>(row_) + 0.5f) / kStripRows;
    ++row_;
    list.AddImage(id_of(strips_), point(strip.x, strip.y),
                  point(strip.x + strip.width, strip.y + strip.height), {0, v},
                  {static_cast<float>(count) / kStripWidth, v});
  }

  void draw(const Area& area, ImDrawList& list) {
    for (std::size_t i = 0; i < area.x.size(); ++i) {
      const float right = i + 1 < area.x.size() ? area.x[i + 1] : area.end;
      list.AddRectFilled({area.x[i], area.y[i]}, {right, area.base}, packed(area.fill, area.alpha));
    }
  }

  // Glyphs begin on pixels of the screen.
  void draw(const Text& text, ImDrawList& list) {
    const ScaledFont scaled = font(text.size, scale_);
    const FontData& data = *scaled.data;
    const bool large = scaled.data != &font(text.size);
    const auto size = static_cast<std::size_t>(text.size) + (large ? 3 : 0);
    double x = text.x * scale_;
    if (text.anchor != Anchor::Begin) {
      double width = 0;
      for (std::string_view rest = text.text; !rest.empty();)
        width += next_glyph(data, rest).advance * scaled.factor;
      x -= width * (text.anchor == Anchor::Middle ? 0.5 : 1.0);
    }
    double pen = std::round(x);
    const double base = std::round(text.y * scale_);
    constexpr float kUnit = 1.0f / kAtlas;
    for (std::string_view rest = text.text; !rest.empty();) {
      const Glyph& glyph = next_glyph(data, rest);
      const auto g = static_cast<std::size_t>(&glyph - data.glyphs);
      const auto u = static_cast<float>(glyph_x_[size][g]),
                 v = static_cast<float>(glyph_y_[size][g]);
      const double left = std::round(pen) + glyph.left * scaled.factor,
                   top = base - glyph.top * scaled.factor;
      if (glyph.width > 0) {
        list.AddImage(id_of(font_), point(left / scale_, top / scale_),
                      point((left + glyph.width * scaled.factor) / scale_,
                            (top + glyph.height * scaled.factor) / scale_),
                      {u * kUnit, v * kUnit},
                      {(u + static_cast<float>(glyph.width)) * kUnit,
                       (v + static_cast<float>(glyph.height)) * kUnit},
                      packed(text.color, 255));
      }
      pen += glyph.advance * scaled.factor;
    }
  }

  GLuint font_ = 0, strips_ = 0;
  std::array<GLuint, 8> hatches_{};
  static constexpr std::size_t kFonts = 6;  // three sizes, and twice those
  std::array<std::array<std::int16_t, kNumGlyphs>, kFonts> glyph_x_{}, glyph_y_{};
  double scale_ = 1;
  std::int32_t row_ = 0;  // of the strips' texture, next to use
};

GlCanvas::GlCanvas() {
  ImGui::CreateContext();
  ImGui::GetIO().IniFilename = nullptr;
  ready_ = ImGui_ImplOpenGL3_Init("#version 330 core");
  if (ready_) painter_ = std::make_unique<Painter>();
}

GlCanvas::~GlCanvas() {
  if (ready_) ImGui_ImplOpenGL3_Shutdown();
  ImGui::DestroyContext();
}

bool GlCanvas::ready() const {
  return ready_;
}

void GlCanvas::draw(const Scene& scene, std::int32_t framebuffer_width,
                    std::int32_t framebuffer_height) {
  ImGuiIO& io = ImGui::GetIO();
  const auto scale = static_cast<float>(scene.scale);
  io.DisplaySize = {static_cast<float>(framebuffer_width) / scale,
                    static_cast<float>(framebuffer_height) / scale};
  io.DisplayFramebufferScale = {scale, scale};
  io.DeltaTime = 1.0f / 60.0f;
  ImGui_ImplOpenGL3_NewFrame();
  ImGui::NewFrame();
  painter_->draw(scene, scene.scale, *ImGui::GetBackgroundDrawList());
  ImGui::Render();
  glViewport(0, 0, framebuffer_width, framebuffer_height);
  const auto level = [](std::uint8_t c) { return static_cast<float>(c) / 255.0f; };
  glClearColor(level(scene.background.red), level(scene.background.green),
               level(scene.background.blue), 1);
  glClear(GL_COLOR_BUFFER_BIT);
  ImGui_ImplOpenGL3_RenderDrawData(ImGui::GetDrawData());
}

std::vector<std::uint32_t> GlCanvas::pixels(std::int32_t width, std::int32_t height) {
  const auto columns = static_cast<std::size_t>(width), rows = static_cast<std::size_t>(height);
  std::vector<std::uint32_t> below(columns * rows), out;
  glReadPixels(0, 0, width, height, GL_RGBA, GL_UNSIGNED_BYTE, below.data());
  out.reserve(below.size());
  for (std::size_t y = rows; y-- > 0;) {  // OpenGL counts from below
    out.insert(out.end(), below.data() + y * columns, below.data() + (y + 1) * columns);
  }
  return out;
}

}  // namespace rehearse::viz
