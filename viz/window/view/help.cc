// SPDX-License-Identifier: Apache-2.0
// Keys and mouse: what the commands are called, and what the mouse does. First what goes with what
// is open; what does nothing here is pale.
#include <array>
#include <vector>

#include "viz/window/state/commands.h"
#include "viz/window/view/context.h"

namespace rehearse::viz {
namespace {

struct HelpLine {
  std::string keys, words;
  bool possible = true;
};
using Deed = std::pair<std::string_view, std::string_view>;

constexpr std::array<Deed, 11> kMouse{{
    {"Ctrl + wheel", "Zoom at the mouse"},
    {"Shift + drag, right drag", "Pan"},
    {"wheel", "Scroll the rows, or the table"},
    {"click, double click", "Select an op or a bubble; go to it"},
    {"drag", "Measure a range"},
    {"mouse over a bubble", "Its causes, and whom it waits for"},
    {"click a memory curve", "What is alive then and at the peak"},
    {"click a rank's name", "Fold its streams; Shift: pin it; Ctrl: all of its class"},
    {"click the axis", "Scrub"},
    {"click a head of a table", "Sort by it"},
    {"click a line of a table", "Go there, or ask for that kind"},
}};
constexpr std::array<Deed, 5> kHeatMouse{{
    {"Y, Shift + Y", "Back to the lanes; what the map counts"},
    {"Ctrl + Shift + wheel", "Fewer ranks, or more"},
    {"wheel, right drag", "Other ranks"},
    {"click", "Select what the worst rank of a cell does then"},
    {"double click", "To that rank's lane"},
}};
constexpr std::array<Deed, 3> kTableKeys{{
    {"click a head", "Sort; again: the other way round"},
    {"click a line", "Go there, or ask for that kind"},
    {"Ctrl + C, Escape", "Copy it as text; close it"},
}};
constexpr std::array<Deed, 3> kFieldKeys{{
    {"Tab, Enter", "The next field; done"},
    {"F,SEND  0-15,32  0-62/2  2ms", "Kinds; numbers and ranges; every second; a length"},
    {"Up, Down", "In the search: the hit before, the next"},
}};
constexpr std::array<Deed, 4> kTwoKeys{{
    {"Q", "Steps begin together, the selected op, or clocks"},
    {"Shift + L", "Lanes of how far the second is behind"},
    {"Shift + D", "Colours: how much longer each op takes"},
    {"E", "Causes from the first step to the second"},
}};

void add(std::span<const Deed> deeds, std::vector<HelpLine>& lines) {
  for (const auto& [keys, words] : deeds) lines.push_back({std::string(keys), std::string(words)});
}

// What goes with what is open.
std::vector<HelpLine> here(const ViewContext& c) {
  std::vector<HelpLine> lines;
  if (c.state.heats) add(kHeatMouse, lines);
  if (c.state.table != TableKind::None) add(kTableKeys, lines);
  if (c.at.fields_height > 0) add(kFieldKeys, lines);
  if (c.session.compares()) add(kTwoKeys, lines);
  return lines;
}

void draw_help_lines(const ViewContext& c, Scene& layer, std::span<const HelpLine> lines, double x,
                     double y, double width, double line) {
  const std::size_t half = (lines.size() + 1) / 2;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const double left = x + (i < half ? 0 : width / 2),
                 at = y + line * static_cast<double>(i % half);
    add_text(layer, left, at, clipped(lines[i].keys, TextSize::Small, 164), TextSize::Small,
             lines[i].possible ? c.colors.text : c.colors.faint_text);
    add_text(layer, left + 170, at, clipped(lines[i].words, TextSize::Small, width / 2 - 182),
             TextSize::Small, c.colors.faint_text);
  }
}

}  // namespace

void draw_help(const ViewContext& c, Scene& layer) {
  const std::vector<HelpLine> first = here(c);
  std::vector<HelpLine> lines;
  add(kMouse, lines);
  for (const Command& one : commands()) {
    if (one.chord.key == Key::None) continue;
    lines.push_back(
        {chord_text(one.chord), std::string(one.words), is_possible(one, c.session, c.state)});
  }
  constexpr double kHelpHead = 44, kApart = 26;
  const auto rows = [](std::size_t count) { return static_cast<double>((count + 1) / 2); };
  const double heads = kHelpHead + (first.empty() ? 0 : kApart);
  const double width = std::min(1080.0, c.state.width - 20.0);
  const double line =
      std::min(20.0, (c.state.height - heads - 16.0) / (rows(lines.size()) + rows(first.size())));
  const double height = line * (rows(lines.size()) + rows(first.size())) + heads;
  const double x = (c.state.width - width) / 2, y = std::max(4.0, (c.state.height - height) / 2);
  draw_box(c, layer, x, y, width, height);
  double at = y + 26;
  if (!first.empty()) {
    add_text(layer, x + 18, at, "What is open", TextSize::Title, c.colors.text);
    draw_help_lines(c, layer, first, x + 18, at + 20, width - 18, line);
    at += line * rows(first.size()) + kApart;
  }
  add_text(layer, x + 18, at, "Keys and mouse", TextSize::Title, c.colors.text);
  draw_help_lines(c, layer, lines, x + 18, at + 20, width - 18, line);
}

}  // namespace rehearse::viz
