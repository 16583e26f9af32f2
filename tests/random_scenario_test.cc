// SPDX-License-Identifier: Apache-2.0
// The generator of random scenarios leaves no key of a plan out.
#include "tests/random_scenario.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "schedules/scenario/keys/plan_rows.h"
#include "schedules/scenario/keys/scenario_keys.h"

namespace rehearse::sim {
namespace {

// Keys that random scenarios do not say, each with the reason.
struct NotDrawn {
  std::string_view key, why;
};
constexpr std::array kNotDrawn{
    NotDrawn{"transfers", "transfer_forms_test tries every form of every schedule"},
    NotDrawn{"offload_to", "few clusters say how fast drives are: offload_test, matrix_test"},
    NotDrawn{"swap_pipeline", "of states on drives alone: offload_test, import_test.sh"},
    NotDrawn{"swap_elements", "likewise"},
    NotDrawn{"head_exchange_group", "at most four ranks share a sequence here: two is its default"},
    NotDrawn{"indexer_loss", "no drawn model has an indexer: layer_kinds_test"},
    NotDrawn{"recompute_stream_layers", "no drawn model has several streams: layer_kinds_test"},
};

std::vector<std::string> keys_of_plans() {
  std::vector<std::string> keys;
  for (const KeySpec& spec : plan_key_table().keys) {
    if (spec.name == "overlap") continue;  // by its members
    keys.emplace_back(spec.name);
  }
  for (const PlanRow& row : overlap_rows()) keys.push_back("overlap." + std::string(row.key.name));
  return keys;
}

TEST(RandomScenario, EveryKeyOfAPlanIsSaidAndMeansSomething) {
  constexpr std::uint64_t kSeeds = 1000;
  std::map<std::string, std::int32_t> said, telling;
  std::int64_t refused = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const RandomScenario drawn = random_scenario(seed);
    refused += drawn.refused;
    for (const auto& [key, value] : drawn.text.plan) ++said[key];
    for (const std::string& key : telling_keys(drawn.text)) ++telling[key];
  }
  const std::vector<std::string> keys = keys_of_plans();
  for (const std::string& key : keys) {
    const bool left_out = std::ranges::find(kNotDrawn, key, &NotDrawn::key) != kNotDrawn.end();
    std::printf("%-26s said %4d, means something %4d times\n", key.c_str(), said[key],
                telling[key]);
    EXPECT_EQ(telling[key] > 0, !left_out)
        << key << ": give it a row in tests/random_scenario.cc, or a reason here";
  }
  for (const std::string_view key : drawn_keys()) {
    EXPECT_NE(std::ranges::find(keys, key), keys.end()) << key << " is no key of a plan";
  }
  std::printf("%ld refused\n", static_cast<long>(refused));
  EXPECT_LT(refused, 10 * static_cast<std::int64_t>(kSeeds));
}

TEST(RandomScenario, ASeedIsOneScenario) {
  EXPECT_EQ(random_scenario(5).text.text(), random_scenario(5).text.text());
  EXPECT_NE(random_scenario(5).text.text(), random_scenario(6).text.text());
}

}  // namespace
}  // namespace rehearse::sim
