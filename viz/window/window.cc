// SPDX-License-Identifier: Apache-2.0
#include "viz/window/window.h"

#include <GLFW/glfw3.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>

#include "viz/export/file_writer.h"
#include "viz/picture/formats/svg.h"
#include "viz/window/gl_canvas.h"
#include "viz/window/script.h"
#include "viz/window/view_scene.h"
#include "viz/window/window_module.h"

namespace rehearse::viz {
namespace {

std::string last_glfw_error;

// Input as events, in the order in which it came.
struct Input {
  std::vector<Event> events;
  double x = 0, y = 0, last_press = -1, last_x = 0, last_y = 0;
  double pixels = 1;  // per unit of the system's coordinates
  bool shift = false, control = false;
  bool exposed = false;         // the system asks for the picture again
  bool follows_screen = false;  // in its scale

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
                                                    {GLFW_KEY_EQUAL, Key::Plus},
                                                    {GLFW_KEY_KP_ADD, Key::Plus},
                                                    {GLFW_KEY_KP_SUBTRACT, Key::Minus},
                                                    {GLFW_KEY_KP_0, Key::Zero},
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
  // The characters of these come as text, on any layout.
  if (letter == '/' || letter == '?') return Key::None;
  if (letter == '=') return Key::Plus;
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
  if (code < 0x80) {
    event.text = std::string(1, static_cast<char>(code));
  } else if (code < 0x800) {
    event.text = {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))};
  } else {
    return;
  }
  input.events.push_back(event);
}

void on_move(GLFWwindow* window, double x, double y) {
  Input& input = input_of(window);
  input.x = x * input.pixels;
  input.y = y * input.pixels;
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

// Sizes are in pixels; what a pixel is of a screen may differ from the system's coordinates.
void on_resize(GLFWwindow* window, int width, int height) {
  if (width <= 0 || height <= 0) return;  // minimised
  Input& input = input_of(window);
  int across = 0, down = 0;
  glfwGetWindowSize(window, &across, &down);
  if (across > 0) input.pixels = static_cast<double>(width) / across;
  Event event = input.at(Event::Type::Resize);
  event.x = width;
  event.y = height;
  if (input.follows_screen) {
    float scale = 1, vertical = 1;
    glfwGetWindowContentScale(window, &scale, &vertical);
    event.scale = std::round(static_cast<double>(scale) * 8) / 8;  // no blur for 96.3 dpi
  }
  input.events.push_back(event);
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
    if (name == "width") {
      options.width = std::clamp(value, 320, 8000);
    } else if (name == "height") {
      options.height = std::clamp(value, 240, 8000);
    } else if (name == "dark") {
      state.dark = value != 0;
    } else if (name == "wheel_zooms") {
      state.wheel_zooms = value != 0;
    } else if (name == "memory") {
      state.memory = value != 0;
    } else if (name == "links") {
      state.links = value != 0;
    } else if (name == "streams") {
      state.streams = value != 0;
    } else if (name == "text_percent") {
      state.text_scale = std::clamp(value, 50, 300) / 100.0;
    } else if (name == "color_by") {
      state.color_by = static_cast<ColorBy>(
          std::clamp(value, 0, static_cast<std::int32_t>(ColorBy::Difference) - 1));
    }
  }
}

void save(const std::string& path, const ViewState& state) {
  if (path.empty()) return;
  std::error_code ignored;  // no folder for it: then it is not kept
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  FileWriter out(path);
  out << "width " << state.pixel_width << "\nheight " << state.pixel_height << "\ntext_percent "
      << static_cast<std::int32_t>(std::lround(state.text_scale * 100)) << "\ncolor_by "
      << static_cast<std::int32_t>(state.color_by == ColorBy::Difference ? ColorBy::Kinds
                                                                         : state.color_by)
      << "\ndark "
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
    canvas_.reset();  // while its context is current
    if (window_ != nullptr) glfwDestroyWindow(window_);
    if (started_) glfwTerminate();
  }

  Result<WindowResult> run() {
    constexpr double kLastInput = 0.2;  // [s] for events that are still on their way
    ViewState kept;
    if (!options_.state_file.empty()) load(options_.state_file, options_, kept);
    if (const Result<> opened = open(); !opened) return opened.error();
    int width = 0, height = 0;
    glfwGetFramebufferSize(window_, &width, &height);
    state_ = initial_state(session_, width, height, std::max(1.0, options_.scale));
    on_resize(window_, width, height);
    state_.text_scale = kept.text_scale;
    for (const Event& event : std::exchange(input_.events, {}))
      state_ = reduce(session_, std::move(state_), event);
    state_.dark = kept.dark;
    state_.wheel_zooms = kept.wheel_zooms;
    state_.memory = kept.memory;
    state_.links = kept.links;
    state_.streams = kept.streams;
    state_.color_by = kept.color_by;
    for (const Event& event : options_.events) handle(event);
    double until = glfwGetTime() + options_.linger_s;
    double last = glfwGetTime();
    draw();
    while (glfwWindowShouldClose(window_) == 0 && !state_.wants_quit) {
      if (options_.capture && options_.until && options_.until()) {
        until = std::max(until, glfwGetTime()) + kLastInput;
        options_.until = nullptr;
      }
      if (options_.capture && !options_.until && glfwGetTime() >= until) break;
      if (state_.playing) {
        glfwPollEvents();
      } else if (options_.capture) {
        glfwWaitEventsTimeout(0.02);
      } else {
        glfwWaitEvents();  // nothing to do: no work
      }
      const double now = glfwGetTime();
      bool changed = false;
      for (const Event& event : std::exchange(input_.events, {}))
        changed = handle(event) || changed;
      if (state_.playing)
        changed = handle({.type = Event::Type::Tick, .seconds = now - last}) || changed;
      last = now;
      if (state_.wants_export) {
        write_picture();
        changed = true;
      }
      if (std::exchange(input_.exposed, false) || changed) draw();
    }
    save(options_.state_file, state_);
    if (!recorded_.empty() && !options_.record.empty()) {
      FileWriter out(options_.record);
      out << recorded_;
      if (const Result<> done = out.finish(); !done) return done.error();
    }
    WindowResult result{.state = state_, .frames = frames_};
    if (options_.capture) capture(result);
    return result;
  }

 private:
  Result<> open() {
    glfwSetErrorCallback([](int, const char* text) { last_glfw_error = text; });
    if (glfwInit() == 0) {
      return Error{"no display: " + last_glfw_error +
                   "; without one: --png FILE or --svg FILE draws what the window would show"};
    }
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
    glfwSetFramebufferSizeCallback(window_, on_resize);
    input_.follows_screen = options_.scale <= 0;
    glfwSetWindowRefreshCallback(window_, on_refresh);
    canvas_ = std::make_unique<GlCanvas>();
    return canvas_->ready() ? Result<>{} : Result<>(Error{"OpenGL could not be set up"});
  }

  // True if the picture changed.
  bool handle(const Event& event) {
    if (!options_.record.empty()) recorded_ += to_script(event);
    ViewState next = reduce(session_, state_, event);
    const bool changed = !(next == state_);
    state_ = std::move(next);
    return changed;
  }

  void draw() {
    int width = 0, height = 0;
    glfwGetFramebufferSize(window_, &width, &height);
    ++frames_;
    canvas_->draw(view_scene(session_, state_, cache_), width, height);
    if (!capturing_) glfwSwapBuffers(window_);
  }

  void write_picture() {
    state_.wants_export = false;
    FileWriter out(options_.export_file);
    out << svg(view_scene(session_, state_));
    const Result<> done = out.finish();
    std::error_code ignored;
    state_.notice = done ? "written: " + std::filesystem::absolute(options_.export_file, ignored)
                                             .string()
                         : done.error().message;
    if (!done) std::fprintf(stderr, "rehearse: %s\n", done.error().message.c_str());
  }

  void capture(WindowResult& result) {
    capturing_ = true;
    draw();
    glfwGetFramebufferSize(window_, &result.width, &result.height);
    result.pixels = GlCanvas::pixels(result.width, result.height);
  }

  const Session& session_;
  WindowOptions options_;
  ViewState state_;
  SceneCache cache_;
  Input input_;
  GLFWwindow* window_ = nullptr;
  std::unique_ptr<GlCanvas> canvas_;
  bool started_ = false, capturing_ = false;
  std::int64_t frames_ = 0;
  std::string recorded_;
};

}  // namespace

Result<WindowResult> window_module::run(const Session& session, const WindowOptions& options) {
  return Window(session, options).run();
}

}  // namespace rehearse::viz
