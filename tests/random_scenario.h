// SPDX-License-Identifier: Apache-2.0
// One random scenario for all tests that ask what must hold of any: models and clusters as shipped
// and made up, plans over every key. A key is a row of random_scenario.cc; the test beside this
// file says which key of the plan's table has none.
//
// Only what the reader accepts is returned. The same seed gives the same scenario everywhere.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/scenario/scenario.h"
#include "sim/cluster/cluster.h"

namespace rehearse::sim {

// std::mt19937_64's numbers are the same everywhere; the distributions of <random> are not.
class Chance {
 public:
  explicit Chance(std::uint64_t seed) : engine_(seed) {}
  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(n));
  }
  bool percent(std::int64_t p) { return below(100) < p; }
  template <class T>
  T of(std::initializer_list<T> choices) {
    return *(choices.begin() + below(static_cast<std::int64_t>(choices.size())));
  }

 private:
  std::mt19937_64 engine_;
};

// A scenario key by key. Values are JSON; a member of `overlap` is "overlap.pipeline".
struct ScenarioText {
  std::string model, cluster, variation;  // no variation: all GPUs are as described
  std::map<std::string, std::string> plan;
  std::vector<std::string> set;  // as --set: "model.num_hidden_layers=8"

  bool has(const std::string& key) const { return plan.contains(key); }
  std::int64_t number(const std::string& key, std::int64_t otherwise) const;
  std::string text() const;
  // With a cluster that has enough of what the plan needs.
  Result<Scenario> read() const;
};

struct RandomScenario {
  ScenarioText text;
  Scenario scenario;
  Cluster cluster;
  std::int32_t refused = 0;  // scenarios drawn before that the reader refused
};

// What is drawn.
struct DrawLimits {
  std::int32_t most_gpus = 64, most_microbatches = 16;
  bool shipped_models = true;  // not made-up ones alone, which are smaller
  bool open = true;            // micro_batch "auto" and schedules that are chosen, too
  bool own_executor = true;    // runtime rehearse, too
};

RandomScenario random_scenario(std::uint64_t seed, const DrawLimits& limits = {});

// The keys that a random scenario may say, as in ScenarioText::plan.
std::vector<std::string_view> drawn_keys();
// Those that it says and that mean something: without one the plan is another, or none.
std::vector<std::string> telling_keys(const ScenarioText& text);

}  // namespace rehearse::sim
