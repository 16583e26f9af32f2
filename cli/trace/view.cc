// SPDX-License-Identifier: Apache-2.0
// rehearse view: the timeline window; or, with a script, what it would show, without one.
#include <cstdlib>

#include "cli/commands.h"
#include "cli/trace/trace_options.h"
#include "cli/trace/waterfall_of.h"
#include "schedules/base/json_reader.h"
#include "viz/analysis/analysis.h"
#include "viz/analysis/two/align.h"
#include "viz/import/import.h"
#include "viz/picture/formats/png.h"
#include "viz/picture/formats/svg.h"
#include "viz/window/offscreen.h"
#include "viz/window/script.h"
#include "viz/window/view/scene.h"
#include "viz/window/window.h"

namespace rehearse::cli {
namespace {

struct ViewOptions {
  std::vector<std::string> traces;
  std::string script, record, svg, png, screenshot;
  std::int32_t width = 0, height = 0;
  double linger = 0, scale = 0;
  bool opengl = false;
};

// Where a person's choices are kept (XDG base directory specification).
std::string settings_file() {
  if (const char* folder = std::getenv("XDG_CONFIG_HOME"); folder != nullptr && *folder != '\0')
    return std::string(folder) + "/rehearse/view";
  const char* home = std::getenv("HOME");
  return home == nullptr ? std::string{} : std::string(home) + "/.config/rehearse/view";
}

Result<std::vector<viz::Event>> events_of(const std::string& path) {
  if (path.empty()) return std::vector<viz::Event>{};
  const Result<std::string> text = read_text_file(path, 1 << 26);
  if (!text) return text.error();
  return viz::parse_script(text.value(), path);
}

int replay(const viz::Session& session, const ViewOptions& options,
           const std::vector<viz::Event>& events) {
  const viz::ViewState usual;
  viz::ViewState state =
      viz::initial_state(session, options.width > 0 ? options.width : usual.pixel_width,
                         options.height > 0 ? options.height : usual.pixel_height,
                         options.scale > 0 ? options.scale : 1);
  state.widgets = options.opengl;
  for (const viz::Event& event : events) {
    state = viz::reduce(session, std::move(state), event);
    if (!state.refused.empty()) return fail("view: " + options.script + ": " + state.refused);
  }
  const viz::Scene scene = viz::view_scene(session, state);
  if (!options.svg.empty()) {
    if (const int code = write_file(options.svg, viz::svg(scene)); code != kDone) return code;
  }
  if (options.png.empty()) return kDone;
  say_lost_letters(scene, options.png);
  if (!options.opengl) return write_file(options.png, viz::png(scene));
  const Result<std::vector<std::uint32_t>> drawn = viz::draw_offscreen(session, state);
  if (!drawn) {
    return fail(
        "view: --opengl: " + drawn.error().message + "; leave it out to draw without OpenGL",
        kRunFailed);
  }
  return write_file(options.png, viz::encode_png(scene.pixel_width(), scene.pixel_height(),
                                                 drawn.value(), false));
}

int view(const ViewOptions& options) {
  if (options.traces.size() > 2) return fail("view: one trace, or two to lay side by side");
  if (!ends_as(options.svg, "--svg", ".svg") || !ends_as(options.png, "--png", ".png") ||
      !ends_as(options.screenshot, "--screenshot", ".png")) {
    return kBadInput;
  }
  std::vector<Trace> traces;
  for (const std::string& path : options.traces) {
    Result<Trace> trace = viz::load_trace(path);
    if (!trace) return fail(trace.error().message);
    if (trace.value().num_ops() == 0) return fail(path + ": the trace is empty");
    traces.push_back(std::move(trace).value());
  }
  std::optional<viz::Waterfall> waterfall;
  if (traces.size() == 2) {
    for (Trace& trace : traces) {
      if (trace.idle.empty()) viz::attribute_idle(trace);
    }
    waterfall = waterfall_of(traces[0], traces[1]);
    viz::align_rows(traces[0], traces[1]);
  }
  std::vector<viz::Document> documents;
  for (Trace& trace : traces) documents.emplace_back(std::move(trace));
  const viz::Session session(std::move(documents), std::move(waterfall));
  Result<std::vector<viz::Event>> events = events_of(options.script);
  if (!events) return fail(events.error().message);
  if (!options.svg.empty() || !options.png.empty()) return replay(session, options, events.value());
  const bool test = !options.screenshot.empty();
  const Result<viz::WindowResult> done =
      viz::run_window(session, {.width = options.width,
                                .height = options.height,
                                .scale = options.scale,
                                .record = options.record,
                                .settings_file = test ? std::string{} : settings_file(),
                                .events = std::move(events).value(),
                                .capture = test,
                                .linger_s = options.linger});
  if (!done) return fail("view: " + done.error().message);
  const viz::WindowResult& shown = done.value();
  if (!test) return kDone;
  return write_file(options.screenshot,
                    viz::encode_png(shown.width, shown.height, shown.pixels, false));
}

}  // namespace

Command view_command() {
  const auto o = std::make_shared<ViewOptions>();
  Command command{"view", "open the timeline window"};
  command.options = {
      required({"TRACE", &o->traces, "one trace, or two on one time axis"}),
      {"--script", &o->script, "replay recorded events; with --svg or --png without a window"},
      writes({"--svg", &o->svg, "write what the window would show"}),
      writes({"--png", &o->png, "the same as pixels"}),
      {"--opengl", &o->opengl, "draw --png as the window does, by OpenGL on EGL without a display"},
      writes({"--record", &o->record, "write the window's events to FILE"}),
      {"--width", &o->width, "of the window in pixels (default: as it was last, else 1440)",
       Whole{320, 8000}},
      {"--height", &o->height, "of the window in pixels (default: as it was last, else 900)",
       Whole{240, 8000}},
      {"--scale", &o->scale, "pixels per unit, as of a screen of 2 (default: the screen's, else 1)",
       Number{0.5, 4}},
      writes({"--screenshot", &o->screenshot, "write the window's pixels as PNG and close"}),
      {"--linger", &o->linger, "take input for so many seconds before the screenshot",
       Number{0, 1e6}},
  };
  command.footer =
      "Example: rehearse simulate 3d-8-gpus --trace step.trace; rehearse view step.trace\n"
      "Press ? for the keys.";
  command.perform = [o](const Given&) { return view(*o); };
  return command;
}

}  // namespace rehearse::cli
