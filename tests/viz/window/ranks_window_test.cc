// SPDX-License-Identifier: Apache-2.0
// Many ranks and two traces in the window: classes fold, the heat map's cells are exact, tables add
// up, traces begin together as was asked.
#include <algorithm>
#include <map>
#include <random>

#include "tests/viz/window/sessions.h"
#include "viz/analysis/units_text.h"
#include "viz/picture/formats/svg.h"
#include "viz/picture/two/paint_lag.h"
#include "viz/window/describe.h"
#include "viz/window/geometry.h"
#include "viz/window/heat_view.h"
#include "viz/window/state/table.h"
#include "viz/window/view/scene.h"

namespace rehearse::viz {
namespace {

using fixture::full_trace;
using fixture::many_ranks;
using fixture::one;
using fixture::one_f_one_b_trace;
using fixture::run;
using fixture::start;
using fixture::two;
using fixture::two_explained;

std::vector<std::int32_t> rows_of(const Session& session, const ViewState& state) {
  std::vector<std::int32_t> rows;
  for (const RowSpot& row : geometry(session, state).rows) rows.push_back(row.row);
  return rows;
}

bool draws(const Session& session, const ViewState& state, std::string_view words) {
  return svg(view_scene(session, state)).find(words) != std::string::npos;
}

// Of more than 24 rows those that do the same are one: the rank that computes longest.
TEST(Classes, OneRowStandsForRanksThatDoTheSame) {
  const Session few = one(fixture::replicas_trace(3, 4, 4, 1));
  EXPECT_EQ(rows_of(few, start(few)).size(), 12u);
  const Session session = one(many_ranks());
  const ViewState state = start(session);
  EXPECT_EQ(rows_of(session, state), (std::vector<std::int32_t>{20, 21, 22, 23}));  // replica 5
  EXPECT_TRUE(draws(session, state, "rank 21, slowest of 12"));
}

// J shows every rank of the class under the mouse, and one row again; Shift + J does so for all.
TEST(Classes, UnfoldAndFoldAgain) {
  const Session session = one(many_ranks());
  const ViewState state = start(session);
  const RowSpot second = geometry(session, state).rows[1];
  const std::string there = "move 40 " + std::to_string(second.y + 4) + "\nkey J\n";
  const ViewState open = run(session, state, there);
  EXPECT_EQ(rows_of(session, open).size(), 3u + 12u);
  EXPECT_EQ(std::ranges::count_if(rows_of(session, open), [](int row) { return row % 4 == 1; }),
            12);
  EXPECT_EQ(rows_of(session, run(session, state, "do unfold 1\ndo unfold 1\n")),
            rows_of(session, state));
  const ViewState all = run(session, open, "key J shift\n");
  EXPECT_EQ(rows_of(session, all).size(), 48u);
  EXPECT_EQ(rows_of(session, run(session, all, "key J shift\n")).size(), 4u);
  const ViewState by_name =
      run(session, state, "press 40 " + std::to_string(second.y + 4) + " ctrl\n");
  EXPECT_EQ(rows_of(session, by_name), rows_of(session, open));
}

TEST(Classes, ARankThatIsGoneToOrAskedForIsShown) {
  const Session session = one(many_ranks());
  const Trace& trace = session.at(0).trace();
  ViewState state = start(session);
  const OpId op{static_cast<std::int32_t>(trace.row_begin[9]) + 2};  // rank 9 is hidden
  state.search = op_name(trace, op);
  state.selected = {0, {op.value - 1}};
  state = run(session, state, "key N\n");
  EXPECT_EQ(trace.row_of(state.selected.op).value, 9);
  EXPECT_EQ(std::ranges::count(rows_of(session, state), 9), 1);
  EXPECT_EQ(rows_of(session, run(session, start(session), "do only ranks 6-8\n")),
            (std::vector<std::int32_t>{6, 7, 8}));
}

TEST(Classes, WhatCannotUnfoldSaysWhy) {
  const Session predicted = one(full_trace());  // a row stands for eight
  const ViewState none = run(predicted, start(predicted), "do unfold 0\n");
  EXPECT_NE(none.refused.find("a prediction has one row"), std::string::npos) << none.refused;
  const Session alone = one(one_f_one_b_trace(3, 4));
  EXPECT_NE(run(alone, start(alone), "do unfold 0\n").refused.find("no other rank"),
            std::string::npos);
}

// Of 300 places in random views the cell under the mouse is what an independent sum over its ranks
// and its column says.
TEST(HeatMap, CellsUnderTheMouseAreExact) {
  const Session session = one(many_ranks());
  const Trace& trace = session.at(0).trace();
  std::mt19937 random(3);
  ViewState state = run(session, start(session), "key Y\n");
  ASSERT_TRUE(state.heats);
  int told = 0;
  for (int i = 0; i < 300; ++i) {
    state.mouse_x = 190 + static_cast<double>(random() % 1000);
    state.mouse_y = 100 + static_cast<double>(random() % 380);
    const char* deed = i % 7 == 6   ? "key Home\n"
                       : i % 3 == 0 ? "wheel 0 1 ctrl\n"
                       : i % 3 == 1 ? "wheel 0 1 ctrl shift\n"
                                    : "wheel 0 -1\n";
    state = run(session, state, deed);
    const Geometry at = geometry(session, state);
    EXPECT_TRUE(at.lanes.empty());
    ASSERT_EQ(at.heats.size(), 1u);
    const auto cell =
        heat_cell(session, state, at, hit(session, state, at, state.mouse_x, state.mouse_y),
                  state.mouse_x, state.mouse_y);
    if (!cell) continue;
    ++told;
    double sum = 0, most = 0;
    for (std::int64_t rank = cell->ranks.first; rank < cell->ranks.last; ++rank) {
      double idle = 0;
      for (auto k = trace.idle_begin[static_cast<std::size_t>(rank)];
           k < trace.idle_begin[static_cast<std::size_t>(rank) + 1]; ++k) {
        const IdleSpan& span = trace.idle[static_cast<std::size_t>(k)];
        idle += static_cast<double>(std::max<std::int64_t>(
            0, std::min(span.end, cell->end) - std::max(span.begin, cell->begin)));
      }
      sum += idle;
      most = std::max(most, idle);
    }
    const auto width = static_cast<double>(cell->end - cell->begin);
    EXPECT_NEAR(cell->mean, sum / width / static_cast<double>(cell->ranks.last - cell->ranks.first),
                1e-12);
    EXPECT_NEAR(cell->most, most / width, 1e-12);
  }
  EXPECT_GT(told, 150);
}

// A click selects what the worst rank does there, a double click goes to its lane; Escape and Y go
// back.
TEST(HeatMap, LeadsToTheRank) {
  const Session session = one(many_ranks());
  const Trace& trace = session.at(0).trace();
  const ViewState open = run(session, start(session), "do heat excess\n");
  const Geometry at = geometry(session, open);
  const HeatSpot& spot = at.heats[0];
  EXPECT_EQ(spot.bands, 48);                                       // one line each
  const double y = spot.y + (9 + 0.5) * spot.height / spot.bands;  // rank 9
  std::string place = "600 " + std::to_string(y) + "\n";
  const ViewState clicked = run(session, open, "press " + place + "release " + place);
  ASSERT_TRUE(clicked.selected);
  EXPECT_TRUE(clicked.heats);
  EXPECT_EQ(trace.row_of(clicked.selected.op).value, 9);
  const ViewState gone = run(session, open, "double " + place);
  EXPECT_FALSE(gone.heats);
  EXPECT_EQ(gone.selected, clicked.selected);
  EXPECT_EQ(std::ranges::count(rows_of(session, gone), 9), 1);
  EXPECT_FALSE(run(session, open, "key Escape\n").heats);
  EXPECT_FALSE(run(session, open, "key Y\n").heats);
}

// Shift + Y goes round what the trace has, and no further.
TEST(HeatMap, CountsWhatTheTraceHas) {
  const Session session = one(many_ranks());
  ViewState state = run(session, start(session), "key Y shift\n");
  std::vector<HeatOf> seen;
  do {
    seen.push_back(state.heat);
    EXPECT_TRUE(session.at(0).heat().has(state.heat));
    state = run(session, state, "key Y shift\n");
  } while (state.heat != seen[0] && seen.size() < 20);
  EXPECT_EQ(std::ranges::count(seen, kHeatExcess), 1);
  for (HeatOf of = 0; of < kNumHeats; ++of)
    EXPECT_EQ(std::ranges::count(seen, of), session.at(0).heat().has(of) ? 1 : 0) << heat_name(of);
  for (const char* refused : {"heat colour", "heat resource", "heat_ranks 0-3"}) {
    EXPECT_FALSE(run(session, start(session), "do " + std::string(refused) + "\n").refused.empty())
        << refused;
  }
}

// The words beside the map are the summary's, which lanes show.
TEST(HeatMap, SaysWhatTheLanesSay) {
  const Session session = one(many_ranks());
  const Trace& trace = session.at(0).trace();
  const ViewState state = run(session, start(session), "key Y\n");
  const Summary sum =
      summarize(session.at(0).index(), trace.begin.value, trace.end.value, 0, trace.num_rows());
  std::string share = std::to_string(std::round(sum.bubble_ratio() * 1000) / 10);
  share = share.substr(0, share.find('.') + 2) + " % of the time in view of 48 ranks";
  EXPECT_TRUE(draws(session, state, share)) << share;
}

TEST(HeatMap, RanksThatAreAskedForAreItsRows) {
  const Session session = one(many_ranks());
  const ViewState asked = run(session, start(session), "key Y\ndo only ranks 8-15\n");
  const HeatSpot spot = geometry(session, asked).heats[0];
  EXPECT_EQ(spot.ranks.first, 8);
  EXPECT_EQ(spot.ranks.last, 16);
  const ViewState near = run(session, start(session), "key Y\ndo heat_ranks 40-43\n");
  EXPECT_EQ(geometry(session, near).heats[0].ranks.first, 40);
  EXPECT_EQ(geometry(session, near).heats[0].ranks.last, 44);
  EXPECT_EQ(geometry(session, run(session, near, "key Home\n")).heats[0].ranks.last, 48);
}

// What others waited for a rank is what the pairs with it say, and no pair is left out.
TEST(WaitTables, AddUp) {
  const Session session = one(many_ranks());
  std::map<std::int32_t, std::int64_t> of_pairs, of_ranks;
  for (const RankWait& pair : session.at(0).rank_waits()) {
    EXPECT_NE(pair.waiter, pair.source);
    of_pairs[pair.source.value] += pair.time();
  }
  for (const WaitedFor& rank : session.at(0).waited_for()) of_ranks[rank.row.value] = rank.time();
  EXPECT_EQ(of_pairs, of_ranks);
  ViewState state = run(session, start(session), "key T shift\n");
  const Table stragglers = make_table(session, state);
  ASSERT_EQ(stragglers.lines.size(), session.at(0).waited_for().size());
  double last = 1e18;
  std::int64_t sum = 0;
  for (const TableLine& line : stragglers.lines) {
    ASSERT_EQ(line.cells.size(), stragglers.columns.size());
    EXPECT_LE(line.cells[1].value, last);
    last = line.cells[1].value;
    sum += static_cast<std::int64_t>(last);
  }
  std::int64_t whole = 0;
  for (const auto& [row, time] : of_ranks) whole += time;
  EXPECT_EQ(sum, whole);
  // The slow replica is slower than the median by half of its forwards.
  const auto found = std::ranges::find_if(
      stragglers.lines, [](const TableLine& line) { return line.cells[0].text == "rank 21"; });
  ASSERT_NE(found, stragglers.lines.end());
  const auto over = static_cast<std::size_t>(
      std::ranges::find(stragglers.columns, "over median", &TableColumn::name) -
      stragglers.columns.begin());
  EXPECT_NEAR(found->cells[over].value, 0.5 * 1000 / 3000, 1e-9);
  // Copied, sorted and gone to, as every table.
  state = run(session, state, "key C ctrl\ndo sort 3\ndo line 0\n");
  EXPECT_EQ(state.clipboard.substr(0, 5), "rank\t");
  EXPECT_EQ(state.selected, make_table(session, state).lines[0].op);
  const Table waits = make_table(session, run(session, state, "key Z shift\n"));
  EXPECT_EQ(waits.lines.size(), session.at(0).rank_waits().size());
}

TEST(WaitTables, SayWhyTheyAreEmpty) {
  Trace trace = one_f_one_b_trace(3, 4);
  trace.wait_begin = {};
  trace.waits = {};
  const Session session = one(std::move(trace));
  EXPECT_EQ(make_table(session, run(session, start(session), "key T shift\n")).note,
            "this trace does not know what waited for what");
}

// Q: the selected op begins together, then the clocks, then the steps again. Where an op begins
// together it stands at one place in both lanes, and its rank's lag is there what it took longer.
TEST(TwoTraces, BeginTogetherAsIsAsked) {
  const Session session = two_explained();
  const Trace &a = session.at(0).trace(), &b = session.at(1).trace();
  const ViewState selected = run(session, start(session), "do search 2B4\nkey Enter\nkey Escape\n");
  const ViewState by_op = run(session, selected, "key Q\n");
  ASSERT_EQ(by_op.alignment.how, Align::Op);
  const std::size_t op = by_op.alignment.op.index();
  EXPECT_EQ(a.start_ns[op] - session.origin(0, by_op.alignment),
            b.start_ns[op] - session.origin(1, by_op.alignment));
  EXPECT_NE(b.start_ns[op] - b.begin.value, a.start_ns[op] - a.begin.value);
  EXPECT_EQ(by_op.notice, "2B4 begins together, on position 2");
  EXPECT_TRUE(draws(session, by_op, "2B4 begins together"));
  const std::int64_t shift = b.begin.value - session.origin(1, by_op.alignment);
  EXPECT_EQ(session.lag(2).at(b.end_ns[op]) + shift,
            (b.end_ns[op] - b.start_ns[op]) - (a.end_ns[op] - a.start_ns[op]));
  // The mouse finds in the second lane what is drawn there.
  const Geometry at = geometry(session, by_op);
  for (const LaneSpot& lane : at.lanes) {
    if (lane.document != 1 || lane.lane != 2 * b.slots) continue;
    const auto middle = static_cast<double>(b.start_ns[op] + b.end_ns[op]) / 2 -
                        static_cast<double>(session.origin(1, by_op.alignment));
    EXPECT_EQ(hit(session, by_op, at, at.x_of(by_op, middle), lane.y + 2).op,
              (OpRef{1, by_op.alignment.op}));
  }
  const ViewState wall = run(session, by_op, "key Q\n");
  EXPECT_EQ(wall.alignment.how, Align::Wall);
  EXPECT_EQ(run(session, wall, "key Q\n").alignment, Alignment{});
  EXPECT_EQ(run(session, start(session), "do align 2B4\n").alignment, by_op.alignment);
  EXPECT_FALSE(run(session, start(session), "do align 9F9\n").refused.empty());
  EXPECT_FALSE(run(session, start(session), "do align op\n").refused.empty());
  const Session single = one(full_trace());
  EXPECT_FALSE(run(single, start(single), "key Q\n").refused.empty());
}

// Clocks that are years apart are not laid side by side.
TEST(TwoTraces, ClocksMayHaveNothingInCommon) {
  Trace later = one_f_one_b_trace(3, 4);
  std::vector<std::int64_t> starts(later.start_ns.begin(), later.start_ns.end()),
      ends(later.end_ns.begin(), later.end_ns.end());
  for (auto* times : {&starts, &ends}) {
    for (std::int64_t& time : *times) time += 1'700'000'000'000'000'000;
  }
  later.start_ns = std::move(starts);
  later.end_ns = std::move(ends);
  later.begin.value += 1'700'000'000'000'000'000;
  later.end.value += 1'700'000'000'000'000'000;
  const Session session = two(one_f_one_b_trace(3, 4), std::move(later));
  EXPECT_FALSE(run(session, start(session), "do align wall\n").refused.empty());
  EXPECT_EQ(run(session, start(session), "key Q\n").alignment.how, Align::Step);
}

// A lane of differences below each pair; Shift + L hides it. The mouse says how far, and the right
// margin what is left at the end.
TEST(TwoTraces, HaveALaneOfDifferences) {
  const Session session = two_explained();
  const ViewState state = start(session);
  const Geometry at = geometry(session, state);
  int lanes = 0;
  for (const RowSpot& row : at.rows) {
    EXPECT_EQ(row.lag_y >= 0, row.document == 1);
    if (row.lag_y < 0) continue;
    ++lanes;
    EXPECT_EQ(hit(session, state, at, 600, row.lag_y + 2).lag, &row);
  }
  EXPECT_EQ(lanes, 5);
  const LagCurve::Range greatest = session.greatest_lag();
  std::int64_t least = 0, most = 0;
  for (std::int32_t row = 0; row < 5; ++row) {
    least =
        row == 0 ? session.lag(row).whole().least : std::min(least, session.lag(row).whole().least);
    most = row == 0 ? session.lag(row).whole().most : std::max(most, session.lag(row).whole().most);
  }
  EXPECT_EQ(greatest.least, least);
  EXPECT_EQ(greatest.most, most);
  const std::vector<Fact> facts =
      describe_lag(session, state.alignment, {0}, session.at(1).trace().end.value);
  EXPECT_EQ(facts[0].value,
            time_text(std::abs(session.lag(0).at(session.at(1).trace().end.value))) +
                (session.lag(0).at(session.at(1).trace().end.value) > 0 ? " behind" : " ahead"));
  for (const RowSpot& row : geometry(session, run(session, state, "key L shift\n")).rows)
    EXPECT_LT(row.lag_y, 0);
}

// E: from the first step to the second, and the bars follow one another.
TEST(TwoTraces, CausesAreAWaterfall) {
  const Session session = two_explained();
  const ViewState state = run(session, start(session), "key E\n");
  const Table table = make_table(session, state);
  ASSERT_EQ(table.lines.size(), 6u);
  double sum = table.lines[0].cells[1].value;
  EXPECT_EQ(sum, static_cast<double>(session.at(0).trace().step().value));
  float at = table.lines[0].bars[0].end;
  for (std::size_t i = 1; i + 1 < table.lines.size(); ++i) {
    const TableLine::Bar& bar = table.lines[i].bars[0];
    const double difference = table.lines[i].cells[1].value;
    sum += difference;
    EXPECT_FLOAT_EQ(difference > 0 ? bar.begin : bar.end, at);
    at = difference > 0 ? bar.end : bar.begin;
  }
  EXPECT_FLOAT_EQ(table.lines.back().bars[0].end, at);
  EXPECT_EQ(sum, static_cast<double>(session.at(1).trace().step().value));
  EXPECT_EQ(sum, table.lines.back().cells[1].value);
  EXPECT_TRUE(draws(session, state, "which waits for longer"));
  const Session single = one(full_trace());
  EXPECT_TRUE(make_table(single, run(single, start(single), "key E\n")).lines.empty());
  // Steps that are equal have whole bars.
  std::vector<Document> documents;
  documents.emplace_back(one_f_one_b_trace(3, 4));
  documents.emplace_back(one_f_one_b_trace(3, 4));
  const std::int64_t step = documents[0].trace().step().value;
  const Session equal(std::move(documents),
                      Waterfall{.title = "as long", .from = "A", .to = "B", .begin = step});
  for (const TableLine& line : make_table(equal, run(equal, start(equal), "key E\n")).lines)
    EXPECT_EQ(line.bars[0].end, 1);
}

}  // namespace
}  // namespace rehearse::viz
