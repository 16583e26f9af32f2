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

// Conditions under which commands do something.
bool for_two(const Session& session, const ViewState&) {
  return session.compares();
}
bool for_pairs(const Session& session, const ViewState&) {
  return session.compares() && session.corresponds();
}
bool for_selected(const Session&, const ViewState& state) {
  return static_cast<bool>(state.selected);
}
bool for_experts(const Session& session, const ViewState&) {
  return !session.at(0).trace().expert_shape.empty();
}
bool for_classes(const Session& session, const ViewState&) {
  for (std::int32_t d = 0; d < static_cast<std::int32_t>(session.documents().size()); ++d) {
    const RankClasses& classes = session.classes(d);
    for (std::int32_t row = 0; row < session.at(d).trace().num_rows(); ++row) {
      if (classes.rows(row) > 1) return true;
    }
  }
  return false;
}
bool for_the_past(const Session&, const ViewState& state) {
  return !state.past.empty();
}
bool for_the_future(const Session&, const ViewState& state) {
  return !state.future.empty();
}

bool any_has(const Session& session, HeatOf of) {
  return std::ranges::any_of(session.documents(),
                             [of](const Document& one) { return one.heat().has(of); });
}

// Without a name: opens or closes the map.
void heat(Reducer& on, Given name) {
  if (name.empty()) {
    on.state.heats = !on.state.heats;
    on.scroll_to(on.state.scroll);
    return;
  }
  HeatOf of = 0;
  while (of < kNumHeats && heat_name(of) != name) ++of;
  if (of == kNumHeats)
    return on.refuse("heat: \"" + std::string(name) + "\" is neither idle, a cause nor excess");
  if (!any_has(on.session, of)) {
    return on.refuse("heat: " + std::string(name) +
                     (of == kHeatExcess ? ": no ranks do the same, with a row each"
                                        : ": there is no idle time of that cause"));
  }
  on.show_heat(of);
}

void next_heat(Reducer& on, Given) {
  HeatOf of = on.state.heat;
  if (on.state.heats) {
    do of = static_cast<HeatOf>((of + 1) % kNumHeats);
    while (!any_has(on.session, of));
  }
  on.show_heat(any_has(on.session, of) ? of : kHeatIdle);
}

// "64-127": those ranks alone, from the first to the last.
void heat_ranks(Reducer& on, Given words) {
  if (!on.state.heats) return on.refuse("heat_ranks: no heat map is open");
  const auto first = number_of(words.substr(0, words.find('-')));
  const auto last = number_of(words.substr(std::min(words.size(), words.find('-') + 1)));
  const std::int64_t ranks = on.session.at(0).heat().ranks();
  if (words.find('-') == Given::npos || !first || !last || *first > *last || *last >= ranks) {
    return on.refuse("heat_ranks: \"" + std::string(words) + "\" are no ranks of 0-" +
                     std::to_string(ranks - 1));
  }
  on.state.heat_first = static_cast<double>(*first) / static_cast<double>(ranks);
  on.state.heat_last = static_cast<double>(*last + 1) / static_cast<double>(ranks);
}

// The class of the row under the mouse, or of the selected op: one row for it, or all of its ranks.
void unfold(Reducer& on, Given text) {
  PinnedRow row = on.row_meant();
  if (!text.empty()) {
    row = {0, number_of(text).value_or(-1)};
    if (row.row < 0 || row.row >= on.session.at(0).trace().num_rows())
      return on.refuse("unfold: there is no row " + std::string(text));
  }
  if (row.row < 0) return on.refuse("unfold: no row is under the mouse and no op is selected");
  if (!on.has_class(row)) {
    const bool stands = on.session.classes(row.document).ranks(row.row) > 1;
    return on.refuse(stands ? "a prediction has one row for all ranks that do the same: there is "
                              "nothing to unfold"
                            : "no other rank does what this one does");
  }
  on.fold_class(row, !is_folded_class(on.session, on.state, row.document, row.row));
}

void unfold_all(Reducer& on, Given) {
  if (!for_classes(on.session, on.state)) return on.refuse("no two ranks with rows do the same");
  const bool fold = std::ranges::find(on.state.classes_folded, 1) == on.state.classes_folded.end();
  for (std::int32_t d = 0; d < static_cast<std::int32_t>(on.session.documents().size()); ++d) {
    for (std::int32_t row = 0; row < on.session.at(d).trace().num_rows(); ++row) {
      if (on.has_class({d, row})) on.fold_class({d, row}, fold);
    }
  }
}

// The selected op, of the second trace.
OpId aligned_op(const Reducer& on) {
  const OpRef selected = on.state.selected;
  if (!selected || !on.session.corresponds()) return {};
  const OpId other = on.session.counterpart(selected);
  return !other ? OpId{} : selected.document == 1 ? selected.op : other;
}

// Clocks that have nothing to do with one another.
bool have_one_clock(const Session& session) {
  constexpr double kFar = 20;  // steps
  const Trace &a = session.at(0).trace(), &b = session.at(1).trace();
  const auto apart =
      static_cast<double>(std::max(a.begin.value - b.end.value, b.begin.value - a.end.value));
  return apart < kFar * static_cast<double>(session.longest_step());
}

// "step", "wall", "op" (the selected one) or an op's name; without a word the next of them.
void align(Reducer& on, Given name) {
  if (!on.session.compares()) return on.refuse("align: there is one trace");
  const OpId selected = aligned_op(on);
  if (name.empty()) {
    const Align now = on.state.alignment.how;
    if (now == Align::Step && selected) return on.align({Align::Op, selected});
    if (now != Align::Wall && have_one_clock(on.session)) return on.align({Align::Wall, {}});
    return on.align({});
  }
  if (name == "step") return on.align({});
  if (name == "wall") {
    return have_one_clock(on.session) ? on.align({Align::Wall, {}})
                                      : on.refuse("align: their clocks have nothing in common");
  }
  if (name == "op") {
    return selected ? on.align({Align::Op, selected})
                    : on.refuse("align: no op is selected that both traces have");
  }
  const Trace& second = on.session.at(1).trace();
  for (OpId op{0}; on.session.corresponds() && op.value < second.num_ops(); ++op.value) {
    if (on.session.counterpart({1, op}) && op_name(second, op) == name)
      return on.align({Align::Op, op});
  }
  on.refuse("align: no op \"" + std::string(name) + "\" is in both traces");
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
     [](const ViewState& state) { return state.color_by == ColorBy::Difference; },
     for_pairs},
    {"inside",
     Menu::View,
     "Inside the selected op",
     {Key::O},
     Key::None,
     {},
     [](Reducer& on, Given) { on.state.inside = !on.state.inside && on.state.selected; },
     is_on<&ViewState::inside>,
     for_selected},
    {"experts",
     Menu::View,
     "Rows of experts over the steps of a run",
     {Key::R},
     Key::None,
     {},
     [](Reducer& on, Given) {
       on.state.experts = !on.state.experts && !on.session.at(0).trace().expert_shape.empty();
     },
     is_on<&ViewState::experts>,
     for_experts},
    {"heat",
     Menu::View,
     "Heat map: every rank over time",
     {Key::Y},
     Key::None,
     "communication",
     heat,
     is_on<&ViewState::heats>},
    {"next_heat",
     Menu::View,
     "The next that the heat map counts: idle, a cause, excess",
     {Key::Y, false, true},
     Key::None,
     {},
     next_heat},
    {"heat_ranks", Menu::None, "those ranks of the heat map", {}, Key::None, "64-127", heat_ranks},
    {"unfold",
     Menu::View,
     "All ranks of a class, or one row for it",
     {Key::J},
     Key::None,
     "0",
     unfold,
     nullptr,
     for_classes},
    {"unfold_all",
     Menu::View,
     "The same for all classes",
     {Key::J, false, true},
     Key::None,
     {},
     unfold_all,
     nullptr,
     for_classes},
    {"lags",
     Menu::View,
     "How far the second trace is behind, below each rank",
     {Key::L, false, true},
     Key::None,
     {},
     toggle<&ViewState::lags>,
     is_on<&ViewState::lags>,
     for_pairs},
    {"align",
     Menu::View,
     "Two traces: what begins together",
     {Key::Q},
     Key::None,
     "2B5",
     align,
     nullptr,
     for_two},
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
    {"stragglers",
     Menu::Tables,
     "Ranks that others waited for",
     {Key::T, false, true},
     Key::None,
     {},
     show_table<TableKind::Stragglers>,
     shows_table<TableKind::Stragglers>},
    {"waits",
     Menu::Tables,
     "Who waited for whom",
     {Key::Z, false, true},
     Key::None,
     {},
     show_table<TableKind::Waits>,
     shows_table<TableKind::Waits>},
    {"explain",
     Menu::Tables,
     "Causes from the first step to the second",
     {Key::E},
     Key::None,
     {},
     show_table<TableKind::Causes>,
     shows_table<TableKind::Causes>,
     for_two},
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
     [](Reducer& on, Given) {
       const auto [first, last] = on.extent();
       on.state.heat_first = 0;
       on.state.heat_last = 1;
       on.show(first - (last - first) * 0.005, first + (last - first) * 1.005);
     }},
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
     [](Reducer& on, Given) { on.focus_selected(); },
     nullptr,
     for_selected},
    {"measure",
     Menu::Go,
     "Measure the selected op",
     {Key::M},
     Key::None,
     {},
     [](Reducer& on, Given) {
       if (on.state.selected) on.state.range = on.times(on.state.selected);
     },
     nullptr,
     for_selected},
    {"before",
     Menu::Go,
     "The op before, on its lane",
     {Key::Comma},
     Key::None,
     {},
     [](Reducer& on, Given) { on.along_lane(-1); },
     nullptr,
     for_selected},
    {"after",
     Menu::Go,
     "The op behind, on its lane",
     {Key::Period},
     Key::None,
     {},
     [](Reducer& on, Given) { on.along_lane(1); },
     nullptr,
     for_selected},
    {"feeder",
     Menu::Go,
     "To what it waited for",
     {Key::BracketLeft},
     Key::None,
     {},
     [](Reducer& on, Given) { on.to_feeder(); },
     nullptr,
     for_selected},
    {"fed",
     Menu::Go,
     "To what waited for it",
     {Key::BracketRight},
     Key::None,
     {},
     [](Reducer& on, Given) { on.to_fed(); },
     nullptr,
     for_selected},
    {"undo",
     Menu::Go,
     "The view before",
     {Key::U},
     Key::None,
     {},
     [](Reducer& on, Given) { on.undo(); },
     nullptr,
     for_the_past},
    {"redo",
     Menu::Go,
     "The view after",
     {Key::U, false, true},
     Key::None,
     {},
     [](Reducer& on, Given) { on.redo(); },
     nullptr,
     for_the_future},
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

bool is_possible(const Command& one, const Session& session, const ViewState& state) {
  return one.possible == nullptr || one.possible(session, state);
}

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
