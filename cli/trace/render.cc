// SPDX-License-Identifier: Apache-2.0
// rehearse render: a trace as a picture, without a display.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "cli/commands.h"
#include "cli/trace/trace_options.h"
#include "cli/words.h"
#include "viz/analysis/analysis.h"
#include "viz/import/import.h"
#include "viz/picture/expert_map.h"
#include "viz/picture/figure.h"
#include "viz/picture/formats/png.h"
#include "viz/picture/formats/svg.h"
#include "viz/picture/terminal.h"

namespace rehearse::cli {
namespace {

struct Options {
  std::string trace, svg, png, range, ranks, title, color_by = "kind";
  std::int32_t width = 1600;
  double scale = 1;
  bool text = false, dark = false, experts = false;
};

// What the terminal has; a pipe gets a fixed width, so that its bytes do not depend on the window.
std::int32_t terminal_columns() {
  constexpr std::int32_t kLabels = 34;
  const char* columns = on_terminal(stdout) ? std::getenv("COLUMNS") : nullptr;
  const std::int32_t width = columns != nullptr ? std::atoi(columns) : 0;
  return width > kLabels + 20 ? width - kLabels : 100;
}

// The picture's width in pixels is what was asked for, whatever the scale.
std::int32_t units(const Options& options) {
  return std::max(400, static_cast<std::int32_t>(std::lround(options.width / options.scale)));
}

int write_pictures(const Options& options, viz::Scene scene) {
  scene.scale = options.scale;
  if (!options.svg.empty()) {
    if (const int code = write_file(options.svg, viz::svg(scene)); code != kDone) return code;
  }
  if (options.png.empty()) return kDone;
  say_lost_letters(scene, options.png);
  return write_file(options.png, viz::png(scene));
}

// Over all steps of a run: no part of one step can be asked for.
int render_experts(const Options& options, const Trace& trace) {
  if (trace.expert_shape.empty()) {
    return fail("render: --experts: " + options.trace +
                ": no rows of experts: the trace of a run of a model with experts has them");
  }
  if (options.text || !options.range.empty() || !options.ranks.empty()) {
    return fail("render: --experts draws all steps of a run: not --text, --range or --ranks");
  }
  return write_pictures(
      options, viz::expert_map(trace, {.theme = options.dark ? viz::Theme::Dark : viz::Theme::Light,
                                       .width = units(options)}));
}

int render(const Options& options) {
  if (options.svg.empty() && options.png.empty() && !options.text) {
    return fail("render: say what to make: --svg FILE, --png FILE or --text");
  }
  if (!ends_as(options.svg, "--svg", ".svg") || !ends_as(options.png, "--png", ".png")) {
    return kBadInput;
  }
  Result<Trace> loaded = viz::load_trace(options.trace);
  if (!loaded) return fail(loaded.error().message);
  Trace trace = std::move(loaded).value();
  if (trace.idle.empty()) viz::attribute_idle(trace);
  if (!options.title.empty()) trace.title = options.title;

  viz::FigureOptions figure{.theme = options.dark ? viz::Theme::Dark : viz::Theme::Light,
                            .width = units(options)};
  const auto& names = viz::kColorByNames;
  figure.color_by =
      static_cast<viz::ColorBy>(std::ranges::find(names, options.color_by) - names.begin());
  if (!options.range.empty()) {
    if (const auto done = parse_range(options.range, trace, figure.begin, figure.end); !done) {
      return fail(done.error().message);
    }
  }
  if (!options.ranks.empty()) {
    if (const auto done = parse_ranks(options.ranks, trace, figure.first_row, figure.last_row);
        !done) {
      return fail(done.error().message);
    }
  }
  if (options.experts) return render_experts(options, trace);
  const viz::TraceIndex index(trace);
  if (options.text) {
    const std::string text = viz::terminal_chart(index, {.columns = terminal_columns(),
                                                         .color = takes_color(),
                                                         .begin = figure.begin,
                                                         .end = figure.end,
                                                         .first_row = figure.first_row,
                                                         .last_row = figure.last_row});
    print_text(text);
  }
  return write_pictures(options, viz::figure(index, figure));
}

}  // namespace

Command render_command() {
  const auto o = std::make_shared<Options>();
  Command command{"render", "draw a trace: SVG, PNG, or text"};
  command.options = {
      required({"TRACE", &o->trace, "trace of simulate or run, or Chrome JSON"}),
      writes({"--svg", &o->svg, "write a vector picture"}),
      writes({"--png", &o->png, "write a pixel picture"}),
      {"--text", &o->text, "draw in the terminal"},
      {"--experts", &o->experts, "of a run with experts: the rows of each, over all its steps"},
      {"--range", &o->range, "part of the step, for example 0:50ms"},
      {"--ranks", &o->ranks, "ranks to draw, for example 0-15"},
      {"--width", &o->width, "of the picture in pixels", Whole{400, 16000}},
      {"--scale", &o->scale, "pixels per unit: text and lines of 2 are twice as large",
       Number{0.5, 8}},
      {"--color-by", &o->color_by, "what the colour of an op stands for",
       Choices{"kind", "chunk", "direction", "microbatch", "cost", "rank"}},
      {"--title", &o->title, "instead of the scenario's name"},
      {"--dark", &o->dark, "light on dark"},
  };
  command.footer =
      "Example: rehearse simulate 3d-8-gpus --trace step.trace; rehearse render step.trace --svg "
      "step.svg --range 0:50ms --ranks 0-3";
  command.perform = [o](const Given&) { return render(*o); };
  return command;
}

}  // namespace rehearse::cli
