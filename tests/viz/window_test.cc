// The real window on a display (CTest starts one without a screen): what it shows is what the pure
// core draws, and real keys and mouse reach the core.
#include "viz/window.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include "tests/viz/full_trace.h"
#include "viz/png.h"
#include "viz/script.h"
#include "viz/view_scene.h"

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
  if (!shows()) GTEST_SKIP() << "no display, or built without the window";
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
  const auto drawn = rasterize(view_scene(session, state));
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

// Input from outside the process, through the X server: keys, text, wheel, buttons.
TEST(Window, TakesRealKeysAndMouse) {
  if (!shows() || std::system("command -v xdotool >/dev/null 2>&1") != 0)
    GTEST_SKIP() << "no display or no xdotool";
  const Session session = example(1);
  std::thread person([] {
    const int done = std::system(
        "sleep 0.6; w=$(xdotool search --onlyvisible --name 'rehearse: window test' | head -1); "
        "xdotool windowfocus $w mousemove --window $w 600 150; sleep 0.1; "
        "for i in 1 2 3; do xdotool keydown w; sleep 0.06; xdotool keyup w; done; "
        "xdotool key slash; sleep 0.1; xdotool type --delay 40 '2F7'; sleep 0.1; xdotool key "
        "Return; sleep 0.1; xdotool key Escape; "
        "xdotool click 5; sleep 0.1; xdotool mousemove --window $w 420 120 mousedown 1 mousemove "
        "--window $w 520 122 "
        "mousemove --window $w 700 124 mouseup 1; sleep 0.1; xdotool key c");
    EXPECT_EQ(done, 0);
  });
  const Result<WindowResult> shown =
      run_window(session, {.width = 1200, .height = 700, .capture = true, .linger_s = 3.5});
  person.join();
  ASSERT_TRUE(shown) << shown.error().message;
  const ViewState& state = shown.value().state;
  const ViewState before = initial_state(session, 1200, 700);
  EXPECT_NEAR((state.end - state.begin) / (before.end - before.begin), 0.8 * 0.8 * 0.8, 1e-6);
  EXPECT_EQ(state.search, "2F7");
  ASSERT_TRUE(state.selected);
  EXPECT_EQ(op_name(session.at(0).trace(), state.selected.op), "2F7");
  EXPECT_TRUE(state.range);
  EXPECT_TRUE(state.critical);
}

// A window that nobody touches draws once, not sixty times a second.
TEST(Window, DrawsNothingWhileNothingChanges) {
  if (!shows()) GTEST_SKIP() << "no display, or built without the window";
  const Session session = example(1);
  const Result<WindowResult> shown =
      run_window(session, {.width = 800, .height = 600, .capture = true, .linger_s = 1.0});
  ASSERT_TRUE(shown) << shown.error().message;
  EXPECT_LE(shown.value().frames, 6);
}

TEST(Window, SaysThatThereIsNoDisplay) {
  if (!has_window() || std::getenv("DISPLAY") != nullptr) GTEST_SKIP() << "there is one";
  const Result<WindowResult> shown = run_window(example(1), {});
  ASSERT_FALSE(shown);
  EXPECT_NE(shown.error().message.find("no display"), std::string::npos);
}

}  // namespace
}  // namespace rehearse::viz
