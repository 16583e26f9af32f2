// SPDX-License-Identifier: Apache-2.0
// Tables below the lanes: what they say is the trace's, they are sorted, copied and clicked.
#include "viz/window/state/table.h"

#include <algorithm>

#include "tests/viz/window/sessions.h"
#include "viz/picture/formats/svg.h"
#include "viz/window/geometry.h"
#include "viz/window/view/scene.h"

namespace rehearse::viz {
namespace {

using fixture::full_trace;
using fixture::one;
using fixture::one_f_one_b_trace;
using fixture::run;
using fixture::start;
using fixture::two;

std::size_t column_named(const Table& table, std::string_view name) {
  return static_cast<std::size_t>(std::ranges::find(table.columns, name, &TableColumn::name) -
                                  table.columns.begin());
}

TEST(Tables, StatisticsCountEveryOp) {
  const Session session = one(full_trace(4, 9));
  const ViewState state = run(session, start(session), "key T\n");
  const Table table = make_table(session, state);
  double count = 0, share = 0;
  for (const TableLine& line : table.lines) {
    ASSERT_EQ(line.cells.size(), table.columns.size());
    count += line.cells[column_named(table, "count")].value;
    share += line.cells[column_named(table, "share")].value;
  }
  EXPECT_EQ(count, session.at(0).trace().num_ops());
  EXPECT_NEAR(share, 1, 1e-12);
  const Table forwards = make_table(session, run(session, state, "do only kinds F\n"));
  ASSERT_EQ(forwards.lines.size(), 1u);
  EXPECT_EQ(forwards.lines[0].cells[0].text, "F");
}

TEST(Tables, BubblesAreAllIdleTimeLongestFirst) {
  const Session session = one(full_trace(4, 9));
  const Trace& trace = session.at(0).trace();
  const Table table = make_table(session, run(session, start(session), "key Z\n"));
  std::int64_t idle = 0;
  for (const IdleSpan& span : trace.idle) idle += span.end - span.begin;
  const std::size_t length = column_named(table, "length");
  double sum = 0, last = 1e18;
  for (const TableLine& line : table.lines) {
    EXPECT_LE(line.cells[length].value, last);
    last = line.cells[length].value;
    sum += last;
  }
  EXPECT_EQ(sum, static_cast<double>(idle));
}

TEST(Tables, AreSortedByTheHeadThatIsClicked) {
  const Session session = one(full_trace(4, 9));
  const ViewState open = run(session, start(session), "key T\n");
  const Geometry at = geometry(session, open);
  const Table table = make_table(session, open);
  const std::size_t total = column_named(table, "total");
  double x = at.table_x, sum = 0;
  for (const TableColumn& column : table.columns) sum += column.width;
  for (std::size_t i = 0; i <= total; ++i) x += table.columns[i].width / sum * at.table_width;
  const std::string click =
      "press " + std::to_string(x - 10) + " " + std::to_string(at.table_y + 5) + "\n";
  const auto totals = [&](const ViewState& state) {
    std::vector<double> values;
    for (const TableLine& line : make_table(session, state).lines)
      values.push_back(line.cells[total].value);
    return values;
  };
  const ViewState falling = run(session, open, click), rising = run(session, falling, click);
  EXPECT_TRUE(std::ranges::is_sorted(totals(falling), std::greater{}));
  EXPECT_TRUE(std::ranges::is_sorted(totals(rising)));
  EXPECT_NE(totals(falling), totals(rising));
  EXPECT_EQ(totals(run(session, rising, "do sort none\n")), totals(open));
}

// A line that is clicked is gone to; of a line about many ops, they are asked for.
// A number that is cut is another number: texts give way. Where there is room nothing is cut.
TEST(Tables, NumbersAreWhole) {
  const Session session = one(full_trace(5, 9));
  for (const std::string_view key : {"key T\n", "key Z\n", "key I\n", "key T shift\n",
                                     "key Z shift\n", "do search F\nkey Escape\ndo hits\n"}) {
    const Table table = make_table(session, run(session, start(session), key));
    ASSERT_FALSE(table.columns.empty()) << key;
    for (const double room : {560.0, 1100.0}) {
      const std::vector<double> widths = column_widths(table, room);
      double sum = 0, needs = 0;
      for (std::size_t i = 0; i < widths.size(); ++i) {
        double longest = 0;
        for (const TableLine& line : table.lines)
          longest = std::max<double>(longest, text_width(line.cells[i].text, TextSize::Small));
        if (table.columns[i].number || room > 1000) {
          EXPECT_GE(widths[i], longest) << key << table.columns[i].name;
        }
        sum += widths[i];
        needs += table.columns[i].need;
      }

      if (needs <= room) {
        EXPECT_NEAR(sum, room, 1e-9) << key;
      }
    }
  }
}

TEST(Tables, LinesLead) {
  const Session session = one(full_trace(4, 9));
  ViewState state = run(session, start(session), "do search 2B\nkey Escape\ndo hits\n");
  const Table hits = make_table(session, state);
  const Geometry at = geometry(session, state);
  ASSERT_GE(hits.lines.size(), 3u);
  state = run(session, state,
              "press 60 " + std::to_string(at.table_y + 3.5 * Geometry::kTableLine) + "\n");
  EXPECT_EQ(state.selected, hits.lines[2].op);
  EXPECT_EQ(run(session, state, "do line 1\n").selected, hits.lines[1].op);
  const ViewState kind = run(session, start(session), "key T\ndo line 0\n");
  EXPECT_EQ("kinds " + kind.filter.of(FilterPart::Kinds),
            make_table(session, run(session, start(session), "key T\n")).lines[0].only);
}

TEST(Tables, AreCopiedWithTabulators) {
  const Session session = one(full_trace(4, 9));
  const ViewState state = run(session, start(session), "key T\nkey C ctrl\n");
  EXPECT_FALSE(state.critical);
  const Table table = make_table(session, state);
  EXPECT_EQ(state.clipboard, tab_separated(table));
  EXPECT_EQ(static_cast<std::size_t>(std::ranges::count(state.clipboard, '\n')),
            table.lines.size() + 1);
  EXPECT_EQ(static_cast<std::size_t>(std::ranges::count(state.clipboard, '\t')),
            (table.lines.size() + 1) * (table.columns.size() - 1));
  EXPECT_EQ(state.clipboard.substr(0, 9), "op\tcount\t");
  // Without a table the selected op's facts; without either it is refused.
  const ViewState op =
      run(session, start(session), "do search 2B1\nkey Enter\nkey Escape\nkey C ctrl\n");
  EXPECT_EQ(op.clipboard.substr(0, 4), "2B1\t");
  EXPECT_FALSE(run(session, start(session), "key C ctrl\n").refused.empty());
}

TEST(Tables, MemoryTellsOfThePeak) {
  const Session session = one(full_trace(4, 9));
  const ViewState state = run(session, start(session), "key I\n");
  const Table table = make_table(session, state);
  ASSERT_FALSE(table.lines.empty());
  const std::size_t bytes = column_named(table, "bytes");
  double sum = 0;
  for (const TableLine& line : table.lines) sum += line.cells[bytes].value;
  EXPECT_EQ(sum, static_cast<double>(session.at(0).memory(0).peak().bytes));
}

// Tabs open them, Escape closes them; the wheel goes through their lines, and all fit into their
// place.
TEST(Tables, HaveTheirPlace) {
  const Session session =
      two(one_f_one_b_trace(6, 30), one_f_one_b_trace(6, 30, {.forward = 1100}));
  for (const auto& [width, height] : {std::pair{1280, 720}, {1440, 900}, {1920, 1080}}) {
    ViewState state = initial_state(session, width, height);
    const Geometry at = geometry(session, state);
    for (const TabSpot& tab : at.tabs) {
      state =
          run(session, state,
              "press " + std::to_string(tab.x + 5) + " " + std::to_string(at.panel_y + 9) + "\n");
      EXPECT_EQ(state.table, tab.table);
      state.table = TableKind::None;
    }
    state = run(session, state, "key Z\n");
    const Geometry open = geometry(session, state);
    EXPECT_LE(open.bottom, open.table_y);
    EXPECT_LE(open.table_y + open.table_height, height);
    EXPECT_GE(open.bottom - open.top, height * 0.4);
    const std::string place =
        std::to_string(open.table_x + 50) + " " + std::to_string(open.table_y + 60) + "\n";
    const ViewState scrolled = run(session, state, "move " + place + "wheel 0 -2\n");
    EXPECT_EQ(scrolled.table_first, 6);
    EXPECT_EQ(scrolled.scroll, state.scroll);
    EXPECT_EQ(
        run(session, scrolled, "wheel 0 -9000\n").table_first,
        static_cast<std::int32_t>(make_table(session, state).lines.size()) - open.table_lines());
    EXPECT_EQ(run(session, scrolled, "key Escape\n").table, TableKind::None);
  }
}

}  // namespace
}  // namespace rehearse::viz
