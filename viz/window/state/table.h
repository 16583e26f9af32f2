// SPDX-License-Identifier: Apache-2.0
// Tables below the lanes: statistics per kind, hits of the search, bubbles by size, what is alive
// at the peak of a row's memory, ranks that others waited for, who waited for whom, causes from one
// step to another. Values that are sorted, copied and drawn; nothing is drawn here.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "viz/window/session.h"

namespace rehearse::viz {

inline constexpr std::array<std::string_view, kNumTables> kTableNames{
    "Selected", "Statistics", "Hits", "Bubbles", "Memory", "Stragglers", "Waited for", "Causes"};

struct TableColumn {
  std::string_view name;
  double width = 1;     // as a share of what is left when all have what they need
  bool number = false;  // stands at the right, and is largest first when sorted
  double need = 0;      // of its longest text [units]
};
struct Cell {
  std::string text;
  double value = 0;  // what the column is sorted by, where it is a number
};
struct TableLine {
  std::vector<Cell> cells;       // one per column
  OpRef op;                      // that it tells of
  std::string only;              // "kinds F": what a click asks for, of a line about many ops
  std::vector<float> histogram;  // shares of the largest bin, in the last column
  Color color;                   // of what it tells of
  struct Bar {
    float begin = 0, end = 0;  // shares of the column's width
    Color color;
  };
  std::vector<Bar> bars;  // in the last column, side by side
};
struct Table {
  std::vector<TableColumn> columns;
  std::vector<TableLine> lines;  // sorted
  std::string note;              // what is left out, why it is empty
};

Table make_table(const Session& session, const ViewState& state);
// How wide each column is in a table `width` wide [units]: as its longest text; where there is less
// room than that, numbers are whole and texts share the rest.
std::vector<double> column_widths(const Table& table, double width);
// Whether a table is of any use for these traces.
bool has_table(const Session& session, TableKind table);
// The lines with their heads, tabulators between cells.
std::string tab_separated(const Table& table);

// The table of a state, made anew only where it is another one.
class TableCache {
 public:
  const Table& of(const Session& session, const ViewState& state);

 private:
  ViewState made_for_;  // of it, what the table depends on
  bool made_ = false;
  Table table_;
};

}  // namespace rehearse::viz
