// SPDX-License-Identifier: Apache-2.0
#include "viz/window/state/deeds.h"

#include <algorithm>
#include <charconv>

namespace rehearse::viz::deeds {
namespace {

std::optional<std::int32_t> number_of(Given text) {
  std::int32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

bool any_has(const Session& session, HeatOf of) {
  return std::ranges::any_of(session.documents(),
                             [of](const Document& one) { return one.heat().has(of); });
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

}  // namespace

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

}  // namespace rehearse::viz::deeds
