// SPDX-License-Identifier: Apache-2.0
// The real window on a display (CTest starts one without a screen): what it shows is what the pure
// core draws, and real keys and mouse reach the core.
#include "viz/window/window.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <thread>

#include "tests/viz/picture/full_trace.h"
#include "viz/picture/formats/png.h"
#include "viz/window/geometry.h"
#include "viz/window/offscreen.h"
#include "viz/window/script.h"
#include "viz/window/view/scene.h"

namespace rehearse::viz {
namespace {

Session example(std::int32_t documents) {
  std::vector<Document> all;
  for (std::int32_t d = 0; d < documents; ++d) {
    all.emplace_back(fixture::one_f_one_b_trace(
        4, 40, {.forward = 1000 + 90 * d, .backward = 2000},
        {.label = d == 0 ? TraceLabel::Predicted : TraceLabel::Measured, .title = "window test"}));
  }
  return Session(std::move(all));
}

bool shows() {
  return has_window() && std::getenv("DISPLAY") != nullptr &&
         std::getenv("REHEARSE_NO_WINDOW") == nullptr;
}

// Share of pixels of which a channel differs visibly.
double differing(const std::vector<std::uint32_t>& a, const std::vector<std::uint32_t>& b) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    int most = 0;
    for (int shift = 0; shift < 24; shift += 8) {
      most = std::max(most, std::abs(static_cast<int>((a[i] >> shift) & 255) -
                                     static_cast<int>((b[i] >> shift) & 255)));
    }
    count += most > 48;
  }
  return static_cast<double>(count) / static_cast<double>(a.size());
}

struct Script {
  std::string name, events;
  friend void PrintTo(const Script& script, std::ostream* out) { *out << script.name; }
};
class WindowScript : public testing::TestWithParam<Script> {};

// Smoothed edges differ between OpenGL and our rasteriser: 2 % of the pixels may. A missing lane,
// label, hatch or panel is more than that.
TEST_P(WindowScript, ShowsWhatTheCoreDraws) {
  if (!shows()) GTEST_SKIP() << "SKIPPED: no display, or built without the window";
  const Session session = example(GetParam().name == "difference" ? 2 : 1);
  const auto events = parse_script(GetParam().events, "script");
  ASSERT_TRUE(events) << events.error().message;
  const Result<WindowResult> shown = run_window(
      session, {.width = 1200, .height = 700, .events = events.value(), .capture = true});
  ASSERT_TRUE(shown) << shown.error().message;
  ViewState state = initial_state(session, 1200, 700);
  for (const Event& event : events.value()) state = reduce(session, std::move(state), event);
  ASSERT_EQ(shown.value().width, 1200);
  ASSERT_EQ(shown.value().height, 700);
  auto drawn = rasterize(view_scene(session, state));
  // A table is a widget's: Window.TheWidgetsKeepTheirPlaces and the golden pictures hold it.
  const Geometry at = geometry(session, state);
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    if (at.over_table(static_cast<double>(i % 1200), static_cast<double>(i / 1200)))
      drawn[i] = shown.value().pixels[i];
  }
  EXPECT_LT(differing(shown.value().pixels, drawn), 0.02);
  // The comparison can fail: another theme is another picture.
  state.dark = !state.dark;
  EXPECT_GT(differing(shown.value().pixels, rasterize(view_scene(session, state))), 0.3);
}

INSTANTIATE_TEST_SUITE_P(
    Scripts, WindowScript,
    testing::Values(
        Script{"whole", "key Home\n"},
        Script{"zoom", "move 600 150\nwheel 0 5 ctrl\nkey W\nkey W\n"},
        Script{"pan", "key 2\npress 600 150 shift\nmove 500 150\nrelease 500 150\n"},
        Script{"select", "key 2\nkey /\ntext 2B9\nkey Enter\nkey Escape\nkey F\nkey F\n"},
        Script{"range", "press 400 150\nmove 700 150\nrelease 700 150\n"},
        Script{"critical", "key 3\nkey C\n"}, Script{"difference", "key 2\nkey D shift\n"},
        Script{"scrub", "press 500 75\nmove 640 75\nrelease 640 75\n"},
        Script{"statistics", "key T\n"}, Script{"help", "key ?\n"}, Script{"light", "key X\n"}),
    [](const auto& script) { return script.param.name; });

// --- Input from outside the process, through the X server: keys, text, wheel, buttons ---

constexpr std::int32_t kWidth = 1200, kHeight = 704, kBlock = 8;

// Mean colours of the blocks of a picture: lines and letters blur, what is where stays.
struct Blocks {
  std::vector<std::uint8_t> rgb;  // kWidth / kBlock to the row
};
Blocks blocks_of(const std::vector<std::uint32_t>& pixels) {
  Blocks out;
  for (std::int32_t y = 0; y < kHeight; y += kBlock) {
    for (std::int32_t x = 0; x < kWidth; x += kBlock) {
      for (int shift = 0; shift < 24; shift += 8) {
        std::uint32_t sum = 0;
        for (std::int32_t i = 0; i < kBlock * kBlock; ++i) {
          sum += pixels[static_cast<std::size_t>((y + i / kBlock) * kWidth + x + i % kBlock)] >>
                     shift &
                 255u;
        }
        out.rgb.push_back(static_cast<std::uint8_t>(sum / (kBlock * kBlock)));
      }
    }
  }
  return out;
}

// Share of blocks of which a channel differs by more than kLevels of 255.
constexpr int kLevels = 12;
double differing(const Blocks& a, const Blocks& b) {
  if (a.rgb.size() != b.rgb.size()) return 1;
  std::size_t count = 0;
  for (std::size_t i = 0; i < a.rgb.size(); i += 3) {
    bool differs = false;
    for (std::size_t c = i; c < i + 3; ++c)
      differs = differs || std::abs(int{a.rgb[c]} - int{b.rgb[c]}) > kLevels;
    count += differs;
  }
  return static_cast<double>(count) / (static_cast<double>(a.rgb.size()) / 3);
}
// Of 13,200 blocks so many may differ, for another OpenGL or another font. Moving the selection by
// one op is already more (the test holds that).
constexpr double kTolerance = 0.001;

// tests/data/viz/window/NAME.ppm: binary portable pixmap, a pixel per block.
std::string golden_path(const std::string& name) {
  return "tests/data/viz/window/" + name + ".ppm";
}
Blocks read_golden(const std::string& name) {
  std::ifstream in(golden_path(name), std::ios::binary);
  std::string format;
  std::int32_t width = 0, height = 0, most = 0;
  in >> format >> width >> height >> most;
  in.get();
  Blocks out;
  if (format == "P6" && width == kWidth / kBlock && height == kHeight / kBlock)
    out.rgb.assign(std::istreambuf_iterator<char>(in), {});
  return out;
}
void write_golden(const std::string& name, const Blocks& blocks) {
  std::ofstream(golden_path(name), std::ios::binary)
      << "P6\n"
      << kWidth / kBlock << " " << kHeight / kBlock << "\n255\n"
      << std::string(blocks.rgb.begin(), blocks.rgb.end());
}

// What a person does, as shell: $w is the window; `at X Y` moves the mouse there, `drag X Y` moves
// it in steps and lets go.
struct Deed {
  std::string name, does;
  std::int32_t documents = 1;
  friend void PrintTo(const Deed& deed, std::ostream* out) { *out << deed.name; }
};
Result<WindowResult> after(const Deed& deed, const Session& session,
                           const std::string& export_file = {}) {
  std::atomic<bool> done = false;
  std::thread person([&] {
    const std::string script =
        "w=$(timeout 500 xdotool search --sync --onlyvisible --name 'rehearse: window test' | head "
        "-1); at() { xdotool mousemove --window $w $1 $2; sleep 0.1; }; "
        "drag() { xdotool mousemove --window $w $1 $2; sleep 0.05; xdotool mouseup 1; sleep 0.1; "
        "}; sleep 0.2; xdotool windowfocus $w; at 600 20; " +
        deed.does;
    EXPECT_EQ(std::system(script.c_str()), 0);
    done = true;
  });
  Result<WindowResult> shown = run_window(session, {.width = kWidth,
                                                    .height = kHeight,
                                                    .export_file = export_file,
                                                    .capture = true,
                                                    .until = [&] { return done.load(); }});
  person.join();
  return shown;
}

class WindowDeed : public testing::TestWithParam<Deed> {};

TEST_P(WindowDeed, ShowsWhatItShowedBefore) {
  if (!shows() || std::system("command -v xdotool >/dev/null 2>&1") != 0)
    GTEST_SKIP() << "SKIPPED: no display or no xdotool";
  const Session session = example(GetParam().documents);
  const Result<WindowResult> shown = after(GetParam(), session);
  ASSERT_TRUE(shown) << shown.error().message;
  const ViewState& state = shown.value().state;
  ASSERT_EQ(shown.value().width, kWidth);
  ASSERT_EQ(shown.value().height, kHeight);
  const Blocks now = blocks_of(shown.value().pixels);
  if (std::getenv("UPDATE_GOLDEN") != nullptr) write_golden(GetParam().name, now);
  const Blocks golden = read_golden(GetParam().name);
  EXPECT_LE(differing(now, golden), kTolerance) << "see " << golden_path(GetParam().name);

  // Without a display the same OpenGL draws the same.
  if (const auto drawn = draw_offscreen(session, state)) {
    EXPECT_LE(differing(blocks_of(drawn.value()), golden), kTolerance);
  }

  // Planted differences: nothing done at all; and the selection one op further.
  const ViewState before = initial_state(session, kWidth, kHeight);
  EXPECT_GT(differing(blocks_of(rasterize(view_scene(session, before))), golden), 2 * kTolerance);
  if (state.selected) {
    const ViewState further =
        reduce(session, state, {.type = Event::Type::Key, .key = Key::Period});
    EXPECT_GT(differing(blocks_of(rasterize(view_scene(session, further))), golden),
              2 * kTolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Deeds, WindowDeed,
    testing::Values(
        Deed{"zoom",
             "at 600 150; xdotool key w w w; xdotool keydown ctrl click 4 click 4 keyup ctrl"},
        Deed{"pan",
             "xdotool key 2; at 700 150; xdotool keydown shift mousedown 1; drag 550 150; "
             "xdotool keyup shift key d"},
        Deed{"select", "xdotool key 2; at 600 120; xdotool click 1"},
        Deed{"search",
             "xdotool key slash; xdotool type --delay 30 2B9; xdotool key Return Escape "
             "f f"},
        Deed{"range", "at 420 120; xdotool mousedown 1; drag 700 124"},
        Deed{"critical", "xdotool key 3 c"},
        Deed{"scrub", "at 500 75; xdotool mousedown 1; drag 640 75"},
        Deed{"statistics", "xdotool key t", 2}, Deed{"difference", "xdotool key 2 shift+d", 2}),
    [](const auto& deed) { return deed.param.name; });

// Two traces are opened, an op is searched for in the field and gone to, kinds are asked for in
// another field, a table is opened from its menu, sorted and copied, the traces are compared, and
// the view is written.
TEST(Window, IsToured) {
  if (!shows() || std::system("command -v xdotool >/dev/null 2>&1") != 0)
    GTEST_SKIP() << "SKIPPED: no display or no xdotool";
  const Session session = example(2);
  const std::string file = testing::TempDir() + "/tour.svg";
  const ViewState before = initial_state(session, kWidth, kHeight);
  ViewState with_fields = before;
  with_fields.filter_open = true;
  const Geometry at = geometry(session, with_fields);
  const auto middle = [](double x, double y) {
    return std::to_string(static_cast<int>(x)) + " " + std::to_string(static_cast<int>(y));
  };
  const std::string kinds = middle(at.fields[1].x + 20, at.fields_y + 14);
  const Result<WindowResult> shown = after(
      {"tour",
       "at 600 250; xdotool key w w slash; xdotool type --delay 30 2F7; xdotool key Down Escape; "
       "xdotool key ctrl+f; at " +
           kinds +
           "; xdotool click 1; xdotool type --delay 30 F; xdotool key Escape; "
           "at 120 14; xdotool click 1; sleep 0.2; at 140 38; xdotool click 1; sleep 0.2; "
           "at 600 300; xdotool key ctrl+c shift+d c; at 420 250; xdotool mousedown 1; "
           "drag 700 254; xdotool key ctrl+e"},
      session, file);
  ASSERT_TRUE(shown) << shown.error().message;
  const ViewState& state = shown.value().state;
  EXPECT_NEAR((state.end - state.begin) / (before.end - before.begin), 0.8 * 0.8, 1e-6);
  EXPECT_EQ(state.search, "2F7");
  ASSERT_TRUE(state.selected);
  EXPECT_EQ(op_name(session.at(0).trace(), state.selected.op), "2F7");
  EXPECT_EQ(state.filter.of(FilterPart::Kinds), "F");
  EXPECT_EQ(state.table, TableKind::Statistics);
  EXPECT_EQ(state.color_by, ColorBy::Difference);
  EXPECT_TRUE(state.critical);
  EXPECT_TRUE(state.range);
  EXPECT_NE(state.notice.find("tour.svg"), std::string::npos) << state.notice;
  std::ifstream written(file);
  const std::string text(std::istreambuf_iterator<char>(written), {});
  EXPECT_NE(text.find("</svg>"), std::string::npos);
}

// Of many ranks a class is unfolded by a click on its name, the map of all is opened and gone into,
// a double click leads to a rank's lane; the ranks that others waited for are sorted and gone to.
TEST(Window, ManyRanksAreToured) {
  if (!shows() || std::system("command -v xdotool >/dev/null 2>&1") != 0)
    GTEST_SKIP() << "SKIPPED: no display or no xdotool";
  Trace trace = fixture::replicas_trace(4, 9, 12, 5);
  trace.title = "window test";
  std::vector<Document> documents;
  documents.emplace_back(std::move(trace));
  const Session session(std::move(documents));
  const ViewState before = initial_state(session, kWidth, kHeight);
  ASSERT_EQ(geometry(session, before).rows.size(), 4u);
  ViewState map = before, table = before;
  map.heats = true;
  table.table = TableKind::Stragglers;
  const auto place = [](double x, double y) {
    return std::to_string(static_cast<int>(x)) + " " + std::to_string(static_cast<int>(y));
  };
  const RowSpot second = geometry(session, before).rows[1];
  const HeatSpot heat = geometry(session, map).heats[0];
  const Geometry below = geometry(session, table);
  const Result<WindowResult> shown = after(
      {"tour", "at " + place(40, second.y + 5) +
                   "; xdotool keydown ctrl click 1 keyup ctrl; sleep 0.1; xdotool key y; at " +
                   place(600, heat.y + heat.height / 2) +
                   "; xdotool keydown ctrl keydown shift click 4 click 4 keyup shift keyup ctrl; "
                   "sleep 0.1; "
                   "xdotool click --repeat 2 --delay 80 1; sleep 0.2; xdotool key shift+t; at " +
                   place(below.table_x + 60, below.table_y + 2.5 * Geometry::kTableLine) +
                   "; xdotool click 1; sleep 0.1; xdotool key ctrl+c"},
      session);
  ASSERT_TRUE(shown) << shown.error().message;
  const ViewState& state = shown.value().state;
  EXPECT_FALSE(state.heats);
  EXPECT_NEAR(state.heat_last - state.heat_first, 0.8 * 0.8, 1e-9);
  EXPECT_EQ(state.table, TableKind::Stragglers);
  EXPECT_EQ(state.notice, "copied");
  ASSERT_TRUE(state.selected);
  const std::size_t rows = geometry(session, state).rows.size();
  EXPECT_GE(rows, 15u);  // the class that was unfolded
  const Trace& ranks = session.at(0).trace();
  const auto waited = session.at(0).waited_for();
  EXPECT_TRUE(std::ranges::any_of(waited, [&](const WaitedFor& one) {
    return one.op == state.selected.op;
  })) << op_name(ranks, state.selected.op);
}

// Two traces: an op is gone to and both begin with it; the lanes of differences go; why the second
// takes longer is a table.
TEST(Window, TwoTracesAreToured) {
  if (!shows() || std::system("command -v xdotool >/dev/null 2>&1") != 0)
    GTEST_SKIP() << "SKIPPED: no display or no xdotool";
  const Session session = example(2);
  const Result<WindowResult> shown = after(
      {"tour",
       "at 600 250; xdotool key slash; xdotool type --delay 30 2B7; xdotool key Return Escape; "
       "xdotool key q shift+l e"},
      session);
  ASSERT_TRUE(shown) << shown.error().message;
  const ViewState& state = shown.value().state;
  EXPECT_EQ(state.alignment.how, Align::Op);
  ASSERT_TRUE(state.alignment.op);
  EXPECT_EQ(op_name(session.at(1).trace(), state.alignment.op), "2B7");
  EXPECT_FALSE(state.lags);
  EXPECT_EQ(state.table, TableKind::Causes);
}

// Widgets and scene show the same cells, heads and notes, at their places: a table by Dear ImGui
// covers no lane.
TEST(Window, TheWidgetsKeepTheirPlaces) {
  const Session session = example(1);
  ViewState state = initial_state(session, kWidth, kHeight);
  state = reduce(session, state, {.type = Event::Type::Key, .key = Key::T});
  const auto without = draw_offscreen(session, state);
  if (!without) GTEST_SKIP() << "SKIPPED: " << without.error().message;
  state.widgets = true;
  const auto with = draw_offscreen(session, state);
  ASSERT_TRUE(with) << with.error().message;
  const Geometry at = geometry(session, state);
  std::int64_t outside = 0, inside = 0;
  for (std::int32_t y = 0; y < kHeight; ++y) {
    for (std::int32_t x = 0; x < kWidth; ++x) {
      const auto i = static_cast<std::size_t>(y * kWidth + x);
      if (with.value()[i] == without.value()[i]) continue;
      const bool theirs = at.over_table(x, y) || y < at.minimap_y;  // the title moves aside
      ++(theirs ? inside : outside);
    }
  }
  EXPECT_EQ(outside, 0);
  EXPECT_GT(inside, 1000);
}

// A window that nobody touches draws once, not sixty times a second.
TEST(Window, DrawsNothingWhileNothingChanges) {
  if (!shows()) GTEST_SKIP() << "SKIPPED: no display, or built without the window";
  const Session session = example(1);
  const Result<WindowResult> shown =
      run_window(session, {.width = 800, .height = 600, .capture = true, .linger_s = 1.0});
  ASSERT_TRUE(shown) << shown.error().message;
  EXPECT_LE(shown.value().frames, 6);
}

// EGL: no display is needed, equal scenes give equal bytes, and the picture is the core's.
TEST(Offscreen, DrawsWhatTheCoreDraws) {
  const Session session = example(1);
  const ViewState state = initial_state(session, kWidth, kHeight);
  const auto first = draw_offscreen(session, state);
  if (!first) GTEST_SKIP() << "SKIPPED: " << first.error().message;
  EXPECT_LT(differing(first.value(), rasterize(view_scene(session, state))), 0.02);
  const auto second = draw_offscreen(session, state);
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_EQ(first.value(), second.value());
}

// Names and shares stand beside the map as the core has them, not cut off with the lanes.
TEST(Offscreen, TheMapHasItsNames) {
  std::vector<Document> documents;
  documents.emplace_back(fixture::replicas_trace(4, 9, 12, 5));
  const Session session(std::move(documents));
  ViewState state = initial_state(session, kWidth, kHeight);
  state = reduce(session, state, {.type = Event::Type::Key, .key = Key::Y});
  const auto drawn = draw_offscreen(session, state);
  if (!drawn) GTEST_SKIP() << "SKIPPED: " << drawn.error().message;
  const auto core = rasterize(view_scene(session, state));
  const Geometry at = geometry(session, state);
  const auto inked = [&](const std::vector<std::uint32_t>& pixels, double from, double to) {
    std::int64_t count = 0;
    for (auto y = static_cast<std::int32_t>(at.top); y < static_cast<std::int32_t>(at.bottom);
         ++y) {
      for (auto x = static_cast<std::int32_t>(from); x < static_cast<std::int32_t>(to); ++x)
        count += (pixels[static_cast<std::size_t>(y * kWidth + x)] & 255) > 100;
    }
    return static_cast<double>(count);
  };
  for (const auto& [from, to] : {std::pair{0.0, at.left}, {kWidth - 55.0, kWidth * 1.0}}) {
    EXPECT_GT(inked(core, from, to), 500);
    EXPECT_NEAR(inked(drawn.value(), from, to) / inked(core, from, to), 1, 0.3);
  }
}

TEST(Window, SaysThatThereIsNoDisplay) {
  if (!has_window() || std::getenv("DISPLAY") != nullptr) GTEST_SKIP() << "SKIPPED: there is one";
  const Result<WindowResult> shown = run_window(example(1), {});
  ASSERT_FALSE(shown);
  EXPECT_NE(shown.error().message.find("no display"), std::string::npos);
  for (const char* instead : {"--png FILE", "--html FILE"})
    EXPECT_NE(shown.error().message.find(instead), std::string::npos) << instead;
}

}  // namespace
}  // namespace rehearse::viz
