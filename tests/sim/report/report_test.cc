// SPDX-License-Identifier: Apache-2.0
// What the report says of numbers that are easily taken for others: a peak that is not the step's,
// times of transfers alone, waits that are no transfer, warnings.
#include "sim/report/report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <algorithm>

#include "sim/predict/predicted_trace.h"

namespace rehearse::sim {
namespace {

using Json = nlohmann::json;

struct Reported {
  Scenario scenario;
  Cluster cluster;
  Prediction prediction;
  Json json;
  std::string text;

  const Json& row(const std::string& group, const std::string& op) const {
    static const Json none;
    for (const Json& one : json["communication"]) {
      if (one["group"] == group && one["op"] == op) return one;
    }
    ADD_FAILURE() << "no " << op << " of " << group;
    return none;
  }
  bool says(std::string_view words) const { return text.find(words) != std::string::npos; }
};

Reported reported(const std::string& path, std::vector<std::string> set = {}) {
  const Result<Scenario> scenario = read_scenario(path, {.overrides = std::move(set)});
  EXPECT_TRUE(scenario) << (scenario ? "" : scenario.error().message);
  if (!scenario) return {};
  const Result<Cluster> cluster = read_cluster(scenario.value().cluster);
  EXPECT_TRUE(cluster) << (cluster ? "" : cluster.error().message);
  if (!cluster) return {};
  Result<Prediction> made = predict(scenario.value(), cluster.value());
  EXPECT_TRUE(made) << (made ? "" : made.error().message);
  if (!made) return {};
  Reported all{scenario.value(), cluster.value(), std::move(made).value(), {}, {}};
  all.json = Json::parse(report_json(all.prediction, all.scenario, all.cluster));
  all.text = report_text(all.prediction, all.scenario, all.cluster);
  return all;
}

// Megatron copies a rank's fp16 parameters into one flat buffer while it builds the model: 2 + 2
// bytes per parameter beside 2 of gradients, before there is any optimizer state.
TEST(Report, APeakBeforeTheFirstStepIsNoPeakOfTheOptimizer) {
  const Reported r = reported("tests/data/findings/zero1_peak_at_construction.json");
  const RankMemory& rank = r.prediction.memory.ranks.front();
  EXPECT_TRUE(rank.at_building);
  EXPECT_EQ(rank.parts.allocated(), rank.peak_allocated);
  EXPECT_EQ(rank.parts.optimizer, 0);
  EXPECT_LT(rank.peak_in_steps, rank.peak_allocated);
  const Json& json = r.json["memory"]["ranks"][0];
  EXPECT_TRUE(json["at_op"].is_null());
  EXPECT_TRUE(json["at_s"].is_null());
  EXPECT_EQ(json["at_building"], true);
  EXPECT_EQ(json["peak_in_steps_bytes"], rank.peak_in_steps);
  EXPECT_TRUE(r.says("before step 0")) << r.text;
  EXPECT_TRUE(r.says("note: the peak of position 0, 40.43 GB, is before step 0")) << r.text;
  EXPECT_FALSE(r.says("OPTIMIZER_STEP")) << r.text;
  // The picture is of a step: its fullest moment is the step's, and its caption says so.
  const Trace trace = predicted_trace(r.prediction, r.scenario, r.cluster);
  std::int64_t most = 0;
  const std::size_t parts = trace.memory_parts.size();
  for (std::size_t i = 0; i < trace.memory_time.size(); ++i) {
    std::int64_t alive = 0;
    for (std::size_t p = 0; p < parts; ++p) alive += trace.memory_bytes[i * parts + p];
    most = std::max(most, alive);
  }
  EXPECT_EQ(most, rank.peak_in_steps);
  EXPECT_NE(trace.caption.find("before this step"), std::string::npos) << trace.caption;
}

// Where activations are more than a second copy of the parameters, nothing is said.
TEST(Report, APeakInAStepIsThatOfAllSteps) {
  const Reported r = reported("scenarios/pipeline-1f1b.json");
  for (const RankMemory& rank : r.prediction.memory.ranks) {
    EXPECT_FALSE(rank.at_building);
    EXPECT_EQ(rank.peak_in_steps, rank.peak_allocated);
  }
  EXPECT_FALSE(r.says("before step 0"));
}

// The same 16.8 MB over the same links: blocking or not, they travel as fast. What a blocking send
// waits, 720 us each, is said apart.
TEST(Report, TheBandwidthOfATransferIsWithoutWhatABlockingSendWaits) {
  const Reported blocking = reported("scenarios/pipeline-1f1b.json"),
                 overlapped = reported("scenarios/pipeline-interleaved.json");
  const Json &waits = blocking.row("pp", "SEND_RECV"), &none = overlapped.row("pp", "SEND_RECV");
  EXPECT_NEAR(waits["waits_s"].get<double>(), 720e-6 * waits["count"].get<double>(), 1e-9);
  EXPECT_GT(waits["time_s"].get<double>(), waits["waits_s"].get<double>());
  EXPECT_EQ(none["waits_s"], 0.0);
  EXPECT_NEAR(waits["bus_bandwidth_gb_per_s"].get<double>(),
              none["bus_bandwidth_gb_per_s"].get<double>(), 0.1);
  EXPECT_TRUE(blocking.says("SEND_RECV: 11.52 ms is waiting in blocking sends")) << blocking.text;
  EXPECT_FALSE(overlapped.says("blocking")) << overlapped.text;
}

// The links between two data centres, made narrower: each group alone is bound by its NICs as
// before, all of them together by what they share.
TEST(Report, TimesAreOfACollectiveAloneAndWhatOthersAddIsBesideThem) {
  double before = -1;
  for (const int factor : {8, 16, 32, 64}) {
    const Reported r =
        reported("scenarios/two-data-centres.json",
                 {"cluster.fabric.oversubscription_aggregation_to_core=" + std::to_string(factor)});
    const Json& row = r.row("dp", "REDUCE_SCATTER");
    EXPECT_NEAR(row["time_s"].get<double>(), 0.5055, 0.0005) << factor;
    EXPECT_EQ(row["link"], "nic") << factor;
    const double lost = row["contended_s"];
    EXPECT_GE(lost, before) << factor;
    before = lost;
    const bool told = r.says("dp REDUCE_SCATTER: ");
    EXPECT_EQ(told, factor >= 32) << r.text;
    if (factor < 32) continue;
    EXPECT_EQ(row["busiest_link"], "pod");
    EXPECT_TRUE(r.says("longer than alone, as others load its links, most of all pod")) << r.text;
  }
  EXPECT_GT(before, 1);
}

// A rank whose own reduction is over waits for that of the other position, in the norm's sum.
TEST(Report, SaysWhyRanksIdleLongerThanACollectiveTakes) {
  const Reported r = reported("scenarios/3d-8-gpus.json");
  const Json& row = r.row("dp", "REDUCE_SCATTER");
  EXPECT_GT(row["exposed_s"].get<double>(), row["time_s"].get<double>());
  EXPECT_TRUE(r.says("exposed beyond time: ")) << r.text;
  EXPECT_FALSE(reported("scenarios/dp-ddp.json").says("exposed beyond time"));
}

// An A100 has no products in 8 bit.
TEST(Report, WarningsAreAmongTheNotesOfTheDocument) {
  const Reported r =
      reported("scenarios/3d-8-gpus.json", {"plan.precision=fp8", "plan.prefetch=2"});
  ASSERT_EQ(r.prediction.warnings.size(), 1u);
  ASSERT_EQ(r.scenario.warnings.size(), 1u);
  std::vector<std::string> said = r.scenario.warnings;
  said.push_back(r.prediction.warnings.front());
  for (const std::string& line : said) {
    EXPECT_EQ(std::ranges::count(r.json["notes"], Json(line)), 1) << r.json["notes"];
    EXPECT_FALSE(r.says(line));  // people have it from stderr
  }
  EXPECT_TRUE(reported("scenarios/3d-8-gpus.json").json["notes"].empty());
}

TEST(Report, RanksThroughOneGpuHaveTheirNamesAndItsNoteWhatIsDone) {
  const Reported r = reported("scenarios/dp-parameter-server.json", {"plan.runtime=rehearse"});
  EXPECT_TRUE(r.says("\n  ranks      ")) << r.text;
  EXPECT_TRUE(r.says("\n  0          ")) << r.text;
  EXPECT_TRUE(r.says("\n  1-7        ")) << r.text;
  EXPECT_TRUE(r.says("while the 7 others wait; nothing overlaps")) << r.text;
  const Reported ddp = reported("scenarios/dp-ddp.json");
  EXPECT_TRUE(ddp.says("\n  position   ")) << ddp.text;
  EXPECT_FALSE(ddp.says("nothing overlaps"));
}

TEST(Report, TheSearchForAPlanThatFitsHasATimeOfItsOwn) {
  Reported r = reported("scenarios/dp-ddp.json");
  EXPECT_TRUE(r.text.ends_with(" simulated in 0.0 us\n")) << r.text;
  r.prediction.wall_s = 0.5;
  r.prediction.instead_wall_s = 8;
  const std::string text = report_text(r.prediction, r.scenario, r.cluster);
  EXPECT_TRUE(text.ends_with(" simulated in 500.00 ms, plans that fit looked for in 8.000 s\n"))
      << text;
  const Json json = Json::parse(report_json(r.prediction, r.scenario, r.cluster));
  EXPECT_EQ(json["simulation"]["wall_s"], 0.5);
  EXPECT_EQ(json["simulation"]["instead_wall_s"], 8.0);
}

}  // namespace
}  // namespace rehearse::sim
