// SPDX-License-Identifier: Apache-2.0
// What a report says of a plan that fits, hardly fits or does not, in words and as JSON.
#include "sim/report/fit_text.h"

#include <gtest/gtest.h>

#include "schedules/base/json_reader.h"

namespace rehearse::sim {
namespace {

MemoryReport report(std::int64_t peak, std::int64_t capacity) {
  MemoryReport memory;
  memory.capacity = capacity;
  memory.peak_device = peak;
  memory.fits = peak <= capacity;
  memory.ranks.push_back({.peak_device = peak, .fits = memory.fits});
  return memory;
}
bool has(const std::string& text, std::string_view word) {
  return text.find(word) != std::string::npos;
}

TEST(FitText, says_how_near_the_capacity_a_peak_is) {
  EXPECT_EQ(fit_words(report(50, 100)), "fits");
  EXPECT_TRUE(has(fit_words(report(97, 100)), "fits, at 97.0 %"));
  EXPECT_TRUE(has(fit_words(report(103, 100)), "DOES NOT FIT, at 103.0 %"));
  EXPECT_EQ(fit_words(report(200, 100)), "DOES NOT FIT");
}

TEST(FitText, names_what_is_too_small) {
  Prediction p;
  p.memory = report(90, 100);
  EXPECT_EQ(misfit_text(p), "");
  p.memory = report(200'000'000'000, 100'000'000'000);
  EXPECT_TRUE(has(misfit_text(p), "position 0 needs 200.00 GB of a device that has 100.00 GB"));
  p.memory = report(90, 100);
  p.memory.fits = false;
  p.memory.host = 3'000'000'000;
  p.memory.host_capacity = 2'000'000'000;
  EXPECT_TRUE(has(misfit_text(p), "a rank needs 3.00 GB of host memory and has 2.00 GB"));
}

TEST(FitText, prints_the_nearest_plan_as_flags_and_as_json) {
  Prediction p;
  p.memory = report(200, 100);
  EXPECT_EQ(instead_json(p.memory), "null");
  p.memory.instead =
      NearestPlan{.changes = {{"recompute", R"("none")", R"("full")"}, {"micro_batch", "4", "1"}},
                  .fits = true,
                  .peak_device = 60,
                  .step_s = 1.5,
                  .tried = 2};
  EXPECT_TRUE(has(misfit_text(p), "takes 1.500 s a step"));
  EXPECT_TRUE(has(misfit_text(p), "--set plan.recompute=full --set plan.micro_batch=1\n"));
  const JsonValue json = parse_json(instead_json(p.memory), "").value();
  EXPECT_TRUE(json.given("fits")->boolean);
  EXPECT_EQ(json.given("peak_device_bytes")->integer, 60);
  EXPECT_EQ(json.given("step_time_s")->number, 1.5);
  ASSERT_EQ(json.given("changes")->items.size(), 2u);
  EXPECT_EQ(json.given("changes")->items[0].given("key")->text, "plan.recompute");
  EXPECT_EQ(json.given("changes")->items[1].given("to")->integer, 1);
  p.memory.instead->fits = false;
  EXPECT_TRUE(has(misfit_text(p), "No plan that was tried fits"));
  EXPECT_EQ(parse_json(instead_json(p.memory), "").value().given("step_time_s"), nullptr);
}

TEST(FitText, says_what_emptying_the_cache_costs) {
  Prediction p;
  p.memory = report(99, 100);
  EXPECT_EQ(retries_note(p), "");
  p.memory.ranks[0].retries = 3;
  EXPECT_TRUE(has(retries_note(p), "back 3 times, later ones need it no more"));
  p.memory.ranks[0].remapped = {{.bytes = 2'000'000'000}, {.bytes = 1'000'000'000}};
  p.remap_s = 0.0032;
  EXPECT_TRUE(has(retries_note(p), "gives 3.00 GB back"));
  EXPECT_TRUE(has(retries_note(p), "3.20 ms of the step"));
}

}  // namespace
}  // namespace rehearse::sim
