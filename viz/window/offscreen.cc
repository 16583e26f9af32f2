// SPDX-License-Identifier: Apache-2.0
#define GL_GLEXT_PROTOTYPES
#include <EGL/egl.h>
#include <EGL/eglext.h>
#include <GL/gl.h>
#include <GL/glext.h>

#include <array>
#include <string>

#include "viz/window/gl_canvas.h"
#include "viz/window/view/scene.h"
#include "viz/window/widgets/widgets.h"
#include "viz/window/window_module.h"

namespace rehearse::viz {
namespace {

// A context that is current while the object lives, and a framebuffer of its own.
class Offscreen {
 public:
  Offscreen() = default;
  Offscreen(const Offscreen&) = delete;
  Offscreen& operator=(const Offscreen&) = delete;
  ~Offscreen() {
    if (framebuffer_ != 0) glDeleteFramebuffers(1, &framebuffer_);
    if (color_ != 0) glDeleteRenderbuffers(1, &color_);
    if (context_ != EGL_NO_CONTEXT) {
      eglMakeCurrent(display_, EGL_NO_SURFACE, EGL_NO_SURFACE, EGL_NO_CONTEXT);
      eglDestroyContext(display_, context_);
    }
    if (display_ != EGL_NO_DISPLAY) eglTerminate(display_);
  }

  Result<> open(std::int32_t width, std::int32_t height) {
    const auto platform_display = reinterpret_cast<PFNEGLGETPLATFORMDISPLAYEXTPROC>(
        eglGetProcAddress("eglGetPlatformDisplayEXT"));
    if (platform_display == nullptr) return Error{"this EGL knows no platforms"};
    display_ = platform_display(EGL_PLATFORM_SURFACELESS_MESA, EGL_DEFAULT_DISPLAY, nullptr);
    if (display_ == EGL_NO_DISPLAY || eglInitialize(display_, nullptr, nullptr) == EGL_FALSE) {
      display_ = EGL_NO_DISPLAY;
      return fault("no surfaceless EGL display (Mesa's: libegl-mesa0, libgl1-mesa-dri)");
    }
    if (eglBindAPI(EGL_OPENGL_API) == EGL_FALSE) return fault("this EGL has no OpenGL");
    constexpr std::array<EGLint, 7> kContext{EGL_CONTEXT_MAJOR_VERSION,
                                             3,
                                             EGL_CONTEXT_MINOR_VERSION,
                                             3,
                                             EGL_CONTEXT_OPENGL_PROFILE_MASK,
                                             EGL_CONTEXT_OPENGL_CORE_PROFILE_BIT,
                                             EGL_NONE};
    constexpr std::array<EGLint, 3> kConfig{EGL_RENDERABLE_TYPE, EGL_OPENGL_BIT, EGL_NONE};
    EGLConfig config = nullptr;
    EGLint count = 0;
    eglChooseConfig(display_, kConfig.data(), &config, 1, &count);
    context_ =
        eglCreateContext(display_, count > 0 ? config : nullptr, EGL_NO_CONTEXT, kContext.data());
    if (context_ == EGL_NO_CONTEXT ||
        eglMakeCurrent(display_, EGL_NO_SURFACE, EGL_NO_SURFACE, context_) == EGL_FALSE) {
      return fault("no OpenGL 3.3 without a display");
    }
    glGenFramebuffers(1, &framebuffer_);
    glBindFramebuffer(GL_FRAMEBUFFER, framebuffer_);
    glGenRenderbuffers(1, &color_);
    glBindRenderbuffer(GL_RENDERBUFFER, color_);
    glRenderbufferStorage(GL_RENDERBUFFER, GL_RGBA8, width, height);
    glFramebufferRenderbuffer(GL_FRAMEBUFFER, GL_COLOR_ATTACHMENT0, GL_RENDERBUFFER, color_);
    const bool whole = glCheckFramebufferStatus(GL_FRAMEBUFFER) == GL_FRAMEBUFFER_COMPLETE;
    return whole ? Result<>{} : Result<>(Error{"OpenGL takes no picture of this size"});
  }

 private:
  static Result<> fault(const std::string& what) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    const auto code = static_cast<unsigned>(eglGetError());
    std::string hex;
    for (int shift = 12; shift >= 0; shift -= 4) hex += kDigits[(code >> shift) & 15u];
    return Error{what + ": EGL error 0x" + hex};
  }

  EGLDisplay display_ = EGL_NO_DISPLAY;
  EGLContext context_ = EGL_NO_CONTEXT;
  GLuint framebuffer_ = 0, color_ = 0;
};

}  // namespace

Result<std::vector<std::uint32_t>> window_module::draw(const Session& session,
                                                       const ViewState& state) {
  const Scene scene = view_scene(session, state);
  const std::int32_t width = scene.pixel_width(), height = scene.pixel_height();
  Offscreen context;
  if (const Result<> opened = context.open(width, height); !opened) return opened.error();
  GlCanvas canvas;
  if (!canvas.ready()) return Error{"OpenGL could not be set up"};
  std::function<void()> build;
  Widgets widgets(canvas.fonts());
  if (state.widgets) {
    build = [&] { (void)widgets.build(session, state); };
    constexpr int kSettle = 3;  // frames until all widgets have their sizes
    for (int i = 0; i < kSettle; ++i) canvas.frame(scene.scale, width, height, build);
  }
  canvas.draw(scene, width, height, build);
  return GlCanvas::pixels(width, height);
}

}  // namespace rehearse::viz
