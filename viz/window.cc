#include "viz/window.h"

#include <GLFW/glfw3.h>
#include <backends/imgui_impl_opengl3.h>
#include <imgui.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>

#include "viz/file_writer.h"
#include "viz/png.h"
#include "viz/script.h"
#include "viz/svg.h"
#include "viz/view_scene.h"

namespace rehearse::viz {
namespace {

std::string last_glfw_error;

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

// Scene -> ImDrawList. Glyphs, hatches and strips are textures of our own, so that the window shows
// what png.h draws.
class Painter {
 public:
  Painter() {
    make_font();
    for (std::size_t hatch = 0; hatch < hatches_.size(); ++hatch) make_hatch(hatch);
    strips_ = make_texture(kStripWidth, kStripRows, nullptr, GL_LINEAR, GL_CLAMP_TO_EDGE);
  }

  void draw(const Scene& scene, ImDrawList& list) {
    row_ = 0;
    draw_all(scene, list);
  }

 private:
  static constexpr std::int32_t kAtlas = 512, kStripWidth = 8192, kStripRows = 1024;

  void make_font() {
    std::vector<std::uint32_t> pixels(static_cast<std::size_t>(kAtlas) * kAtlas);
    std::int32_t x = 1, y = 1, tallest = 0;
    for (std::size_t size = 0; size < 3; ++size) {
      for (std::size_t g = 0; g < kNumGlyphs; ++g) {
        const Glyph& glyph = kFontData[size].glyphs[g];
        if (x + glyph.width + 1 > kAtlas) {
          x = 1;
          y += tallest + 1;
          tallest = 0;
        }
        for (std::int32_t row = 0; row < glyph.height; ++row) {
          for (std::int32_t column = 0; column < glyph.width; ++column) {
            const char digit = kFontData[size].pixels[glyph.offset + row * glyph.width + column];
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
    font_ = make_texture(kAtlas, kAtlas, pixels.data(), GL_NEAREST, GL_CLAMP_TO_EDGE);
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

  void draw(const Text& text, ImDrawList& list) {
    const FontData& data = font(text.size);
    double x = text.x;
    if (text.anchor != Anchor::Begin) {
      x -= text_width(text.text, text.size) * (text.anchor == Anchor::Middle ? 0.5 : 1.0);
    }
    auto pen = std::lround(x);
    const auto base = std::lround(text.y);
    constexpr float kScale = 1.0f / kAtlas;
    for (std::string_view rest = text.text; !rest.empty();) {
      const Glyph& glyph = next_glyph(data, rest);
      const auto g = static_cast<std::size_t>(&glyph - data.glyphs);
      const auto size = static_cast<std::size_t>(text.size);
      const auto u = static_cast<float>(glyph_x_[size][g]),
                 v = static_cast<float>(glyph_y_[size][g]);
      const ImVec2 a =
          point(static_cast<double>(pen + glyph.left), static_cast<double>(base - glyph.top));
      if (glyph.width > 0) {
        list.AddImage(
            id_of(font_), a, {a.x + glyph.width, a.y + glyph.height}, {u * kScale, v * kScale},
            {(u + glyph.width) * kScale, (v + glyph.height) * kScale}, packed(text.color, 255));
      }
      pen += glyph.advance;
    }
  }

  GLuint font_ = 0, strips_ = 0;
  std::array<GLuint, 8> hatches_{};
  std::array<std::array<std::int16_t, kNumGlyphs>, 3> glyph_x_{}, glyph_y_{};
  std::int32_t row_ = 0;  // of the strips' texture, next to use
};

// Input as events, in the order in which it came.
struct Input {
  std::vector<Event> events;
  double x = 0, y = 0, last_press = -1, last_x = 0, last_y = 0;
  bool shift = false, control = false;
  bool exposed = false;  // the system asks for the picture again

  Event at(Event::Type type) const {
    return {.type = type, .shift = shift, .control = control, .x = x, .y = y};
  }
};
Input& input_of(GLFWwindow* window) {
  return *static_cast<Input*>(glfwGetWindowUserPointer(window));
}

void set_modifiers(Input& input, int modifiers) {
  input.shift = (modifiers & GLFW_MOD_SHIFT) != 0;
  input.control = (modifiers & GLFW_MOD_CONTROL) != 0;
}

// Letters by the keyboard's layout, the others by their place.
Key key_of(int key, int scancode) {
  static constexpr std::pair<int, Key> kOthers[] = {{GLFW_KEY_SPACE, Key::Space},
                                                    {GLFW_KEY_ESCAPE, Key::Escape},
                                                    {GLFW_KEY_ENTER, Key::Enter},
                                                    {GLFW_KEY_KP_ENTER, Key::Enter},
                                                    {GLFW_KEY_BACKSPACE, Key::Backspace},
                                                    {GLFW_KEY_HOME, Key::Home},
                                                    {GLFW_KEY_LEFT, Key::Left},
                                                    {GLFW_KEY_RIGHT, Key::Right},
                                                    {GLFW_KEY_UP, Key::Up},
                                                    {GLFW_KEY_DOWN, Key::Down}};
  for (const auto& [code, known] : kOthers) {
    if (code == key) return known;
  }
  const char* name = glfwGetKeyName(key, scancode);
  if (name == nullptr || name[0] == '\0' || name[1] != '\0') return Key::None;
  const char letter =
      name[0] >= 'a' && name[0] <= 'z' ? static_cast<char>(name[0] - 'a' + 'A') : name[0];
  if (letter == '/' || letter == '?')
    return Key::None;  // their characters come as text, on any layout
  return key_named(std::string_view(&letter, 1));
}

void on_key(GLFWwindow* window, int key, int scancode, int action, int modifiers) {
  Input& input = input_of(window);
  set_modifiers(input, modifiers);
  if (action == GLFW_RELEASE) return;
  Event event = input.at(Event::Type::Key);
  event.key = key_of(key, scancode);
  if (event.key != Key::None) input.events.push_back(event);
}

void on_character(GLFWwindow* window, unsigned code) {
  Input& input = input_of(window);
  if (code == '/' || code == '?') {
    Event key = input.at(Event::Type::Key);
    key.key = code == '/' ? Key::Slash : Key::Question;
    key.shift = false;
    input.events.push_back(key);
  }
  Event event = input.at(Event::Type::Text);
  if (code < 0x80)
    event.text = std::string(1, static_cast<char>(code));
  else if (code < 0x800)
    event.text = {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))};
  else
    return;
  input.events.push_back(event);
}

void on_move(GLFWwindow* window, double x, double y) {
  Input& input = input_of(window);
  input.x = x;
  input.y = y;
  if (!input.events.empty() && input.events.back().type == Event::Type::Move)
    input.events.pop_back();
  input.events.push_back(input.at(Event::Type::Move));
}

void on_button(GLFWwindow* window, int button, int action, int modifiers) {
  Input& input = input_of(window);
  set_modifiers(input, modifiers);
  Event event = input.at(action == GLFW_PRESS ? Event::Type::Press : Event::Type::Release);
  event.button = button == GLFW_MOUSE_BUTTON_RIGHT ? 1 : button == GLFW_MOUSE_BUTTON_MIDDLE ? 2 : 0;
  if (action == GLFW_PRESS && event.button == 0) {
    const double now = glfwGetTime();
    const bool again = now - input.last_press < 0.35 &&
                       std::hypot(input.x - input.last_x, input.y - input.last_y) < 4;
    input.last_press = again ? -1 : now;
    input.last_x = input.x;
    input.last_y = input.y;
    if (again) event.type = Event::Type::DoubleClick;
  }
  input.events.push_back(event);
}

void on_wheel(GLFWwindow* window, double x, double y) {
  Input& input = input_of(window);
  const auto held = [window](int left, int right) {
    return glfwGetKey(window, left) == GLFW_PRESS || glfwGetKey(window, right) == GLFW_PRESS;
  };
  input.shift = held(GLFW_KEY_LEFT_SHIFT, GLFW_KEY_RIGHT_SHIFT);
  input.control = held(GLFW_KEY_LEFT_CONTROL, GLFW_KEY_RIGHT_CONTROL);
  Event event = input.at(Event::Type::Wheel);
  event.x = x;
  event.y = y;
  input.events.push_back(event);
}

void on_resize(GLFWwindow* window, int width, int height) {
  if (width <= 0 || height <= 0) return;  // minimised
  Event event = input_of(window).at(Event::Type::Resize);
  event.x = width;
  event.y = height;
  input_of(window).events.push_back(event);
}

void on_refresh(GLFWwindow* window) {
  input_of(window).exposed = true;
}

// What a person chose, kept from one time to the next: "width 1440" and the like, one a line.
void load(const std::string& path, WindowOptions& options, ViewState& state) {
  std::ifstream in(path);
  std::string name;
  std::int32_t value = 0;
  while (in >> name >> value) {
    if (name == "width")
      options.width = std::clamp(value, 320, 8000);
    else if (name == "height")
      options.height = std::clamp(value, 240, 8000);
    else if (name == "dark")
      state.dark = value != 0;
    else if (name == "wheel_zooms")
      state.wheel_zooms = value != 0;
    else if (name == "memory")
      state.memory = value != 0;
    else if (name == "links")
      state.links = value != 0;
    else if (name == "streams")
      state.streams = value != 0;
  }
}

void save(const std::string& path, const ViewState& state) {
  if (path.empty()) return;
  FileWriter out(path);  // no folder for it: then it is not kept
  out << "width " << state.width << "\nheight " << state.height << "\ndark "
      << std::int32_t{state.dark} << "\nwheel_zooms " << std::int32_t{state.wheel_zooms}
      << "\nmemory " << std::int32_t{state.memory} << "\nlinks " << std::int32_t{state.links}
      << "\nstreams " << std::int32_t{state.streams} << "\n";
  (void)out.finish();
}

class Window {
 public:
  Window(const Session& session, WindowOptions options)
      : session_(session), options_(std::move(options)) {}
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;
  ~Window() {
    if (ImGui::GetCurrentContext() != nullptr) {
      if (drawing_) ImGui_ImplOpenGL3_Shutdown();
      ImGui::DestroyContext();
    }
    if (window_ != nullptr) glfwDestroyWindow(window_);
    if (started_) glfwTerminate();
  }

  Result<WindowResult> run() {
    ViewState kept;
    if (!options_.state_file.empty()) load(options_.state_file, options_, kept);
    if (const Result<> opened = open(); !opened) return opened.error();
    state_ = initial_state(session_, options_.width, options_.height);
    state_.dark = kept.dark;
    state_.wheel_zooms = kept.wheel_zooms;
    state_.memory = kept.memory;
    state_.links = kept.links;
    state_.streams = kept.streams;
    Painter painter;
    for (const Event& event : options_.events) handle(event);
    const double until = glfwGetTime() + options_.linger_s;
    double last = glfwGetTime();
    draw(painter);
    while (glfwWindowShouldClose(window_) == 0) {
      if (options_.capture && glfwGetTime() >= until) break;
      if (state_.playing)
        glfwPollEvents();
      else if (options_.capture)
        glfwWaitEventsTimeout(0.02);
      else
        glfwWaitEvents();  // nothing to do: no work
      const double now = glfwGetTime();
      bool changed = false;
      for (const Event& event : std::exchange(input_.events, {}))
        changed = handle(event) || changed;
      if (state_.playing)
        changed = handle({.type = Event::Type::Tick, .seconds = now - last}) || changed;
      last = now;
      if (state_.wants_export) write_picture();
      if (std::exchange(input_.exposed, false) || changed) draw(painter);
    }
    save(options_.state_file, state_);
    if (!recorded_.empty() && !options_.record.empty()) {
      FileWriter out(options_.record);
      out << recorded_;
      if (const Result<> done = out.finish(); !done) return done.error();
    }
    WindowResult result{.state = state_, .frames = frames_};
    if (options_.capture) capture(painter, result);
    return result;
  }

 private:
  Result<> open() {
    glfwSetErrorCallback([](int, const char* text) { last_glfw_error = text; });
    if (glfwInit() == 0)
      return Error{"no display: " + last_glfw_error +
                   "; without one: rehearse render TRACE --png FILE"};
    started_ = true;
    glfwWindowHint(GLFW_CONTEXT_VERSION_MAJOR, 3);
    glfwWindowHint(GLFW_CONTEXT_VERSION_MINOR, 3);
    glfwWindowHint(GLFW_OPENGL_PROFILE, GLFW_OPENGL_CORE_PROFILE);
    const Trace& first = session_.at(0).trace();
    const std::string title =
        "rehearse: " + (first.title.empty() ? first.schedule_name : first.title);
    window_ = glfwCreateWindow(options_.width, options_.height, title.c_str(), nullptr, nullptr);
    if (window_ == nullptr) return Error{"no OpenGL 3.3: " + last_glfw_error};
    glfwMakeContextCurrent(window_);
    glfwSwapInterval(1);
    glfwSetWindowUserPointer(window_, &input_);
    glfwSetKeyCallback(window_, on_key);
    glfwSetCharCallback(window_, on_character);
    glfwSetCursorPosCallback(window_, on_move);
    glfwSetMouseButtonCallback(window_, on_button);
    glfwSetScrollCallback(window_, on_wheel);
    glfwSetWindowSizeCallback(window_, on_resize);
    glfwSetWindowRefreshCallback(window_, on_refresh);
    ImGui::CreateContext();
    ImGui::GetIO().IniFilename = nullptr;
    drawing_ = ImGui_ImplOpenGL3_Init("#version 330 core");
    return drawing_ ? Result<>{} : Result<>(Error{"OpenGL could not be set up"});
  }

  // True if the picture changed.
  bool handle(const Event& event) {
    if (!options_.record.empty()) recorded_ += to_script(event);
    ViewState next = reduce(session_, state_, event);
    const bool changed = !(next == state_);
    state_ = std::move(next);
    return changed;
  }

  void draw(Painter& painter) {
    int width = 0, height = 0;
    glfwGetFramebufferSize(window_, &width, &height);
    ImGuiIO& io = ImGui::GetIO();
    io.DisplaySize = {static_cast<float>(state_.width), static_cast<float>(state_.height)};
    io.DisplayFramebufferScale = {static_cast<float>(width) / io.DisplaySize.x,
                                  static_cast<float>(height) / io.DisplaySize.y};
    io.DeltaTime = 1.0f / 60.0f;
    ++frames_;
    ImGui_ImplOpenGL3_NewFrame();
    ImGui::NewFrame();
    const Scene scene = view_scene(session_, state_, cache_);
    painter.draw(scene, *ImGui::GetBackgroundDrawList());
    ImGui::Render();
    glViewport(0, 0, width, height);
    const auto level = [](std::uint8_t c) { return static_cast<float>(c) / 255.0f; };
    glClearColor(level(scene.background.red), level(scene.background.green),
                 level(scene.background.blue), 1);
    glClear(GL_COLOR_BUFFER_BIT);
    ImGui_ImplOpenGL3_RenderDrawData(ImGui::GetDrawData());
    if (!capturing_) glfwSwapBuffers(window_);
  }

  void write_picture() {
    state_.wants_export = false;
    FileWriter out(options_.export_file);
    out << svg(view_scene(session_, state_));
    if (const Result<> done = out.finish(); !done)
      std::fprintf(stderr, "rehearse: %s\n", done.error().message.c_str());
  }

  void capture(Painter& painter, WindowResult& result) {
    capturing_ = true;
    draw(painter);
    glfwGetFramebufferSize(window_, &result.width, &result.height);
    const auto width = static_cast<std::size_t>(result.width),
               height = static_cast<std::size_t>(result.height);
    std::vector<std::uint32_t> rows(width * height);
    glReadPixels(0, 0, result.width, result.height, GL_RGBA, GL_UNSIGNED_BYTE, rows.data());
    for (std::size_t y = height; y-- > 0;) {  // OpenGL counts from below
      result.pixels.insert(result.pixels.end(), rows.data() + y * width,
                           rows.data() + (y + 1) * width);
    }
  }

  const Session& session_;
  WindowOptions options_;
  ViewState state_;
  SceneCache cache_;
  Input input_;
  GLFWwindow* window_ = nullptr;
  bool started_ = false, drawing_ = false, capturing_ = false;
  std::int64_t frames_ = 0;
  std::string recorded_;
};

}  // namespace

bool has_window() {
  return true;
}

Result<WindowResult> run_window(const Session& session, const WindowOptions& options) {
  return Window(session, options).run();
}

}  // namespace rehearse::viz
