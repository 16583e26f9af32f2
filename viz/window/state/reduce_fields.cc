// SPDX-License-Identifier: Apache-2.0
// Fields that one types into, and the tables below the lanes.
#include <algorithm>

#include "viz/window/describe.h"
#include "viz/window/state/reducer.h"
#include "viz/window/state/table.h"

namespace rehearse::viz {

const std::string& text_of(const ViewState& state, Field field) {
  return field == Field::Search
             ? state.search
             : state.filter
                   .text[static_cast<std::size_t>(field) - static_cast<std::size_t>(Field::Kinds)];
}
std::string& text_of(ViewState& state, Field field) {
  return const_cast<std::string&>(text_of(std::as_const(state), field));
}

// None: closes the line of fields; what a filter asks for stays.
void Reducer::edit(Field field) {
  if (state.field == Field::Search && field != Field::Search && state.table == TableKind::Hits)
    state.table = TableKind::None;  // the list of a search is gone with it
  state.filter_open = field != Field::None && field != Field::Search;
  state.field = field;
  if (field == Field::Search) state.table = TableKind::Hits;
  scroll_to(state.scroll);
}

bool Reducer::field_key(const Event& e) {
  if (state.field == Field::None || e.control) return false;
  switch (e.key) {
    case Key::Escape:
      edit(Field::None);
      break;
    case Key::Enter:
      if (state.searching()) {
        find_next(1);
      } else {
        edit(Field::None);
      }
      break;
    case Key::Down:
    case Key::Up:
      if (state.searching()) find_next(e.key == Key::Down ? 1 : -1);
      break;
    case Key::Tab: {
      constexpr auto kCount = static_cast<int>(kNumFields);
      const int next = static_cast<int>(state.field) + (e.shift ? kCount - 3 : 0);
      const auto field = static_cast<Field>(next % (kCount - 1) + 1);
      edit(field);
      break;
    }
    case Key::Backspace: {
      std::string& text = text_of(state, state.field);
      while (!text.empty()) {  // one code point
        const auto byte = static_cast<unsigned char>(text.back());
        text.pop_back();
        if ((byte & 0xC0) != 0x80) break;
      }
      break;
    }
    default:  // letters are text while one types
      break;
  }
  return true;
}

void Reducer::type(const std::string& text) {
  if (state.field == Field::None) return;
  // The key that opens the search is typed, too.
  if (state.searching() && state.search.empty() && text == "/") return;
  text_of(state, state.field) += text;
  state.table_first = 0;
  scroll_to(state.scroll);
}

void Reducer::open_table(TableKind table) {
  if (state.table == table) table = TableKind::None;
  if (table != TableKind::Hits && state.searching()) state.field = Field::None;
  state.table = table;
  state.table_first = 0;
  scroll_to(state.scroll);
}

// A column that is sorted by already is turned round; of numbers the largest come first.
void Reducer::sort_by(std::int32_t column) {
  if (state.table == TableKind::None) return refuse("sort: no table is open");
  const Table table = make_table(session, state);
  if (column < 0 || column >= static_cast<std::int32_t>(table.columns.size()))
    return refuse("sort: the table has no column " + std::to_string(column));
  Sort& by = state.sorts[static_cast<std::size_t>(state.table)];
  by.falling =
      by.column == column ? !by.falling : table.columns[static_cast<std::size_t>(column)].number;
  by.column = column;
  state.table_first = 0;
}

void Reducer::activate(std::int32_t line) {
  if (state.table == TableKind::None) return refuse("line: no table is open");
  const Table table = make_table(session, state);
  if (line < 0 || line >= static_cast<std::int32_t>(table.lines.size()))
    return refuse("line: the table has no line " + std::to_string(line));
  const TableLine& chosen = table.lines[static_cast<std::size_t>(line)];
  if (chosen.op) select(chosen.op, true);
  if (chosen.only.empty()) return;
  std::string& kinds = state.filter.of(FilterPart::Kinds);
  const std::string asked = chosen.only.substr(chosen.only.find(' ') + 1);
  kinds = kinds == asked ? std::string{} : asked;
  scroll_to(state.scroll);
}

void Reducer::scroll_table(std::int32_t by) {
  const auto lines = static_cast<std::int32_t>(make_table(session, state).lines.size());
  const std::int32_t most = std::max(0, lines - geometry(session, state).table_lines());
  state.table_first = std::clamp(state.table_first + by, 0, most);
}

void Reducer::copy() {
  if (state.table != TableKind::None) {
    state.clipboard = tab_separated(make_table(session, state));
  } else if (state.selected) {
    for (const Fact& fact : describe_op(session, state.selected, true))
      state.clipboard += fact.name + "\t" + fact.value + "\n";
  } else {
    return refuse("copy: no table is open and no op is selected");
  }
  state.notice = "copied";
}

bool Reducer::press_field(const Geometry& at, const Event& e) {
  for (const FieldSpot& spot : at.fields) {
    if (e.x < spot.x || e.x >= spot.x + spot.width || e.y < at.fields_y ||
        e.y >= at.fields_y + at.fields_height) {
      continue;
    }
    edit(spot.field);
    return true;
  }
  return false;
}

// Tabs, heads and lines of the table.
bool Reducer::press_below(const Geometry& at, const Event& e) {
  for (const TabSpot& tab : at.tabs) {
    const double y = e.y - at.panel_y - tab.y;
    if (e.x < tab.x || e.x >= tab.x + tab.width || y < 0 || y >= Geometry::kTabLine) continue;
    if (tab.table != state.table) open_table(tab.table);
    return true;
  }
  if (!at.over_table(e.x, e.y)) return false;
  const Table table = make_table(session, state);
  const std::int32_t line = at.table_line(e.y);
  if (line >= 0) {
    const std::int32_t number = state.table_first + line;
    if (number < static_cast<std::int32_t>(table.lines.size())) activate(number);
    return true;
  }
  double sum = 0, x = at.table_x;
  for (const TableColumn& column : table.columns) sum += column.width;
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    x += table.columns[i].width / sum * at.table_width;
    if (e.x >= x) continue;
    sort_by(static_cast<std::int32_t>(i));
    break;
  }
  return true;
}

}  // namespace rehearse::viz
