// SPDX-License-Identifier: Apache-2.0
// Each thing that the window shows, at three sizes of screens, from fixed traces: what is drawn is
// what was drawn when it was last looked at. tests/data/viz/window/features.txt has a hash of each
// picture's shapes. Where one differs, PICTURES=FOLDER writes it there, and UPDATE_GOLDEN=1 takes
// the new ones, which are then to be looked at.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <map>

#include "tests/viz/picture/places.h"
#include "tests/viz/window/sessions.h"
#include "viz/picture/formats/png.h"
#include "viz/picture/formats/svg.h"
#include "viz/window/geometry.h"
#include "viz/window/view/scene.h"

namespace rehearse::viz {
namespace {

enum class Of : std::uint8_t { One, Two, Many, Experts, Inside };
struct Feature {
  std::string_view name, script;
  Of of = Of::One;
  bool of_a_desk = false;  // asks for keys, or for a box that no phone has room for
};
// A click on the first memory curve, then the mouse over the lower left of what opens.
constexpr std::string_view kClickMemory = "click the memory";
// The mouse over the longest bubble of the second row.
constexpr std::string_view kOverBubble = "over a bubble";
const std::array kFeatures = {
    Feature{"whole", ""},
    Feature{"light", "key X\n"},
    Feature{"bubble", kOverBubble},
    Feature{"selected", "key 2\ndo search 2B4\nkey Enter\nkey Escape\n"},
    Feature{"critical", "key 3\nkey C\n"},
    Feature{"links", "key L\nkey G\n"},
    Feature{"memory", "key I\n"},
    Feature{"chunks", "do color chunk\nkey X\n"},
    Feature{"microbatches", "do color microbatch\n"},
    Feature{"ranks", "do color rank\n"},
    Feature{"costs", "do color cost\n"},
    Feature{"hits", "do search B3\nkey Enter\nkey Down\n", Of::One, true},
    Feature{"filter", "do only kinds F,SEND\ndo only ranks 0-15\ndo only microbatches 0-3\n",
            Of::One, true},
    Feature{"fault", "key F ctrl\ntext NONE\n", Of::One, true},
    Feature{"pinned", "do pin 3\ndo pin 0\n"},
    Feature{"statistics", "key T\ndo sort 2\n"},
    Feature{"bubbles", "key Z\ndo line 2\n"},
    Feature{"range", "key 2\ndo search 1F4\nkey Enter\nkey Escape\nkey M\n"},
    Feature{"help", "key ?\n", Of::One, true},
    Feature{"difference", "key D shift\nkey T\n", Of::Two},
    Feature{"two", "", Of::Two},
    Feature{"aligned", "do search 2B4\nkey Enter\nkey Escape\nkey Q\nkey W\n", Of::Two},
    Feature{"causes", "key E\n", Of::Two},
    Feature{"help-two", "key E\nkey ?\n", Of::Two, true},
    Feature{"classes", "", Of::Many},
    Feature{"unfolded", "do unfold 1\n", Of::Many},
    Feature{"stragglers", "key T shift\n", Of::Many},
    Feature{"waits", "key Z shift\ndo line 1\n", Of::Many},
    Feature{"heat", "key Y\nmove 700 300\n", Of::Many},
    Feature{"heat-cause", "do heat communication\nkey X\nkey 2\n", Of::Many},
    Feature{"heat-excess", "do heat excess\ndo heat_ranks 16-31\nmove 500 220\n", Of::Many},
    Feature{"heat-two", "key Y\n", Of::Two},
    Feature{"inside", "do search 2B4\nkey Enter\nkey Escape\nkey O\n", Of::Inside, true},
    Feature{"arena", kClickMemory, Of::Inside, true},
    Feature{"inventory", "do search 2B4\nkey Enter\nkey Escape\nkey I\n", Of::Inside},
    Feature{"layers", "do color layer\n", Of::Inside},
    Feature{"directions", "do color direction\nkey X\n"},
    Feature{"experts", "key R\nmove 500 200\n", Of::Experts},
};
struct Screen {
  std::int32_t width, height;
  double scale;
};
constexpr Screen kPhone{390, 844, 1};  // of a page that was sent
constexpr std::array kScreens{Screen{1280, 720, 1}, Screen{1440, 900, 1}, Screen{3840, 2160, 2},
                              kPhone};

std::string script_of(const Session& session, const ViewState& state, std::string_view script) {
  const Geometry at = geometry(session, state);
  const auto place = [&](double x, double y) {  // in pixels
    return std::to_string(static_cast<int>(x * state.scale())) + " " +
           std::to_string(static_cast<int>(y * state.scale())) + "\n";
  };
  if (script == kOverBubble) {
    const Trace& trace = session.at(0).trace();
    const LaneSpot& lane = *std::ranges::find(at.lanes, trace.slots, &LaneSpot::lane);
    const IdleSpan* longest = nullptr;
    for (auto i = trace.idle_begin[1]; i < trace.idle_begin[2]; ++i) {
      const IdleSpan& idle = trace.idle[static_cast<std::size_t>(i)];
      if (longest == nullptr || idle.end - idle.begin > longest->end - longest->begin)
        longest = &idle;
    }
    const auto middle = static_cast<double>((longest->begin + longest->end) / 2);
    return "move " + place(at.x_of(state, middle), lane.y + lane.height / 2);
  }
  if (script != kClickMemory) return std::string(script);
  const std::string curve =
      place(at.left + at.width / 3, at.rows[0].memory_y + at.memory_height / 2);
  return "press " + curve + "release " + curve + "move " +
         place(at.left + at.width / 3, at.panel_y - 40);
}

std::string path_of_features() {
  return "tests/data/viz/window/features.txt";
}

// FNV-1a, 64 bits.
std::string hash_of(const std::string& text) {
  std::uint64_t hash = 14695981039346656037u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string digits;
  for (int shift = 60; shift >= 0; shift -= 4) digits += kDigits[hash >> shift & 15];
  return digits;
}

TEST(Features, AreDrawnAsTheyWereLookedAt) {
  std::map<std::string, std::string> golden, now;
  std::ifstream in(path_of_features());
  for (std::string name, hash; in >> name >> hash;) golden[name] = hash;
  std::vector<Session> sessions;
  sessions.push_back(fixture::one(fixture::full_trace(5, 9)));
  sessions.push_back(fixture::two_explained());
  sessions.push_back(fixture::one(fixture::many_ranks()));
  sessions.push_back(fixture::one(fixture::with_experts(fixture::full_trace(4, 6))));
  sessions.push_back(fixture::one(fixture::with_inside(fixture::full_trace(5, 9))));
  for (const Feature& feature : kFeatures) {
    const Session& session = sessions[static_cast<std::size_t>(feature.of)];
    for (const Screen& screen : kScreens) {
      if (feature.of_a_desk && screen.width == kPhone.width) continue;
      const std::string name = std::string(feature.name) + "-" + std::to_string(screen.height);
      ViewState state = initial_state(session, screen.width, screen.height, screen.scale);
      state = fixture::run(session, state, script_of(session, state, feature.script));
      EXPECT_TRUE(state.refused.empty()) << name << ": " << state.refused;
      const Scene scene = view_scene(session, state);
      now[name] = hash_of(svg(scene));
      for (const std::string& fault : fixture::all_misplaced(scene, scene.width))
        ADD_FAILURE() << name << ": " << fault;
      for (const std::string& fault :
           feature.name == "fault"
               ? std::vector<std::string>{}  // what is said covers the axis
               : fixture::misplaced(fixture::below_the_top(scene), scene.width)) {
        ADD_FAILURE() << name << ": " << fault;
      }
      if (const char* folder = std::getenv("PICTURES"))
        std::ofstream(std::string(folder) + "/" + name + ".png", std::ios::binary) << png(scene);
      if (std::getenv("UPDATE_GOLDEN") != nullptr) continue;
      EXPECT_EQ(golden[name], now[name]) << name << " is drawn otherwise";
    }
  }
  const auto of_a_desk =
      static_cast<std::size_t>(std::ranges::count(kFeatures, true, &Feature::of_a_desk));
  EXPECT_EQ(now.size(), kFeatures.size() * kScreens.size() - of_a_desk);
  if (std::getenv("UPDATE_GOLDEN") == nullptr) return;
  std::ofstream out(path_of_features());
  for (const auto& [name, hash] : now) out << name << " " << hash << "\n";
}

}  // namespace
}  // namespace rehearse::viz
