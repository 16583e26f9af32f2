// SPDX-License-Identifier: Apache-2.0
#include "viz/window/state/commands.h"

#include <algorithm>
#include <charconv>

#include "viz/window/keys.h"
#include "viz/window/state/reducer.h"

namespace rehearse::viz {
namespace {

using Given = std::string_view;

template <bool ViewState::*kSwitch>
void toggle(Reducer& on, Given) {
  on.state.*kSwitch = !(on.state.*kSwitch);
  on.scroll_to(on.state.scroll);  // what is shown of a row may have changed its height
}
template <bool ViewState::*kSwitch>
bool is_on(const ViewState& state) {
  return state.*kSwitch;
}
template <TableKind kTable>
void show_table(Reducer& on, Given) {
  on.open_table(kTable);
}
template <TableKind kTable>
bool shows_table(const ViewState& state) {
  return state.table == kTable;
}

std::optional<std::int32_t> number_of(Given text) {
  std::int32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

void difference(Reducer& on, Given) {
  const bool shown = on.state.color_by == ColorBy::Difference;
  on.state.color_by = !shown && on.session.corresponds() ? ColorBy::Difference : ColorBy::Kinds;
}

void color(Reducer& on, Given name) {
  if (name.empty()) return on.color_by_next(1);
  const auto found = std::ranges::find(kColorByNames, name);
  const auto by = static_cast<ColorBy>(found - kColorByNames.begin());
  if (found == kColorByNames.end())
    return on.refuse("color: there is no colouring \"" + std::string(name) + "\"");
  if (by == ColorBy::Difference && !on.session.corresponds())
    return on.refuse("color: the difference wants two traces of one schedule");
  on.state.color_by = by;
}

void search(Reducer& on, Given text) {
  on.edit(Field::Search);
  on.state.search = text;
  on.state.table_first = 0;
}

void edit(Reducer& on, Given name) {
  for (std::size_t i = 0; i < kNumFields; ++i) {
    const auto field = static_cast<Field>(i);
    if (name == (field == Field::None ? "none" : field_name(field))) return on.edit(field);
  }
  on.refuse("edit: there is no field \"" + std::string(name) + "\"");
}

void type(Reducer& on, Given text) {
  if (on.state.field == Field::None) return on.refuse("type: no field is open");
  text_of(on.state, on.state.field) = text;
  on.state.table_first = 0;
  on.scroll_to(on.state.scroll);
}

// "kinds F,B": that part of the filter; without a text it asks for nothing.
void only(Reducer& on, Given words) {
  const Given name = words.substr(0, words.find(' '));
  const auto found = std::ranges::find(kFilterPartNames, name);
  if (found == kFilterPartNames.end()) {
    return on.refuse("only: \"" + std::string(name) +
                     "\" is none of kinds, ranks, chunks, microbatches, longer");
  }
  const auto part = static_cast<FilterPart>(found - kFilterPartNames.begin());
  const std::string text(words.substr(std::min(words.size(), name.size() + 1)));
  const std::string fault = filter_fault(on.session.at(0).trace(), part, text);
  if (!fault.empty()) return on.refuse("only " + std::string(name) + ": " + fault);
  on.state.filter.of(part) = text;
  on.scroll_to(on.state.scroll);
}

void pin(Reducer& on, Given text) {
  PinnedRow row = on.row_meant();
  if (!text.empty()) {
    row = {0, number_of(text).value_or(-1)};
    if (row.row < 0 || row.row >= on.session.at(0).trace().num_rows())
      return on.refuse("pin: there is no row " + std::string(text));
  }
  if (row.row < 0) return on.refuse("pin: no row is under the mouse and no op is selected");
  on.pin(row);
}

// "COLUMN", "COLUMN falling", or "none".
void sort(Reducer& on, Given words) {
  if (words == "none") {
    on.state.sorts[static_cast<std::size_t>(on.state.table)] = {};
    return;
  }
  const auto column = number_of(words.substr(0, words.find(' ')));
  if (!column) return on.refuse("sort: \"" + std::string(words) + "\" is no number of a column");
  on.sort_by(*column);
  if (words.ends_with(" falling") || words.ends_with(" rising"))
    on.state.sorts[static_cast<std::size_t>(on.state.table)].falling = words.ends_with("falling");
}

void line(Reducer& on, Given text) {
  const auto number = number_of(text);
  if (!number) return on.refuse("line: \"" + std::string(text) + "\" is no number of a line");
  on.activate(*number);
}

void play(Reducer& on, Given) {
  ViewState& state = on.state;
  state.playing = !state.playing;
  if (state.playing && (!state.play || *state.play >= on.step()))
    state.play = std::max(0.0, state.begin);
}

void phase(Reducer& on, double begin, double end) {
  on.show(begin, std::max(begin + 1, end));
}

// Rows of one menu follow one another in its order.
constexpr Command kCommands[] = {
    {"export",
     Menu::File,
     "Write this view as SVG",
     {Key::E, true},
     Key::None,
     {},
     [](Reducer& on, Given) { on.state.wants_export = true; }},
    {"copy",
     Menu::File,
     "Copy the table, or the selected op, as text",
     {Key::C, true},
     Key::None,
     {},
     [](Reducer& on, Given) { on.copy(); }},
    {"quit",
     Menu::File,
     "Close the window",
     {Key::Q, true},
     Key::None,
     {},
     [](Reducer& on, Given) { on.state.wants_quit = true; }},

    {"causes",
     Menu::View,
     "Causes of bubbles",
     {Key::B},
     Key::None,
     {},
     toggle<&ViewState::causes>,
     is_on<&ViewState::causes>},
    {"critical",
     Menu::View,
     "Critical path",
     {Key::C},
     Key::None,
     {},
     toggle<&ViewState::critical>,
     is_on<&ViewState::critical>},
    {"memory",
     Menu::View,
     "Memory under each rank",
     {Key::G},
     Key::None,
     {},
     toggle<&ViewState::memory>,
     is_on<&ViewState::memory>},
    {"links",
     Menu::View,
     "Links",
     {Key::L},
     Key::None,
     {},
     toggle<&ViewState::links>,
     is_on<&ViewState::links>},
    {"streams",
     Menu::View,
     "Other streams of a rank",
     {Key::H},
     Key::None,
     {},
     toggle<&ViewState::streams>,
     is_on<&ViewState::streams>},
    {"color",
     Menu::View,
     "The next colouring: kind, chunk, direction, …",
     {Key::K},
     Key::None,
     "chunk",
     color},
    {"color_back",
     Menu::None,
     "The colouring before",
     {Key::K, false, true},
     Key::None,
     {},
     [](Reducer& on, Given) { on.color_by_next(-1); }},
    {"difference",
     Menu::View,
     "Difference of two traces",
     {Key::D, false, true},
     Key::None,
     {},
     difference,
     [](const ViewState& state) { return state.color_by == ColorBy::Difference; }},
    {"inside",
     Menu::View,
     "Inside the selected op",
     {Key::O},
     Key::None,
     {},
     [](Reducer& on, Given) { on.state.inside = !on.state.inside && on.state.selected; },
     is_on<&ViewState::inside>},
    {"experts",
     Menu::View,
     "Rows of experts over the steps of a run",
     {Key::R},
     Key::None,
     {},
     [](Reducer& on, Given) {
       on.state.experts = !on.state.experts && !on.session.at(0).trace().expert_shape.empty();
     },
     is_on<&ViewState::experts>},
    {"pin",
     Menu::View,
     "Pin the row under the mouse, or of the selected op",
     {Key::P},
     Key::None,
     "0",
     pin},
    {"unpin",
     Menu::View,
     "Pin no row",
     {Key::P, false, true},
     Key::None,
     {},
     [](Reducer& on, Given) {
       on.state.pinned.clear();
       on.scroll_to(on.state.scroll);
     }},
    {"dark",
     Menu::View,
     "Dark",
     {Key::X},
     Key::None,
     {},
     toggle<&ViewState::dark>,
     is_on<&ViewState::dark>},
    {"wheel",
     Menu::View,
     "The wheel zooms, Ctrl + wheel scrolls",
     {Key::V},
     Key::None,
     {},
     toggle<&ViewState::wheel_zooms>,
     is_on<&ViewState::wheel_zooms>},
    {"larger",
     Menu::View,
     "Larger text",
     {Key::Plus, true},
     Key::Plus,
     {},
     [](Reducer& on, Given) { on.resize_text(1); }},
    {"smaller",
     Menu::View,
     "Smaller text",
     {Key::Minus, true},
     Key::Minus,
     {},
     [](Reducer& on, Given) { on.resize_text(-1); }},
    {"usual",
     Menu::View,
     "The screen's own size of text",
     {Key::Zero, true},
     Key::Zero,
     {},
     [](Reducer& on, Given) { on.resize_text(0); }},

    {"statistics",
     Menu::Tables,
     "Statistics per kind",
     {Key::T},
     Key::None,
     {},
     show_table<TableKind::Statistics>,
     shows_table<TableKind::Statistics>},
    {"hits",
     Menu::Tables,
     "Hits of the search",
     {},
     Key::None,
     {},
     show_table<TableKind::Hits>,
     shows_table<TableKind::Hits>},
    {"bubbles",
     Menu::Tables,
     "Bubbles by size",
     {Key::Z},
     Key::None,
     {},
     show_table<TableKind::Bubbles>,
     shows_table<TableKind::Bubbles>},
    {"peak",
     Menu::Tables,
     "What is alive at the peak of memory",
     {Key::I},
     Key::None,
     {},
     show_table<TableKind::Memory>,
     shows_table<TableKind::Memory>},
    {"sort", Menu::None, "sort the table by a column", {}, Key::None, "2 falling", sort},
    {"line", Menu::None, "go to what a line of the table tells of", {}, Key::None, "0", line},

    {"search", Menu::Go, "Search ops by name", {Key::Slash}, Key::None, "2B5", search},
    {"next_hit",
     Menu::Go,
     "The next hit",
     {Key::N},
     Key::None,
     {},
     [](Reducer& on, Given) { on.find_next(1); }},
    {"last_hit",
     Menu::Go,
     "The hit before",
     {Key::N, false, true},
     Key::None,
     {},
     [](Reducer& on, Given) { on.find_next(-1); }},
    {"filter",
     Menu::Go,
     "Ask for kinds, ranks, chunks, micro-batches, lengths",
     {Key::F, true},
     Key::None,
     {},
     [](Reducer& on, Given) { on.edit(on.state.filter_open ? Field::None : Field::Kinds); },
     is_on<&ViewState::filter_open>},
    {"edit", Menu::None, "type into a field", {}, Key::None, "ranks", edit},
    {"type", Menu::None, "what stands in that field", {}, Key::None, "0-15", type},
    {"only", Menu::None, "ask for a part of the ops or rows", {}, Key::None, "kinds F,B", only},
    {"everything",
     Menu::Go,
     "Ask for everything again",
     {},
     Key::None,
     {},
     [](Reducer& on, Given) {
       on.state.filter = {};
       on.scroll_to(on.state.scroll);
     }},
    {"whole",
     Menu::Go,
     "The whole step",
     {Key::Home},
     Key::None,
     {},
     [](Reducer& on, Given) { on.show(-on.step() * 0.005, on.step() * 1.005); }},
    {"warmup",
     Menu::Go,
     "Warm-up",
     {Key::One},
     Key::None,
     {},
     [](Reducer& on, Given) { phase(on, 0, static_cast<double>(on.session.warmup_end())); }},
    {"steady",
     Menu::Go,
     "Steady state",
     {Key::Two},
     Key::None,
     {},
     [](Reducer& on, Given) {
       on.show(static_cast<double>(on.session.warmup_end()),
               static_cast<double>(on.session.cooldown_begin()));
     }},
    {"cooldown",
     Menu::Go,
     "Cool-down",
     {Key::Three},
     Key::None,
     {},
     [](Reducer& on, Given) {
       on.show(static_cast<double>(on.session.cooldown_begin()), on.step());
     }},
    {"zoom_in",
     Menu::Go,
     "Closer",
     {Key::W},
     Key::Up,
     {},
     [](Reducer& on, Given) { on.zoom_in(); }},
    {"zoom_out",
     Menu::Go,
     "Farther",
     {Key::S},
     Key::Down,
     {},
     [](Reducer& on, Given) { on.zoom_out(); }},
    {"left", Menu::Go, "Left", {Key::A}, Key::Left, {}, [](Reducer& on, Given) { on.pan(-0.2); }},
    {"right", Menu::Go, "Right", {Key::D}, Key::Right, {}, [](Reducer& on, Given) { on.pan(0.2); }},
    {"focus",
     Menu::Go,
     "To the selected op: centre, then fill",
     {Key::F},
     Key::None,
     {},
     [](Reducer& on, Given) { on.focus_selected(); }},
    {"measure",
     Menu::Go,
     "Measure the selected op",
     {Key::M},
     Key::None,
     {},
     [](Reducer& on, Given) {
       if (on.state.selected) on.state.range = on.times(on.state.selected);
     }},
    {"before",
     Menu::Go,
     "The op before, on its lane",
     {Key::Comma},
     Key::None,
     {},
     [](Reducer& on, Given) { on.along_lane(-1); }},
    {"after",
     Menu::Go,
     "The op behind, on its lane",
     {Key::Period},
     Key::None,
     {},
     [](Reducer& on, Given) { on.along_lane(1); }},
    {"feeder",
     Menu::Go,
     "To what it waited for",
     {Key::BracketLeft},
     Key::None,
     {},
     [](Reducer& on, Given) { on.to_feeder(); }},
    {"fed",
     Menu::Go,
     "To what waited for it",
     {Key::BracketRight},
     Key::None,
     {},
     [](Reducer& on, Given) { on.to_fed(); }},
    {"undo",
     Menu::Go,
     "The view before",
     {Key::U},
     Key::None,
     {},
     [](Reducer& on, Given) { on.undo(); }},
    {"redo",
     Menu::Go,
     "The view after",
     {Key::U, false, true},
     Key::None,
     {},
     [](Reducer& on, Given) { on.redo(); }},
    {"play",
     Menu::Go,
     "Play the step",
     {Key::Space},
     Key::None,
     {},
     play,
     is_on<&ViewState::playing>},

    {"help",
     Menu::Help,
     "Keys and mouse",
     {Key::Question},
     Key::None,
     {},
     toggle<&ViewState::help>,
     is_on<&ViewState::help>},
    {"escape",
     Menu::Help,
     "Close what is open, then clear",
     {Key::Escape},
     Key::None,
     {},
     [](Reducer& on, Given) { on.escape(); }},
};

}  // namespace

std::span<const Command> commands() {
  return kCommands;
}

const Command* command_named(std::string_view name) {
  const auto found = std::ranges::find(kCommands, name, &Command::name);
  return found == std::end(kCommands) ? nullptr : found;
}

const Command* command_of(Key key, bool control, bool shift) {
  if (key == Key::None) return nullptr;
  const auto found = std::ranges::find_if(kCommands, [&](const Command& one) {
    const Chord& chord = one.chord;
    return (chord.key == key && chord.control == control && chord.shift == shift) ||
           (one.also == key && !control && !shift);
  });
  if (found != std::end(kCommands)) return found;
  return shift ? command_of(key, control, false) : nullptr;
}

std::string chord_text(const Chord& chord) {
  if (chord.key == Key::None) return {};
  return (chord.control ? "Ctrl + " : "") + std::string(chord.shift ? "Shift + " : "") +
         std::string(name_of(chord.key));
}

Event command_event(std::string_view name, std::string_view argument) {
  Event event{.type = Event::Type::Command};
  event.text = name;
  if (!argument.empty()) event.text.append(" ").append(argument);
  return event;
}

}  // namespace rehearse::viz
