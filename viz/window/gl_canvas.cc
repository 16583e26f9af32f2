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
#include "viz/window/widgets/fonts.h"

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

}  // namespace

// Scene -> ImDrawList, in pixels. Letters, hatches and strips are textures of our own, so that the
// window shows what png.h draws.
class GlCanvas::Painter {
 public:
  Painter() {
    for (std::size_t hatch = 0; hatch < hatches_.size(); ++hatch) make_hatch(hatch);
    strips_ = make_texture(kStripWidth, kStripRows, nullptr, GL_LINEAR, GL_CLAMP_TO_EDGE);
  }

  Fonts& fonts() { return fonts_; }

  // `scale`: pixels per unit of the scene.
  void draw(const Scene& scene, double scale, ImDrawList& list) {
    row_ = 0;
    scale_ = scale;
    draw_all(scene, list);
  }

 private:
  static constexpr std::int32_t kStripWidth = 8192, kStripRows = 1024;

  ImVec2 point(double x, double y) const {
    return {static_cast<float>(x * scale_), static_cast<float>(y * scale_)};
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
      const ImVec2 a = point(scene.clip_x, scene.clip_y),
                   b = point(scene.clip_x + scene.clip_width, scene.clip_y + scene.clip_height);
      list.PushClipRect({std::round(a.x), std::round(a.y)}, {std::round(b.x), std::round(b.y)},
                        true);
    }
    for (const Rect& rect : scene.plates) draw(rect, list);
    for (const Strip& strip : scene.strips) draw(strip, list);
    for (const Area& area : scene.areas) draw(area, list);
    for (const Rect& rect : scene.rects) draw(rect, list);
    for (const Line& line : scene.lines) {
      list.AddLine(point(line.x1, line.y1), point(line.x2, line.y2), packed(line.color, line.alpha),
                   static_cast<float>(line.width * scale_));
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
      const float period = static_cast<float>(kHatchPeriod * scale_);
      list.AddImage(id_of(hatches_[static_cast<std::size_t>(rect.hatch)]), a, b,
                    {a.x / period, a.y / period}, {b.x / period, b.y / period},
                    packed(rect.ink, 255));
    }
    if (rect.outlined) list.AddRect(a, b, packed(rect.outline, 255));
  }

  void draw(const Strip& strip, ImDrawList& list) {
    if (strip.colors.empty()) return;
    if (strip.colors.size() == 1) {  // 0xAABBGGRR, as Dear ImGui has it
      list.AddRectFilled(point(strip.x, strip.y),
                         point(strip.x + strip.width, strip.y + strip.height), strip.colors[0]);
      return;
    }
    if (row_ == kStripRows) return;
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
      list.AddRectFilled(point(area.x[i], area.y[i]), point(right, area.base),
                         packed(area.fill, area.alpha));
    }
  }

  // Letters begin on pixels of the screen. Where those of an installed font are wider than the
  // picture's own, they stand closer.
  void draw(const Text& text, ImDrawList& list) {
    fonts_.want(text.text);
    const ImFont& font = *fonts_.font(text.size);
    double width = 0;
    for (std::string_view rest = text.text; !rest.empty();) width += glyph_of(font, rest).AdvanceX;
    const double room = text_width(text.text, text.size) * scale_;
    const double closer = width > room && width > 0 ? room / width : 1;
    const double share = text.anchor == Anchor::Begin ? 0 : text.anchor == Anchor::Middle ? 0.5 : 1;
    double pen = std::round(text.x * scale_ - width * closer * share);
    const double top = std::round(text.y * scale_) - fonts_.base(text.size);
    for (std::string_view rest = text.text; !rest.empty();) {
      const ImFontGlyph& glyph = glyph_of(font, rest);
      const double left = std::round(pen);
      if (glyph.Visible) {
        list.AddImage(ImGui::GetIO().Fonts->TexID,
                      {static_cast<float>(left) + glyph.X0, static_cast<float>(top) + glyph.Y0},
                      {static_cast<float>(left) + glyph.X1, static_cast<float>(top) + glyph.Y1},
                      {glyph.U0, glyph.V0}, {glyph.U1, glyph.V1}, packed(text.color, 255));
      }
      pen += glyph.AdvanceX * closer;
    }
  }
  static const ImFontGlyph& glyph_of(const ImFont& font, std::string_view& text) {
    return *font.FindGlyph(static_cast<ImWchar>(next_code_point(text)));
  }

  Fonts fonts_;
  GLuint strips_ = 0;
  std::array<GLuint, 8> hatches_{};
  double scale_ = 1;
  std::int32_t row_ = 0;  // of the strips' texture, next to use
};

GlCanvas::GlCanvas() {
  ImGui::CreateContext();
  ImGui::GetIO().IniFilename = nullptr;
  ImGui::GetIO().ConfigInputTextCursorBlink = false;  // a picture that nobody changes stays
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

Fonts& GlCanvas::fonts() {
  return painter_->fonts();
}

void GlCanvas::use_clipboard(void (*set)(void*, const char*), const char* (*get)(void*),
                             void* window) {
  ImGuiIO& io = ImGui::GetIO();
  io.SetClipboardTextFn = set;
  io.GetClipboardTextFn = get;
  io.ClipboardUserData = window;
}

void GlCanvas::frame(double scale, std::int32_t framebuffer_width, std::int32_t framebuffer_height,
                     const std::function<void()>& build) {
  painter_->fonts().prepare(scale);
  ImGuiIO& io = ImGui::GetIO();
  io.DisplaySize = {static_cast<float>(framebuffer_width), static_cast<float>(framebuffer_height)};
  io.DeltaTime = 1.0f / 60.0f;
  ImGui_ImplOpenGL3_NewFrame();
  ImGui::NewFrame();
  if (build) build();
  ImGui::Render();
}

void GlCanvas::draw(const Scene& scene, std::int32_t framebuffer_width,
                    std::int32_t framebuffer_height, const std::function<void()>& build) {
  const auto once = [&] {
    frame(scene.scale, framebuffer_width, framebuffer_height, [&] {
      painter_->draw(scene, scene.scale, *ImGui::GetBackgroundDrawList());
      if (build) build();
    });
  };
  once();
  if (painter_->fonts().incomplete()) once();  // letters that are met for the first time
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
