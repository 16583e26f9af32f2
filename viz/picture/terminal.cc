// SPDX-License-Identifier: Apache-2.0
#include "viz/picture/terminal.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "viz/analysis/analysis.h"
#include "viz/analysis/units_text.h"
#include "viz/picture/colors.h"
#include "viz/picture/legend.h"

namespace rehearse::viz {
namespace {

char letter_of(Kind kind, const Coloring* coloring) {
  if (!is_idle(kind) && coloring != nullptr) return coloring->letter(kind);
  if (is_idle(kind)) {
    switch (cause_of(kind)) {
      case IdleCause::Communication:
      case IdleCause::Contention:
        return '~';
      case IdleCause::Straggler:
        return '!';
      case IdleCause::Host:
        return ':';
      default:
        return '.';
    }
  }
  switch (static_cast<OpKind>(kind)) {
    case OpKind::Forward:
      return 'F';
    case OpKind::Backward:
      return 'B';
    case OpKind::InputGradient:
      return 'I';
    case OpKind::WeightGradient:
      return 'W';
    case OpKind::Recompute:
      return 'R';
    case OpKind::Overlap:
      return 'X';
    case OpKind::OptimizerStep:
      return 'O';
    case OpKind::GradNorm:
      return 'N';
    default:
      return 'C';
  }
}

// The nearest of xterm's 6 x 6 x 6 colours.
int ansi_color(Color c) {
  const auto level = [](std::uint8_t v) { return (v * 5 + 127) / 255; };
  return 16 + 36 * level(c.red) + 6 * level(c.green) + level(c.blue);
}

struct Cell {
  char letter = ' ';
  Color color;
};

Cell cell_of(const LaneIndex& lane, const LaneIndex& idle, std::int64_t begin, std::int64_t end,
             const Coloring* coloring) {
  std::array<std::int64_t, kNumKinds> time;
  std::int64_t busy = 0, most = 0, most_idle = 0;
  Kind kind = 0, cause = kind_of(IdleCause::Dependency);
  lane.busy(begin, end, time.data());
  for (std::size_t k = 0; k < static_cast<std::size_t>(lane.num_kinds); ++k) {
    busy += time[k];
    if (time[k] > most) {
      most = time[k];
      kind = lane.kinds[k];
    }
  }
  idle.busy(begin, end, time.data());
  for (std::size_t k = 0; k < static_cast<std::size_t>(idle.num_kinds); ++k) {
    if (time[k] > most_idle) {
      most_idle = time[k];
      cause = idle.kinds[k];
    }
  }
  const std::int64_t rest = end - begin - busy;
  if (rest > busy) return {letter_of(cause, coloring), {120, 120, 120}};
  char letter = letter_of(kind, coloring);
  if (rest * 20 >= end - begin) letter = static_cast<char>(std::tolower(letter));
  const KindStyle style =
      coloring == nullptr ? style_of(kind, Theme::Light) : coloring->style(kind, Theme::Light);
  return {letter, style.fill};
}

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

}  // namespace

std::string terminal_row(const TraceIndex& index, std::int32_t row, std::int64_t begin,
                         std::int64_t end, std::int64_t columns, bool color,
                         const Coloring* coloring) {
  const Trace& trace = index.trace();
  std::string out;
  int last = -1;
  for (std::int64_t c = 0; c < columns; ++c) {
    const auto edge = [&](std::int64_t i) {
      return begin + (end - begin) / columns * i + (end - begin) % columns * i / columns;
    };
    if (edge(c) >= trace.end.value || edge(c + 1) <= trace.begin.value) {  // beside the step
      out += ' ';
      continue;
    }
    const Cell cell =
        cell_of(index.lane(row * trace.slots), index.idle(row), edge(c), edge(c + 1), coloring);
    if (color && ansi_color(cell.color) != last) {
      last = ansi_color(cell.color);
      out += "\x1b[38;5;" + std::to_string(last) + "m";
    }
    out += cell.letter;
  }
  return color ? out + "\x1b[0m" : out;
}

std::string terminal_chart(const TraceIndex& index, const TerminalOptions& options) {
  const Trace& trace = index.trace();
  const bool whole = options.begin == options.end;
  const std::int64_t begin = whole ? trace.begin.value : options.begin.value;
  const std::int64_t end = std::max(begin + 1, whole ? trace.end.value : options.end.value);
  const std::int32_t last =
      options.last_row < 0 ? trace.num_rows() : std::min(options.last_row, trace.num_rows());
  const std::int32_t first = std::clamp(options.first_row, 0, last);
  const std::int64_t columns = std::min<std::int64_t>(std::max(10, options.columns), end - begin);

  std::size_t label = 4;
  for (std::int32_t row = first; row < last; ++row) {
    label = std::max(label, row_name(trace, {row}).size());
  }
  std::string out = (trace.title.empty() ? trace.schedule_name : trace.title) + "\n";
  out += trace.label == TraceLabel::Predicted ? "predicted" : "measured";
  out += ", one step takes " + time_text(trace.step().value) + ", each column " +
         time_text((end - begin) / columns) + "\n";
  for (std::int32_t row = first; row < last && trace.slots > 0; ++row) {
    out += padded(row_name(trace, {row}), label) + " |";
    out += terminal_row(index, row, begin, end, columns, options.color, options.coloring);
    const Summary sum = summarize(index, begin, end, row, row + 1);
    out += "| idle " + percent_text(sum.bubble_ratio()) + "\n";
  }
  const Summary sum = summarize(index, begin, end, first, last);
  out += "bubbles: " + bubbles_text(sum);
  out += "\nthe ranks' time: ";
  bool first_entry = true;
  const std::vector<LegendEntry> entries = options.coloring == nullptr
                                               ? legend(sum, Theme::Light)
                                               : legend(sum, *options.coloring, Theme::Light);
  for (const LegendEntry& entry : entries) {
    if (!entry.shown) continue;
    out += (first_entry ? "" : ", ") + entry.name + " " + percent_text(entry.share);
    first_entry = false;
  }
  out += '\n';
  if (options.coloring == nullptr) {
    out +=
        "F forward  B backward  I its input half  W its weight half  R recompute  X both  "
        "O optimizer  C communication\n";
  }
  out +=
      ". bubble  ~ waits for communication  ! for a straggler  : for the host  "
      "small letter: idles for a part of the column\n";
  return out;
}

}  // namespace rehearse::viz
