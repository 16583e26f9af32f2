// SPDX-License-Identifier: Apache-2.0
// Keys and mouse: what the commands are called, and what the mouse does.
#include <array>

#include "viz/window/state/commands.h"
#include "viz/window/view_context.h"

namespace rehearse::viz {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kMouse{{
    {"Ctrl + wheel", "Zoom at the mouse"},
    {"Shift + drag, right drag", "Pan"},
    {"wheel", "Scroll the rows, or the table"},
    {"click, double click", "Select an op or a bubble; go to it"},
    {"drag", "Measure a range"},
    {"mouse over a bubble", "Its causes, and whom it waits for"},
    {"click a memory curve", "What is alive then and at the peak"},
    {"click a rank's name", "Fold its streams; with Shift: pin it"},
    {"click the axis", "Scrub"},
    {"click a head of a table", "Sort by it"},
    {"click a line of a table", "Go there, or ask for that kind"},
}};

}  // namespace

void draw_help(const ViewContext& c, Scene& layer) {
  std::vector<std::pair<std::string, std::string>> lines;
  for (const auto& [what, words] : kMouse) lines.emplace_back(what, words);
  for (const Command& one : commands()) {
    if (one.chord.key != Key::None)
      lines.emplace_back(chord_text(one.chord), std::string(one.words));
  }
  const std::size_t half = (lines.size() + 1) / 2;
  constexpr double kHelpHead = 44;
  const double width = std::min(1080.0, c.state.width - 20.0);
  const double line =
      std::min(20.0, (c.state.height - kHelpHead - 16.0) / static_cast<double>(half));
  const double height = line * static_cast<double>(half) + kHelpHead;
  const double x = (c.state.width - width) / 2, y = std::max(4.0, (c.state.height - height) / 2);
  draw_box(c, layer, x, y, width, height);
  add_text(layer, x + 18, y + 26, "Keys and mouse", TextSize::Title, c.colors.text);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const double left = x + 18 + (i < half ? 0 : width / 2),
                 at = y + 50 + line * static_cast<double>(i % half);
    add_text(layer, left, at, lines[i].first, TextSize::Small, c.colors.text);
    add_text(layer, left + 170, at, clipped(lines[i].second, TextSize::Small, width / 2 - 200),
             TextSize::Small, c.colors.faint_text);
  }
}

}  // namespace rehearse::viz
