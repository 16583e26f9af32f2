// SPDX-License-Identifier: Apache-2.0
// rehearse render: a trace as a picture, without a display.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "cli/commands.h"
#include "cli/trace/trace_options.h"
#include "cli/trace/waterfall_of.h"
#include "cli/words.h"
#include "schedules/base/json_reader.h"
#include "viz/analysis/analysis.h"
#include "viz/analysis/two/align.h"
#include "viz/import/import.h"
#include "viz/page/page.h"
#include "viz/picture/experts/expert_map.h"
#include "viz/picture/figure.h"
#include "viz/picture/formats/png.h"
#include "viz/picture/formats/svg.h"
#include "viz/picture/ranks/heat_map.h"
#include "viz/picture/ranks/straggler_chart.h"
#include "viz/picture/terminal.h"
#include "viz/picture/two/pair_figure.h"
#include "viz/window/session.h"

namespace rehearse::cli {
namespace {

struct RenderOptions {
  std::vector<std::string> traces;
  std::string svg, png, html, report, range, ranks, title, heat, align, color_by = "kind";
  std::int32_t width = 1600;
  double scale = 1;
  bool text = false, dark = false, experts = false, stragglers = false;

  viz::Theme theme() const { return dark ? viz::Theme::Dark : viz::Theme::Light; }
};

// What the terminal has; a pipe gets a fixed width, so that its bytes do not depend on the window.
std::int32_t terminal_columns() {
  constexpr std::int32_t kLabels = 34;
  const char* columns = on_terminal(stdout) ? std::getenv("COLUMNS") : nullptr;
  const std::int32_t width = columns != nullptr ? std::atoi(columns) : 0;
  return width > kLabels + 20 ? width - kLabels : 100;
}

// The picture's width in pixels is what was asked for, whatever the scale.
std::int32_t units(const RenderOptions& options) {
  return std::max(400, static_cast<std::int32_t>(std::lround(options.width / options.scale)));
}

int write_pictures(const RenderOptions& options, viz::Scene scene) {
  scene.scale = options.scale;
  if (!options.svg.empty()) {
    if (const int code = write_file(options.svg, viz::svg(scene)); code != kDone) return code;
  }
  if (options.png.empty()) return kDone;
  say_lost_letters(scene, options.png);
  return write_file(options.png, viz::png(scene));
}

// What --range and --ranks ask for of a trace.
template <class Part>
Result<> parse_part(const RenderOptions& options, const Trace& trace, Part& part) {
  if (!options.range.empty()) {
    if (auto done = parse_range(options.range, trace, part.begin, part.end); !done) return done;
  }
  if (options.ranks.empty()) return {};
  return parse_ranks(options.ranks, trace, part.first_row, part.last_row);
}

// Over all steps of a run: no part of one step can be asked for.
int render_experts(const RenderOptions& options, const Trace& trace) {
  if (trace.expert_shape.empty()) {
    return fail("render: --experts: " + options.traces.front() +
                ": no rows of experts: the trace of a run of a model with experts has them");
  }
  if (options.text || !options.range.empty() || !options.ranks.empty()) {
    return fail("render: --experts draws all steps of a run: not --text, --range or --ranks");
  }
  return write_pictures(
      options, viz::expert_map(trace, {.theme = options.theme(), .width = units(options)}));
}

int render_heat(const RenderOptions& options, const viz::TraceIndex& index,
                const viz::FigureOptions& part) {
  const viz::HeatSource source(index);
  viz::HeatOf of = 0;
  while (viz::heat_name(of) != options.heat) ++of;
  if (!source.has(of)) {
    return fail("render: --heat " + options.heat + ": " + options.traces.front() +
                (of == viz::kHeatExcess
                     ? ": no ranks that do the same: a measured trace of several "
                       "replicas has them"
                     : ": no idle time of that cause"));
  }
  const viz::HeatOptions shown{.of = of,
                               .begin = part.begin,
                               .end = part.end,
                               .first_row = part.first_row,
                               .last_row = part.last_row};
  if (options.text) print_text(viz::heat_text(source, shown, terminal_columns()));
  return write_pictures(
      options,
      viz::heat_map(source, {.shown = shown, .theme = options.theme(), .width = units(options)}));
}

int render_stragglers(const RenderOptions& options, const Trace& trace) {
  if (!options.range.empty() || !options.ranks.empty())
    return fail("render: --stragglers tells of whole steps: not --range or --ranks");
  const std::vector<viz::WaitedFor> ranks = viz::waited_for_ranks(trace, viz::Causality(trace));
  if (options.text) print_text(viz::stragglers_text(trace, ranks));
  return write_pictures(
      options,
      viz::straggler_chart(trace, ranks, {.theme = options.theme(), .width = units(options)}));
}

// The two side by side, begun together by `--align`, and the causes between their steps.
int render_two(const RenderOptions& options, std::vector<Trace> traces) {
  if (options.experts || options.stragglers || !options.heat.empty() ||
      options.color_by != RenderOptions().color_by) {
    return fail("render: two traces: not --heat, --stragglers, --experts or --color-by");
  }
  const std::optional<viz::Waterfall> waterfall = waterfall_of(traces[0], traces[1]);
  viz::align_rows(traces[0], traces[1]);
  std::vector<viz::Document> documents;
  for (Trace& trace : traces) documents.emplace_back(std::move(trace));
  const viz::Session session(std::move(documents));
  const Trace &a = session.at(0).trace(), &b = session.at(1).trace();
  viz::PairOptions shown{.theme = options.theme(), .width = units(options)};
  if (const auto done = parse_part(options, a, shown); !done) return fail(done.error().message);
  std::vector<OpId> same;
  for (OpId op{0}; session.corresponds() && op.value < b.num_ops(); ++op.value)
    same.push_back(session.counterpart({1, op}));
  const auto align = std::ranges::find(viz::kAlignNames, options.align);
  viz::Align how = options.align.empty()
                       ? viz::Align::Step
                       : static_cast<viz::Align>(align - viz::kAlignNames.begin());
  OpId chosen;
  std::string aligned = how == viz::Align::Wall ? "on one clock" : "steps begin together";
  if (align == viz::kAlignNames.end() && !options.align.empty()) {
    how = viz::Align::Op;
    for (OpId op{0}; op.value < b.num_ops() && !chosen && !same.empty(); ++op.value) {
      if (same[op.index()] && op_name(b, op) == options.align) chosen = op;
    }
    if (!chosen) {
      return fail("render: --align " + options.align +
                  ": neither step nor wall, and no op of that name in both traces");
    }
    aligned = options.align + " begins together, on " + row_name(a, a.row_of(same[chosen.index()]));
  }
  const viz::Pair pair{
      .a = session.at(0).index(),
      .b = session.at(1).index(),
      .same = same,
      .origin = viz::origin_of_second(a, b, how, chosen ? same[chosen.index()] : OpId{}, chosen),
      .aligned = aligned,
      .waterfall = waterfall ? &*waterfall : nullptr};
  if (options.text) print_text(viz::pair_text(pair, shown, terminal_columns(), takes_color()));
  return write_pictures(options, viz::pair_figure(pair, shown));
}

// The whole step, one trace or two: what is shown of it, its reader chooses.
int render_page(const RenderOptions& options, std::vector<Trace> traces) {
  if (options.text || options.dark || options.experts || options.stragglers ||
      !options.heat.empty() || !options.align.empty() || !options.svg.empty() ||
      !options.png.empty() || !options.range.empty() || !options.ranks.empty() ||
      options.width != RenderOptions().width || options.scale != RenderOptions().scale ||
      options.color_by != RenderOptions().color_by) {
    return fail(
        "render: --html draws whole traces, for a reader to look into: not with --svg, --png, "
        "--text, --heat, --stragglers, --experts, --range, --ranks, --align, --width, --scale, "
        "--color-by or --dark");
  }
  std::string report;
  if (!options.report.empty()) {
    Result<std::string> text = read_text_file(options.report, 1 << 24);
    if (!text) return fail(text.error().message);
    report = std::move(text).value();
  }
  std::optional<viz::Waterfall> waterfall;
  if (traces.size() == 2) {
    waterfall = waterfall_of(traces[0], traces[1]);
    viz::align_rows(traces[0], traces[1]);
  }
  const std::string title = traces.front().title;
  const Result<std::string> page = viz::page(traces, {.title = title,
                                                      .report = report,
                                                      .version = REHEARSE_VERSION,
                                                      .waterfall = std::move(waterfall)});
  if (!page) return fail("render: --html: " + page.error().message, kRunFailed);
  return write_file(options.html, page.value());
}

int render(const RenderOptions& options) {
  if (options.svg.empty() && options.png.empty() && options.html.empty() && !options.text) {
    return fail("render: say what to make: --svg FILE, --png FILE, --html FILE or --text");
  }
  if (!ends_as(options.svg, "--svg", ".svg") || !ends_as(options.png, "--png", ".png") ||
      !ends_as(options.html, "--html", ".html")) {
    return kBadInput;
  }
  if (options.traces.size() > 2) return fail("render: one trace, or two to lay side by side");
  if (!options.align.empty() && options.traces.size() == 1)
    return fail("render: --align lays two traces side by side; this is one");
  if ((options.experts ? 1 : 0) + (options.stragglers ? 1 : 0) + (options.heat.empty() ? 0 : 1) > 1)
    return fail("render: one of --heat, --stragglers and --experts");
  if ((options.stragglers || !options.heat.empty()) &&
      options.color_by != RenderOptions().color_by) {
    return fail("render: --color-by is of ops: not with --heat or --stragglers");
  }
  if (options.html.empty() && !options.report.empty()) {
    return fail("render: --report goes with --html");
  }
  std::vector<Trace> traces;
  for (const std::string& path : options.traces) {
    Result<Trace> loaded = viz::load_trace(path);
    if (!loaded) return fail(loaded.error().message);
    traces.push_back(std::move(loaded).value());
    if (traces.back().idle.empty()) viz::attribute_idle(traces.back());
    if (!options.title.empty()) traces.back().title = options.title;
  }
  if (!options.html.empty()) return render_page(options, std::move(traces));
  if (traces.size() == 2) return render_two(options, std::move(traces));
  const Trace& trace = traces.front();

  viz::FigureOptions figure{.theme = options.theme(), .width = units(options)};
  const auto& names = viz::kColorByNames;
  figure.color_by =
      static_cast<viz::ColorBy>(std::ranges::find(names, options.color_by) - names.begin());
  if (const auto done = parse_part(options, trace, figure); !done)
    return fail(done.error().message);
  if (options.experts) return render_experts(options, trace);
  if (options.stragglers) return render_stragglers(options, trace);
  const viz::TraceIndex index(trace);
  if (!options.heat.empty()) return render_heat(options, index, figure);
  if (options.text) {
    const bool kinds = figure.color_by == viz::ColorBy::Kinds;
    const viz::Coloring coloring(trace, figure.color_by);
    const viz::TraceIndex colored(trace, coloring.classes());
    const std::string text =
        viz::terminal_chart(kinds ? index : colored, {.columns = terminal_columns(),
                                                      .color = takes_color(),
                                                      .begin = figure.begin,
                                                      .end = figure.end,
                                                      .first_row = figure.first_row,
                                                      .last_row = figure.last_row,
                                                      .coloring = kinds ? nullptr : &coloring});
    print_text(text);
  }
  return write_pictures(options, viz::figure(index, figure));
}

Choices heats() {
  Choices names;
  for (viz::HeatOf of = 0; of < viz::kNumHeats; ++of) names.emplace_back(viz::heat_name(of));
  return names;
}

}  // namespace

Command render_command() {
  const auto o = std::make_shared<RenderOptions>();
  Command command{"render", "draw a trace: SVG, PNG, a page, or text"};
  command.options = {
      required({"TRACE", &o->traces,
                "trace of simulate or run, or Chrome JSON; two stand side by side, with the causes "
                "between their steps"}),
      writes({"--svg", &o->svg, "write a vector picture"}),
      writes({"--png", &o->png, "write a pixel picture"}),
      writes({"--html", &o->html, "write a page to look into and to send: one file, no network"}),
      {"--report", &o->report, "with --html: a text to show beside, what simulate printed"},
      {"--text", &o->text, "draw in the terminal"},
      {"--experts", &o->experts, "of a run with experts: the rows of each, over all its steps"},
      {"--heat", &o->heat,
       "every rank over time: the share of its time that is idle, is of a cause, or exceeds the "
       "median of equal ranks",
       heats()},
      {"--stragglers", &o->stragglers, "the ranks for which others waited, and with which ops"},
      {"--align", &o->align,
       "two traces: step (they begin together), wall (one clock), or an op's name, as 2B5, that "
       "begins together"},
      {"--range", &o->range, "part of the step, for example 0:50ms"},
      {"--ranks", &o->ranks, "ranks to draw, for example 0-15"},
      {"--width", &o->width, "of the picture in pixels", Whole{400, 16000}},
      {"--scale", &o->scale, "pixels per unit: text and lines of 2 are twice as large",
       Number{0.5, 8}},
      {"--color-by", &o->color_by, "what the colour of an op stands for",
       Choices{"kind", "chunk", "direction", "microbatch", "cost", "rank", "layer"}},
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
