// SPDX-License-Identifier: Apache-2.0
// All that keys and widgets do is a command; filters, pinned rows, fields and settings.
#include "viz/window/state/commands.h"

#include <algorithm>
#include <set>

#include "schedules/trace/kind_name.h"
#include "tests/viz/window/sessions.h"
#include "viz/picture/formats/svg.h"
#include "viz/window/geometry.h"
#include "viz/window/keys.h"
#include "viz/window/state/settings.h"
#include "viz/window/view/scene.h"

namespace rehearse::viz {
namespace {

using fixture::full_trace;
using fixture::one;
using fixture::one_f_one_b_trace;
using fixture::run;
using fixture::start;
using fixture::two;

TEST(Commands, EachIsOneRowWithItsOwnNameAndKey) {
  std::set<std::string_view> names;
  std::set<std::string> chords;
  for (const Command& one : commands()) {
    EXPECT_TRUE(names.insert(one.name).second) << one.name;
    if (one.chord.key == Key::None) continue;
    EXPECT_TRUE(chords.insert(chord_text(one.chord)).second) << one.name;
    EXPECT_EQ(command_of(one.chord.key, one.chord.control, one.chord.shift), &one);
  }
}

// A key, and the line of a script with its command's name, do the same.
TEST(Commands, AKeyDoesWhatItsNameDoes) {
  const Session session = one(full_trace());
  const ViewState before =
      run(session, start(session),
          "move 700 200\nkey 2\nkey W\ndo search 1F1\nkey Enter\nkey Escape\n");
  for (const Command& one : commands()) {
    if (one.chord.key == Key::None) continue;
    const std::string modifiers =
        std::string(one.chord.shift ? " shift" : "") + (one.chord.control ? " ctrl" : "");
    ViewState by_key =
        run(session, before, "key " + std::string(name_of(one.chord.key)) + modifiers + "\n");
    ViewState by_name = run(session, before, "do " + std::string(one.name) + "\n");
    by_key.last_change = by_name.last_change = 0;  // what undo would join
    EXPECT_TRUE(by_key == by_name) << one.name;
  }
}

TEST(Commands, ScriptsNameThemAndRefuseOthers) {
  const auto events = parse_script("do only kinds F,B\n", "script");
  ASSERT_TRUE(events);
  EXPECT_EQ(to_script(events.value()[0]), "do only kinds F,B\n");
  const auto none = parse_script("key W\ndo dance\n", "script");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().message, "script:2: no such command: dance");
  const Session session = one(full_trace());
  for (const char* refused :
       {"only kinds NOTHING", "only ranks 3-1", "only longer 5", "only colour red", "pin 99",
        "sort x", "sort 1", "line 0", "color mauve", "color difference", "critical now",
        "edit nose", "type x"}) {
    const ViewState before = start(session);
    ViewState after = run(session, before, "do " + std::string(refused) + "\n");
    EXPECT_FALSE(after.refused.empty()) << refused;
    after.refused.clear();
    EXPECT_TRUE(after == before) << refused;
  }
}

// What is not asked for is grey and counted as such, exactly; nothing is left out.
TEST(Filters, OpsThatAreNotAskedForAreOneClass) {
  const Session session = one(full_trace(4, 9));
  const Trace& trace = session.at(0).trace();
  for (const char* words : {"kinds F", "kinds f, B", "microbatches 0-2", "microbatches 0-8/2",
                            "chunks 0", "longer 1us", "kinds SEND"}) {
    const ViewState state = run(session, start(session), "do only " + std::string(words) + "\n");
    ASSERT_TRUE(state.refused.empty()) << state.refused;
    const std::vector<std::uint8_t>& kept = session.at(0).kept(state.filter);
    const TraceIndex& index = session.at(0).index(ColorBy::Kinds, state.filter);
    std::int64_t grey = 0;
    for (OpId op{0}; op.value < trace.num_ops(); ++op.value) {
      if (trace.class_of(op).slot == 0 && kept[op.index()] == 0)
        grey += (trace.end_ns[op.index()] - trace.start_ns[op.index()]) *
                trace.rows[trace.row_of(op).index()].multiplicity;
    }
    const Summary sum = summarize(index, trace.begin.value, trace.end.value, 0, trace.num_rows());
    EXPECT_EQ(sum.kinds[Coloring::kNotKept], grey) << words;
    const Summary all =
        summarize(session.at(0).index(), trace.begin.value, trace.end.value, 0, trace.num_rows());
    EXPECT_EQ(sum.idle() + sum.busy(), all.idle() + all.busy()) << words;
  }
  const ViewState forwards = run(session, start(session), "do only kinds F\n");
  for (OpId op{0}; op.value < trace.num_ops(); ++op.value) {
    EXPECT_EQ(session.at(0).kept(forwards.filter)[op.index()] != 0,
              trace.class_of(op).kind == OpKind::Forward);
  }
  EXPECT_NE(svg(view_scene(session, forwards)).find("not asked for"), std::string::npos);
  EXPECT_TRUE(run(session, forwards, "do everything\n").filter.empty());
}

TEST(Filters, RanksChooseRows) {
  const Session session = one(one_f_one_b_trace(8, 4));
  const auto rows = [&](const char* ranks) {
    const ViewState state =
        run(session, start(session), "do only ranks " + std::string(ranks) + "\n");
    std::vector<std::int32_t> found;
    for (const RowSpot& row : geometry(session, state).rows) found.push_back(row.row);
    return found;
  };
  EXPECT_EQ(rows("2-4,7"), (std::vector<std::int32_t>{2, 3, 4, 7}));
  EXPECT_EQ(rows("1-7/3"), (std::vector<std::int32_t>{1, 4, 7}));
}

// One types into the same fields without a window's widgets: what cannot be understood asks for
// nothing and is said.
TEST(Filters, AreTypedIntoFields) {
  const Session session = one(full_trace(4, 9));
  ViewState state = run(session, start(session), "key F ctrl\ntext F\nkey Tab\ntext 0-\n");
  EXPECT_EQ(state.field, Field::Ranks);
  EXPECT_EQ(state.filter.of(FilterPart::Kinds), "F");
  EXPECT_EQ(geometry(session, state).rows.size(), 4u);
  EXPECT_NE(svg(view_scene(session, state)).find("is no number or range"), std::string::npos);
  state = run(session, state, "text 15\n");
  EXPECT_EQ(geometry(session, state).rows.size(), 2u);
  state = run(session, state, "key Tab shift\nkey Backspace\nkey Enter\nkey C\n");
  EXPECT_TRUE(state.filter.of(FilterPart::Kinds).empty());
  EXPECT_TRUE(state.critical);                           // letters are keys again
  EXPECT_GT(geometry(session, state).fields_height, 0);  // ranks are still asked for
  EXPECT_EQ(geometry(session, run(session, state, "do everything\n")).fields_height, 0);
}

TEST(Filters, TheSearchFindsWhatIsAskedFor) {
  const Session session = one(full_trace(4, 9));
  const Document& document = session.at(0);
  const std::size_t all = document.hits("3").size();
  const ViewState state = run(session, start(session), "do only kinds B\n");
  const std::size_t backwards = document.hits("3", state.filter).size();
  EXPECT_GT(all, backwards);
  EXPECT_GT(backwards, 0u);
}

TEST(Pins, StayAboveTheOthers) {
  const Session session = one(one_f_one_b_trace(40, 4));
  const ViewState state =
      run(session, start(session), "do pin 30\ndo pin 2\nmove 700 300\nwheel 0 -8\n");
  EXPECT_GT(state.scroll, 0);
  const Geometry at = geometry(session, state);
  ASSERT_EQ(at.rows.size(), 40u);
  EXPECT_EQ(at.rows[0].row, 30);
  EXPECT_EQ(at.rows[1].row, 2);
  EXPECT_EQ(at.rows[0].y, at.top + 4);
  EXPECT_TRUE(at.rows[0].pinned && at.rows[1].pinned && !at.rows[2].pinned);
  // Of what lies under a pinned row the mouse finds the row.
  const Hit found = hit(session, state, at, 700, at.rows[1].y + 5);
  ASSERT_NE(found.lane, nullptr);
  EXPECT_EQ(found.lane->row, 2);
  // Scrolled to the end the last row is whole.
  const ViewState end = run(session, state, "wheel 0 -1000\n");
  const Geometry there = geometry(session, end);
  EXPECT_LE(there.rows.back().y + there.rows.back().height, there.bottom);
  EXPECT_TRUE(run(session, state, "do pin 2\ndo pin 30\n").pinned.empty());
  EXPECT_TRUE(run(session, state, "key P shift\n").pinned.empty());
}

TEST(Pins, ByTheNameAndOfBothTraces) {
  const Session session = two(one_f_one_b_trace(4, 4), one_f_one_b_trace(4, 4, {.forward = 1100}));
  const Geometry at = geometry(session, start(session));
  const std::string place = "20 " + std::to_string(at.rows[4].y + 6);
  const ViewState state = run(session, start(session), "press " + place + " shift\n");
  EXPECT_EQ(state.pinned, (std::vector<PinnedRow>{{0, 2}, {1, 2}}));
}

TEST(Settings, AreKeptWithThoseOfOthers) {
  ViewState chosen;
  chosen.dark = false;
  chosen.text_scale = 1.3;
  chosen.color_by = ColorBy::Chunk;
  chosen.pixel_width = 1777;
  const auto before = Settings::parse("of_tomorrow 3 and 4\ndark yes\n", "view");
  ASSERT_TRUE(before) << before.error().message;
  const std::string text = before.value().text(chosen);
  EXPECT_NE(text.find("of_tomorrow 3 and 4\n"), std::string::npos);
  const auto after = Settings::parse(text, "view");
  ASSERT_TRUE(after) << after.error().message;
  ViewState state;
  after.value().apply(state);
  EXPECT_FALSE(state.dark);
  EXPECT_EQ(state.text_scale, 1.3);
  EXPECT_EQ(state.color_by, ColorBy::Chunk);
  EXPECT_EQ(state.pixel_width, 1777);
  EXPECT_EQ(after.value().text(state), text);
}

TEST(Settings, ABrokenFileIsRefusedByItsLine) {
  for (const char* broken : {"dark perhaps\n", "width 10\n", "dark\n",
                             "\xff\xfe nonsense\nlinks 1\n", "color_by difference\n", " x\n"}) {
    const auto none = Settings::parse(std::string("memory yes\n") + broken, "view");
    ASSERT_FALSE(none) << broken;
    EXPECT_EQ(none.error().message.substr(0, 5), "view:") << none.error().message;
  }
}

}  // namespace
}  // namespace rehearse::viz
