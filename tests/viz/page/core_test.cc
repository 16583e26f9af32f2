// SPDX-License-Identifier: Apache-2.0
// The page's functions say what the window's scene holds, and nothing that they are given ends
// them.
#include <gtest/gtest.h>

#include <cstring>

#include "schedules/trace/trace_bytes.h"
#include "viz/import/import.h"
#include "viz/page/pack.h"
#include "viz/window/keys.h"
#include "viz/window/view/scene.h"

extern "C" {
void* page_allocate(std::size_t bytes);
std::int32_t page_add_trace(const std::byte* packed, std::size_t size);
const char* page_fault();
void page_start(std::int32_t width, std::int32_t height);
std::int32_t page_event(std::int32_t type, std::int32_t key, std::int32_t modifiers, double x,
                        double y, std::int32_t button, double seconds, std::uint32_t code);
std::int32_t page_key(const char* name, std::size_t size);
std::int32_t page_playing();
std::int32_t page_take_export();
const std::uint32_t* page_commands();
std::size_t page_num_words();
const std::uint32_t* page_pixels();
std::uint32_t page_hatch(std::int32_t hatch, std::int32_t x, std::int32_t y);
}

namespace rehearse::viz {
namespace {

// The texts among the drawing commands, in order; a fault where a command is none.
std::vector<std::string> texts_of(const std::uint32_t* words, std::size_t count) {
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < count;) {
    switch (words[i]) {
      case 1:
        i += 9;
        break;
      case 2:
        i += 6 + words[i + 5];
        break;
      case 3:
        i += 5 + 2 * std::size_t{words[i + 4]};
        break;
      case 4:
        i += 7;
        break;
      case 5: {
        const std::size_t bytes = words[i + 7];
        texts.emplace_back(reinterpret_cast<const char*>(words + i + 8), bytes);
        i += 8 + (bytes + 3) / 4;
        break;
      }
      case 6:
        i += 5;
        break;
      case 7:
        i += 1;
        break;
      case 8:
        i += 3;
        break;
      default:
        ADD_FAILURE() << "command " << words[i] << " at " << i;
        return texts;
    }
  }
  return texts;
}

void collect(const Scene& scene, std::vector<std::string>& texts) {
  for (const Text& text : scene.texts) texts.push_back(text.text);
  for (const Scene& layer : scene.layers) collect(layer, texts);
}

TEST(PageCore, SaysWhatTheWindowShows) {
  const std::string path = testing::TempDir() + "/core_test.trace";
  ASSERT_EQ(
      std::system((REHEARSE_COMMAND " simulate 3d-8-gpus --trace " + path + " >/dev/null").c_str()),
      0);
  Result<Trace> trace = load_trace(path);
  ASSERT_TRUE(trace) << trace.error().message;
  const std::string file = trace_bytes(trace.value());
  const std::string packed = pack_trace(std::as_bytes(std::span(file)));

  const std::string cut = packed.substr(0, packed.size() / 2);
  EXPECT_EQ(page_add_trace(reinterpret_cast<const std::byte*>(cut.data()), cut.size()), -1);
  EXPECT_STREQ(page_fault(), "the packed trace is cut short");
  ASSERT_EQ(page_add_trace(reinterpret_cast<const std::byte*>(packed.data()), packed.size()),
            trace.value().num_ops());
  page_start(1440, 900);

  std::vector<Document> documents;
  documents.emplace_back(std::move(trace).value());
  const Session session(std::move(documents));
  ViewState state = initial_state(session, 1440, 900);
  const auto both_do = [&](const Event& event, std::uint32_t code = 0) {
    state = reduce(session, std::move(state), event);
    page_event(static_cast<std::int32_t>(event.type), static_cast<std::int32_t>(event.key),
               (event.shift ? 1 : 0) | (event.control ? 2 : 0), event.x, event.y, event.button,
               event.seconds, code);
    std::vector<std::string> expected;
    collect(view_scene(session, state), expected);
    const std::uint32_t* words = page_commands();
    EXPECT_EQ(texts_of(words, page_num_words()), expected);
  };
  both_do({.type = Event::Type::Move, .x = 700, .y = 140});
  both_do({.type = Event::Type::Wheel, .control = true, .y = 3});
  both_do({.type = Event::Type::Press, .x = 700, .y = 140});
  both_do({.type = Event::Type::Release, .x = 700, .y = 140});
  both_do({.type = Event::Type::Key, .key = static_cast<Key>(page_key("T", 1))});
  both_do({.type = Event::Type::Key, .key = static_cast<Key>(page_key("Y", 1))});
  both_do({.type = Event::Type::Move, .x = 700, .y = 150});
  both_do({.type = Event::Type::Key, .key = static_cast<Key>(page_key("Y", 1))});
  both_do({.type = Event::Type::Key, .key = static_cast<Key>(page_key("Home", 4))});
  both_do({.type = Event::Type::Resize, .x = 390, .y = 844});
  both_do({.type = Event::Type::Key, .key = static_cast<Key>(page_key("Space", 5))});
  EXPECT_EQ(page_playing(), state.playing ? 1 : 0);
  EXPECT_EQ(page_key("no such key", 11), 0);
  EXPECT_EQ(page_take_export(), 0);
  EXPECT_NE(page_pixels(), nullptr);
  bool inked = false;
  for (std::int32_t x = 0; x < 40; ++x) inked |= page_hatch(1, x, 0) > 0;
  EXPECT_TRUE(inked);
}

}  // namespace
}  // namespace rehearse::viz
