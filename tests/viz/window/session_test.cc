// SPDX-License-Identifier: Apache-2.0
// The window without a window: events change a value, recorded events replay, pictures follow.
#include "viz/window/session.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/viz/window/sessions.h"
#include "viz/picture/formats/png.h"
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

TEST(Session, ZoomingInAndOutAgainComesBack) {
  const Session session = one(full_trace());
  const ViewState before = run(session, start(session), "move 700 200\n");
  ViewState state = before;
  for (int i = 0; i < 12; ++i) state = run(session, state, "key W\n");
  EXPECT_LT(state.end - state.begin, (before.end - before.begin) / 10);
  for (int i = 0; i < 12; ++i) state = run(session, state, "key S\n");
  EXPECT_NEAR(state.begin, before.begin, 1e-6);
  EXPECT_NEAR(state.end, before.end, 1e-6);
}

// R opens the heat map where the trace has rows of experts, and Escape closes it.
TEST(Session, TheMapOfExpertsOpensWhereThereIsOne) {
  const Session none = one(full_trace());
  EXPECT_FALSE(run(none, start(none), "key R\n").experts);
  Trace trace = full_trace();
  trace.expert_shape = std::vector<std::int32_t>{2, 2};
  trace.expert_layers = std::vector<std::int32_t>{0};
  trace.expert_steps = std::vector<std::int32_t>{0, 1};
  trace.expert_rows = std::vector<std::int64_t>{3, 1, 2, 2};
  const Session session = one(std::move(trace));
  const ViewState open = run(session, start(session), "move 400 160\nkey R\n");
  ASSERT_TRUE(open.experts);
  const std::string picture = svg(view_scene(session, open));
  // Under the mouse: 3 of 4 tokens of the first step, on one of two ranks.
  for (const char* words : {"Tokens of every expert", "layer 0", "expert 0", "1.50 ×", "0 of 2"}) {
    EXPECT_NE(picture.find(words), std::string::npos) << words;
  }
  EXPECT_FALSE(run(session, open, "key Escape\n").experts);
}

TEST(Session, ZoomKeepsTheTimeUnderTheMouse) {
  const Session session = one(full_trace());
  ViewState state = run(session, start(session), "move 500 150\n");
  const double at = geometry(session, state).time_at(state, 500);
  state = run(session, state, "wheel 0 3 ctrl\nkey W\n");
  EXPECT_NEAR(geometry(session, state).time_at(state, 500), at, 1e-6);
}

TEST(Session, TheWheelScrollsOrZoomsAsChosen) {
  const Session session = one(one_f_one_b_trace(80, 4));
  ViewState state = run(session, start(session), "move 700 300\nwheel 0 -2\n");
  EXPECT_GT(state.scroll, 0);
  const double span = state.end - state.begin;
  state = run(session, state, "key V\nwheel 0 2\n");
  EXPECT_LT(state.end - state.begin, span);
}

TEST(Session, AClickSelectsTheOpUnderIt) {
  const Session session = one(full_trace());
  ViewState state = start(session);
  const Geometry at = geometry(session, state);
  const Trace& trace = session.at(0).trace();
  int tried = 0;
  for (const LaneSpot& lane : at.lanes) {
    const LaneItems& items = session.at(0).index().lane(lane.lane).items;
    for (std::int32_t i = 0; i < items.count; ++i) {
      const double x = at.x_of(state, static_cast<double>(items.start(i) + items.end(i)) / 2 -
                                          static_cast<double>(trace.begin.value));
      const double y = lane.y + lane.height / 2;
      state = reduce(session, state, {.type = Event::Type::Press, .x = x, .y = y});
      state = reduce(session, state, {.type = Event::Type::Release, .x = x, .y = y});
      EXPECT_EQ(state.selected.op.value, items.op(i));
      ++tried;
    }
  }
  EXPECT_EQ(tried, trace.num_ops());
  EXPECT_FALSE(run(session, state, "key Escape\n").selected);
}

TEST(Session, AClickOnABubbleSelectsTheOpThatEndsIt) {
  const Session session = one(full_trace());
  const Trace& trace = session.at(0).trace();
  ViewState state = start(session);
  const Geometry at = geometry(session, state);
  const IdleSpan& span =
      trace.idle[static_cast<std::size_t>(trace.idle_begin[1])];  // row 1's warm-up
  ASSERT_EQ(span.cause, IdleCause::Warmup);
  const double x = at.x_of(state, static_cast<double>(span.begin + span.end) / 2);
  for (const LaneSpot& lane : at.lanes) {
    if (lane.lane != trace.slots) continue;
    state = reduce(session, state, {.type = Event::Type::Press, .x = x, .y = lane.y + 2});
    state = reduce(session, state, {.type = Event::Type::Release, .x = x, .y = lane.y + 2});
  }
  EXPECT_EQ(op_name(trace, state.selected.op), "1F0");
}

TEST(Session, CommaAndPeriodWalkTheLane) {
  const Session session = one(full_trace());
  ViewState state = run(session, start(session), "key /\ntext 1F1\nkey Enter\nkey Escape\n");
  EXPECT_EQ(op_name(session.at(0).trace(), state.selected.op), "1F1");
  const OpId found = state.selected.op;
  state = run(session, state, "key .\n");
  EXPECT_NE(state.selected.op, found);
  EXPECT_EQ(session.at(0).trace().lane_of(state.selected.op), session.at(0).trace().lane_of(found));
  EXPECT_EQ(run(session, state, "key ,\n").selected.op, found);
}

TEST(Session, BracketsFollowWhatWaitedForWhat) {
  const Session session = one(one_f_one_b_trace(3, 2));
  const Trace& trace = session.at(0).trace();
  ViewState state = run(session, start(session), "key /\ntext 1F0\nkey Enter\nkey Escape\nkey [\n");
  EXPECT_EQ(op_name(trace, state.selected.op), "1RECV_F0");
  state = run(session, state, "key [\n");  // its match waited for the other rank's forward
  EXPECT_EQ(op_name(trace, state.selected.op), "0F0");
  state = run(session, state, "key ]\nkey ]\n");
  EXPECT_EQ(trace.class_of(state.selected.op).stage.value, 1);
}

TEST(Session, SearchTakesLettersAsText) {
  const Session session = one(full_trace());
  const ViewState state =
      run(session, start(session), "key /\nkey C\ntext 2B\ntext 3µ\nkey Backspace\n");
  EXPECT_FALSE(state.critical);
  EXPECT_EQ(state.search, "2B3");
  EXPECT_FALSE(run(session, state, "key Escape\n").searching());
}

TEST(Session, DraggingMeasuresAndShiftDraggingPans) {
  const Session session = one(full_trace());
  const ViewState before = start(session);
  const ViewState measured = run(session, before, "press 400 120\nmove 600 120\nrelease 600 120\n");
  ASSERT_TRUE(measured.range);
  const Geometry at = geometry(session, before);
  EXPECT_DOUBLE_EQ(measured.range->first, at.time_at(before, 400));
  EXPECT_DOUBLE_EQ(measured.range->second, at.time_at(before, 600));
  EXPECT_EQ(measured.begin, before.begin);
  const ViewState panned =
      run(session, before, "press 400 120 shift\nmove 600 120\nrelease 600 120\n");
  EXPECT_FALSE(panned.range);
  EXPECT_NEAR(panned.begin, before.begin - (at.time_at(before, 600) - at.time_at(before, 400)),
              1e-6);
}

TEST(Session, PresetsShowThePhases) {
  const Session session = one(one_f_one_b_trace(4, 10, {.optimizer = 0}));
  const ViewState steady = run(session, start(session), "key 2\n");
  EXPECT_DOUBLE_EQ(steady.begin, static_cast<double>(session.warmup_end()));
  EXPECT_DOUBLE_EQ(steady.end, static_cast<double>(session.cooldown_begin()));
  EXPECT_LT(session.warmup_end(), session.cooldown_begin());
  EXPECT_DOUBLE_EQ(run(session, start(session), "key 1\n").begin, 0);
  EXPECT_DOUBLE_EQ(run(session, start(session), "key 3\n").end,
                   static_cast<double>(session.longest_step()));
}

TEST(Session, PlayingMovesTheScrubberToTheEnd) {
  const Session session = one(full_trace());
  ViewState state = run(session, start(session), "key Space\ntick 1\n");
  ASSERT_TRUE(state.play && state.playing);
  EXPECT_NEAR(*state.play, (state.end - state.begin) / 8, 1e-6);
  for (int i = 0; i < 10; ++i) state = run(session, state, "tick 1\n");
  EXPECT_FALSE(state.playing);
  EXPECT_DOUBLE_EQ(*state.play, static_cast<double>(session.longest_step()));
}

TEST(Session, AClickOnARanksNameFoldsIt) {
  const Session session = one(full_trace());
  const ViewState before = start(session);
  const std::size_t lanes = geometry(session, before).lanes.size();
  const ViewState folded = run(session, before, "press 20 100\nrelease 20 100\n");
  EXPECT_LT(geometry(session, folded).lanes.size(), lanes);
  EXPECT_EQ(geometry(session, run(session, folded, "press 20 100\nrelease 20 100\n")).lanes.size(),
            lanes);
}

TEST(Session, TwoTracesOfOneScheduleStandPairByPair) {
  const Session same =
      two(one_f_one_b_trace(3, 4), one_f_one_b_trace(3, 4, {.forward = 1100, .backward = 1900}));
  EXPECT_TRUE(same.same_schedule());
  const Geometry at = geometry(same, start(same));
  ASSERT_GE(at.rows.size(), 4u);
  EXPECT_EQ(at.rows[0].row, at.rows[1].row);
  EXPECT_NE(at.rows[0].document, at.rows[1].document);
  EXPECT_EQ(run(same, start(same), "key D shift\n").color_by, ColorBy::Difference);
  const Session different = two(one_f_one_b_trace(3, 4), one_f_one_b_trace(4, 4));
  EXPECT_FALSE(different.same_schedule());
  EXPECT_EQ(run(different, start(different), "key D shift\n").color_by, ColorBy::Kinds);
  EXPECT_EQ(geometry(different, start(different)).rows.size(), 7u);
}

// U goes back to the view before, Shift + U forth again; a drag, or one key pressed many times, is
// one step.
TEST(Session, TheViewCanBeUndone) {
  const Session session = one(full_trace());
  const ViewState whole = start(session);
  const ViewState zoomed = run(session, whole, "move 600 200\nkey W\nkey W\nkey W\n");
  const ViewState panned =
      run(session, zoomed, "press 600 200 shift\nmove 500 200\nmove 400 200\nrelease 400 200\n");
  EXPECT_NE(panned.begin, zoomed.begin);
  const ViewState once = run(session, panned, "key U\n");
  EXPECT_EQ(once.begin, zoomed.begin);
  EXPECT_EQ(once.end, zoomed.end);
  const ViewState twice = run(session, once, "key U\n");
  EXPECT_EQ(twice.begin, whole.begin);
  EXPECT_EQ(twice.end, whole.end);
  const ViewState none = run(session, twice, "key U\n");  // there is nothing before
  EXPECT_EQ(none.begin, whole.begin);
  const ViewState again = run(session, none, "key U shift\nkey U shift\n");
  EXPECT_EQ(again.begin, panned.begin);
  EXPECT_EQ(again.end, panned.end);
}

// While a name is typed its hits are listed with their number; Enter, Down and Up go through them,
// and beyond the last comes the first.
TEST(Session, TheSearchListsItsHits) {
  const Session session = one(full_trace(3, 5));
  const Trace& trace = session.at(0).trace();
  std::vector<OpId> expected;
  for (OpId op{0}; op.value < trace.num_ops(); ++op.value) {
    if (op_name(trace, op).find("B3") != std::string::npos) expected.push_back(op);
  }
  ASSERT_GE(expected.size(), 3u);
  ViewState state = run(session, start(session), "key /\ntext B3\n");
  const std::string list = svg(view_scene(session, state));
  EXPECT_NE(list.find(std::to_string(expected.size()) + " ops"), std::string::npos);
  for (const OpId op : expected)
    EXPECT_NE(list.find(">" + op_name(trace, op) + "<"), std::string::npos);
  for (std::size_t i = 0; i <= expected.size(); ++i) {
    state = run(session, state, i % 2 == 0 ? "key Enter\n" : "key Down\n");
    EXPECT_EQ(state.selected.op, expected[i % expected.size()]);
  }
  EXPECT_EQ(run(session, state, "key Up\n").selected.op, expected.back());
  EXPECT_FALSE(run(session, start(session), "key /\ntext nothing\nkey Enter\n").selected);
}

TEST(Session, CloseKeyAndHints) {
  const Session session = one(full_trace());
  EXPECT_FALSE(run(session, start(session), "key Q\n").wants_quit);
  EXPECT_TRUE(run(session, start(session), "key Q ctrl\n").wants_quit);
  const std::string first = svg(view_scene(session, start(session)));
  EXPECT_NE(first.find("The mouse over a bubble"), std::string::npos);
  ViewState told = start(session);
  told.notice = "written: here.svg";
  EXPECT_NE(svg(view_scene(session, told)).find("written: here.svg"), std::string::npos);
  EXPECT_TRUE(run(session, told, "key W\n").notice.empty());
}

// On a screen of twice the pixels the window shows what it shows on another, twice as large; keys
// change the size of text, and the mouse stays where it is.
TEST(Session, FollowsTheScaleOfTheScreen) {
  const Session session = one(full_trace());
  const ViewState usual = initial_state(session, 1280, 800),
                  fine = initial_state(session, 2560, 1600, 2);
  EXPECT_EQ(fine.width, usual.width);
  EXPECT_EQ(fine.height, usual.height);
  Scene scene = view_scene(session, fine);
  EXPECT_EQ(scene.scale, 2);
  EXPECT_EQ(scene.pixel_width(), 2560);
  scene.scale = 1;
  EXPECT_EQ(svg(scene), svg(view_scene(session, usual)));
  // The same op is under the same place of the screen.
  const ViewState here = run(session, usual, "press 400 100\nrelease 400 100\n"),
                  there = run(session, fine, "press 800 200\nrelease 800 200\n");
  EXPECT_TRUE(here.selected);
  EXPECT_EQ(here.selected, there.selected);
  const ViewState larger = run(session, usual, "key + ctrl\nkey + ctrl\n");
  EXPECT_LT(larger.width, usual.width);
  EXPECT_NEAR(view_scene(session, larger).pixel_width(), 1280, 1);
  EXPECT_EQ(run(session, larger, "key 0 ctrl\n").width, usual.width);
  EXPECT_LT(run(session, larger, "key - ctrl\nkey - ctrl\nkey - ctrl\n").text_scale, 1);
}

// The 4K screen and the small one: rows take what there is, and everything has its place.
TEST(Session, UsesTheRoomThatThereIs) {
  const Session session = one(one_f_one_b_trace(8, 16));
  double before = 0;
  for (const auto& [width, height] : {std::pair{1280, 720}, {1440, 900}, {3840, 2160}}) {
    const Geometry at = geometry(session, initial_state(session, width, height));
    EXPECT_GE(at.lanes[0].height, before);
    before = at.lanes[0].height;
    EXPECT_GE(at.lanes[0].height, 11);
  }
  EXPECT_GE(before, 60);
}

// K goes round what colours stand for; a window without a second trace has no difference.
TEST(Session, ColoursAreSwitched) {
  const Session session = one(full_trace());
  ViewState state = start(session);
  std::vector<std::string> pictures{svg(view_scene(session, state))};
  for (std::size_t i = 0; i + 2 < kNumColorings; ++i) {
    state = run(session, state, "key K\n");
    pictures.push_back(svg(view_scene(session, state)));
    EXPECT_NE(pictures.back().find("colour: " + std::string(kColorByNames[i + 1])),
              std::string::npos);
    EXPECT_NE(pictures[i], pictures[i + 1]);
  }
  EXPECT_EQ(run(session, state, "key K\n").color_by, ColorBy::Kinds);
  EXPECT_EQ(run(session, start(session), "key K shift\n").color_by, ColorBy::Layer);
}

// Any events in any order: the state stays one that can be drawn, and replays to the same picture.
TEST(Session, AnyScriptReplays) {
  const Session session = two(full_trace(3, 6), one_f_one_b_trace(3, 6, {.forward = 1200}));
  std::mt19937 random(4);
  const auto pick = [&](std::uint32_t below) {
    return static_cast<std::int32_t>(random() % below);
  };
  std::string script;
  SceneCache cache;
  ViewState state = start(session);
  for (int i = 0; i < 600; ++i) {
    Event event{.type = static_cast<Event::Type>(pick(9)),
                .key = static_cast<Key>(1 + pick(static_cast<std::uint32_t>(Key::Three))),
                .shift = pick(3) == 0,
                .control = pick(4) == 0,
                .x = pick(1400) * 1.0,
                .y = pick(900) * 1.0,
                .button = pick(3),
                .seconds = 0.25,
                .text = "F"};
    if (event.type == Event::Type::Wheel) {
      event.x = 0;
      event.y = pick(7) - 3.0;
    }
    if (event.type == Event::Type::Resize) {
      event.x += 100;
      event.y += 100;
    }
    if (event.type == Event::Type::Key && event.key == Key::Question) continue;
    script += to_script(event);
    state = reduce(session, std::move(state), event);
    ASSERT_LT(state.begin, state.end);
    ASSERT_TRUE(std::isfinite(state.begin) && std::isfinite(state.scroll));
    if (i % 60 == 0) {
      const std::string text = svg(view_scene(session, state));
      ASSERT_EQ(svg(view_scene(session, state, cache)), text) << "the cache changes the picture";
      ASSERT_EQ(text.find("nan"), std::string::npos) << script;
    }
  }
  const ViewState again = run(session, start(session), script);
  EXPECT_EQ(again, state);
  EXPECT_EQ(svg(view_scene(session, again)), svg(view_scene(session, state)));
}

TEST(Script, SaysWhichLineIsWrong) {
  const auto error = [](std::string_view text) { return parse_script(text, "s").error().message; };
  EXPECT_EQ(error("key W\n\n# fine\nkey F1\n"), "s:4: no such key: F1");
  EXPECT_EQ(error("jump"), "s:1: no such event: jump");
  EXPECT_EQ(error("move 1"), "s:1: two numbers were expected");
  EXPECT_EQ(error("press 1 2 loudly"), "s:1: not understood: loudly");
}

}  // namespace
}  // namespace rehearse::viz
