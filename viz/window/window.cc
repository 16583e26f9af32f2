// SPDX-License-Identifier: Apache-2.0
#include "viz/window/window.h"

#include <GLFW/glfw3.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "schedules/base/json_reader.h"
#include "viz/export/file_writer.h"
#include "viz/picture/formats/svg.h"
#include "viz/picture/letters/letters.h"
#include "viz/window/gl_canvas.h"
#include "viz/window/script.h"
#include "viz/window/state/settings.h"
#include "viz/window/view/scene.h"
#include "viz/window/widgets/input.h"
#include "viz/window/widgets/widgets.h"
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
                                                    {GLFW_KEY_TAB, Key::Tab},
                                                    {GLFW_KEY_DELETE, Key::Delete},
                                                    {GLFW_KEY_HOME, Key::Home},
                                                    {GLFW_KEY_END, Key::End},
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

std::string utf8(unsigned code) {
  if (code < 0x80) return {static_cast<char>(code)};
  std::string text;
  const int tail = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  constexpr std::array<unsigned, 4> kLead{0, 0xC0, 0xE0, 0xF0};
  text += static_cast<char>(kLead[static_cast<std::size_t>(tail)] | code >> (6 * tail));
  for (int i = tail - 1; i >= 0; --i) text += static_cast<char>(0x80 | (code >> (6 * i) & 0x3F));
  return text;
}

void on_character(GLFWwindow* window, unsigned code) {
  Input& input = input_of(window);
  const bool key = code == '/' || code == '?';
  Event event = input.at(key ? Event::Type::Key : Event::Type::Text);
  event.text = utf8(code);
  if (key) {
    event.key = code == '/' ? Key::Slash : Key::Question;
    event.shift = false;
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
    read_settings();
    if (const Result<> opened = open(); !opened) return opened.error();
    int width = 0, height = 0;
    glfwGetFramebufferSize(window_, &width, &height);
    state_ = initial_state(session_, width, height, std::max(1.0, options_.scale));
    settings_.apply(state_);
    state_.widgets = true;
    on_resize(window_, width, height);
    for (const Event& event : std::exchange(input_.events, {}))
      state_ = reduce(session_, std::move(state_), event);
    for (const Event& event : options_.events) handle(event);
    double until = glfwGetTime() + options_.linger_s;
    double last = glfwGetTime();
    draw();
    session_.prepare();
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
      for (const Event& event : std::exchange(input_.events, {})) changed = take(event) || changed;
      if (state_.playing)
        changed = handle({.type = Event::Type::Tick, .seconds = now - last}) || changed;
      last = now;
      if (state_.wants_export) {
        write_picture();
        changed = true;
      }
      if (std::exchange(input_.exposed, false) || changed) draw();
    }
    write_settings();
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
                   "; without one: --png FILE or --svg FILE draws what the window would show, "
                   "rehearse render TRACE --html FILE makes a page to look into"};
    }
    started_ = true;
    glfwWindowHint(GLFW_CONTEXT_VERSION_MAJOR, 3);
    glfwWindowHint(GLFW_CONTEXT_VERSION_MINOR, 3);
    glfwWindowHint(GLFW_OPENGL_PROFILE, GLFW_OPENGL_CORE_PROFILE);
    const Trace& first = session_.at(0).trace();
    const std::string title =
        "rehearse: " + (first.title.empty() ? first.schedule_name : first.title);
    ViewState size;
    settings_.apply(size);
    window_ = glfwCreateWindow(options_.width > 0 ? options_.width : size.pixel_width,
                               options_.height > 0 ? options_.height : size.pixel_height,
                               title.c_str(), nullptr, nullptr);
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
    if (!canvas_->ready()) return Error{"OpenGL could not be set up"};
    widgets_ = std::make_unique<Widgets>(canvas_->fonts());
    widget_input_ = std::make_unique<WidgetInput>([this] { frame(); });
    canvas_->use_clipboard(
        [](void* window, const char* text) {
          glfwSetClipboardString(static_cast<GLFWwindow*>(window), text);
        },
        [](void* window) { return glfwGetClipboardString(static_cast<GLFWwindow*>(window)); },
        window_);
    if (const std::string why = why_no_letters(); !why.empty())
      std::fprintf(stderr, "rehearse: view: %s\n", why.c_str());
    return {};
  }

  // What a person chose last. A file that is broken is said once, and written anew.
  void read_settings() {
    std::error_code none;
    if (options_.settings_file.empty() || !std::filesystem::exists(options_.settings_file, none))
      return;
    constexpr std::size_t kMost = 1 << 16;
    const Result<std::string> text = read_text_file(options_.settings_file, kMost);
    Result<Settings> read =
        text ? Settings::parse(text.value(), options_.settings_file) : text.error();
    if (read) {
      settings_ = std::move(read).value();
    } else {
      std::fprintf(stderr, "rehearse: %s: as if there were no such file\n",
                   read.error().message.c_str());
    }
  }
  void write_settings() {
    if (options_.settings_file.empty()) return;
    std::error_code ignored;  // no folder for it: then the next line says so
    std::filesystem::create_directories(std::filesystem::path(options_.settings_file).parent_path(),
                                        ignored);
    if (const Result<> done = write_whole(options_.settings_file, settings_.text(state_)); !done)
      std::fprintf(stderr, "rehearse: %s\n", done.error().message.c_str());
  }

  // Events that are not the widgets' are the state's. True if the picture changed.
  bool take(const Event& event) {
    changed_ = false;
    if (!widget_input_->takes(event, state_)) return handle(event) || changed_;
    if (event.type == Event::Type::Move) {  // nothing of the lanes is under the mouse
      Event away = event;
      away.x = away.y = -1;
      changed_ = handle(away) || changed_;
    }
    return true;
  }
  bool handle(const Event& event) {
    if (!options_.record.empty()) recorded_ += to_script(event);
    ViewState next = reduce(session_, state_, event);
    const bool changed = !(next == state_);
    state_ = std::move(next);
    constexpr int kSettle = 6;  // frames until a field that was opened takes letters
    if (state_.field != before_) {
      before_ = state_.field;
      for (int i = 0; i < kSettle && widgets_->unsettled(state_); ++i) frame();
    }
    if (!state_.clipboard.empty()) {
      glfwSetClipboardString(window_, state_.clipboard.c_str());
      state_.clipboard.clear();
    }
    return changed;
  }

  // The widgets without a picture, and what a person did with them.
  void frame() {
    int width = 0, height = 0;
    glfwGetFramebufferSize(window_, &width, &height);
    std::vector<Event> events;
    canvas_->frame(state_.scale(), width, height,
                   [&] { events = widgets_->build(session_, state_); });
    for (const Event& event : events) changed_ = handle(event) || changed_;
  }

  void draw() {
    constexpr int kMost = 3;  // what widgets do as they are drawn is drawn, too
    std::vector<Event> events;
    for (int i = 0; i < kMost && (i == 0 || !events.empty()); ++i) {
      for (const Event& event : std::exchange(events, {})) handle(event);
      int width = 0, height = 0;
      glfwGetFramebufferSize(window_, &width, &height);
      canvas_->draw(view_scene(session_, state_, cache_), width, height,
                    [&] { events = widgets_->build(session_, state_); });
    }
    ++frames_;
    if (!capturing_) glfwSwapBuffers(window_);
  }

  void write_picture() {
    state_.wants_export = false;
    FileWriter out(options_.export_file);
    out << svg(view_scene(session_, state_));
    const Result<> done = out.finish();
    std::error_code ignored;
    state_.notice =
        done ? "written: " + std::filesystem::absolute(options_.export_file, ignored).string()
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
  std::unique_ptr<Widgets> widgets_;
  std::unique_ptr<WidgetInput> widget_input_;
  Settings settings_;
  Field before_ = Field::None;  // that was settled
  bool changed_ = false;        // by what came out of the widgets
  bool started_ = false, capturing_ = false;
  std::int64_t frames_ = 0;
  std::string recorded_;
};

}  // namespace

Result<WindowResult> window_module::run(const Session& session, const WindowOptions& options) {
  return Window(session, options).run();
}

}  // namespace rehearse::viz
