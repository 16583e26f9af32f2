// SPDX-License-Identifier: Apache-2.0
// Our orders against those that other projects' own code made (tests/data/schedules; which file
// belongs to which name, and how equal: its NAMES.md).
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "schedules/ir/text.h"
#include "schedules/order/registry.h"
#include "schedules/scenario/plan_shape.h"
#include "schedules/timing/durations.h"
#include "schedules/timing/metrics.h"

namespace rehearse {
namespace {

using nlohmann::json;

constexpr const char* kDirectory = "tests/data/schedules";

enum class Compare { Equal, EqualOrders, AtLeastAsGood };
// Which peak a search had to stay within.
enum class Limit { Peak, Weighted };

struct Family {
  std::string prefix;  // of the file name, up to ".p"
  std::string name;
  bool per_chunk;  // fixture times are per stage-chunk: the position's are v (V shapes: 2) times
                   // them
  Compare compare;
  Limit limit = Limit::Peak;
  std::int32_t extra_warmup = 0;
};

const std::vector<Family>& families() {
  using enum Compare;
  static const std::vector<Family> all{
      {"alpa-1f1b", "1f1b", false, Equal},
      {"deepspeed-1f1b", "1f1b", false, Equal},
      {"sail-1f1b", "1f1b", false, Equal},
      {"alpa-gpipe", "gpipe", false, Equal},
      {"torch-gpipe", "gpipe", false, Equal},
      {"alpa-eager-1f1b-overlap-friendly", "eager_1f1b", false, Equal},
      {"megatron-interleaved", "interleaved_1f1b", true, Equal},
      {"megatron-interleaved-N3", "interleaved_1f1b", true, Equal},
      {"megatron-interleaved-N5", "interleaved_1f1b", true, Equal},
      {"megatron-interleaved-N8", "interleaved_1f1b", true, Equal},
      {"megatron-interleaved-moe-overlap-warmup+1", "interleaved_1f1b", true, Equal, Limit::Peak,
       1},
      {"sail-vpp-interleaved", "interleaved_1f1b", true, Equal},
      {"torch-interleaved-1f1b", "interleaved_1f1b", true, Equal},
      {"torch-looped-bfs", "looped_bfs", true, Equal},
      {"torch-interleaved-zb1p", "interleaved_zb1p", true, Equal},
      {"deepseek-dualpipe", "dualpipe", false, Equal},
      {"deepseek-dualpipev", "dualpipev", true, Equal},
      {"sail-seq1f1b", "seq_1f1b", false, EqualOrders},
      {"sail-zb-h1", "zb_h1", false, AtLeastAsGood},
      {"sail-zb-h2", "zb_h2", false, AtLeastAsGood, Limit::Weighted},
      {"sail-zb-h2-2p", "zb_2p", false, AtLeastAsGood, Limit::Weighted},
      {"sail-zbv", "zb_v", true, AtLeastAsGood},
      {"colossalai-zbv", "zb_v", true, AtLeastAsGood},
      {"torch-zbv", "zb_v", true, AtLeastAsGood},
      {"sail-v-half", "v_half", true, AtLeastAsGood},
      {"sail-v-min", "v_min", true, AtLeastAsGood},
      {"sail-1f1b-v", "1f1b_v", true, AtLeastAsGood},
      {"chimera", "chimera", false, AtLeastAsGood},
  };
  return all;
}

struct Fixture {
  std::string file;
  Family family;
};

void PrintTo(const Fixture& fixture, std::ostream* out) {
  *out << fixture.file;
}

std::vector<Fixture> fixtures() {
  std::vector<Fixture> all;
  for (const auto& entry : std::filesystem::directory_iterator(kDirectory)) {
    const std::string file = entry.path().filename().string();
    if (entry.path().extension() != ".json") continue;
    const std::string prefix = file.substr(0, file.find(".p"));
    const auto family = std::ranges::find(families(), prefix, &Family::prefix);
    all.push_back(
        {file, family == families().end() ? Family{prefix, "", false, Compare::Equal} : *family});
  }
  std::ranges::sort(all, {}, &Fixture::file);
  return all;
}

json read(const Fixture& fixture) {
  std::ifstream in(std::string(kDirectory) + "/" + fixture.file);
  return json::parse(in);
}

ScheduleShape shape_of(const json& file, const Family& family) {
  ScheduleShape shape{.positions = file.at("p"), .microbatches = file.at("m")};
  if (family.per_chunk) shape.chunks = file.at("v");
  shape.group_size = file.value("microbatch_group_size_per_vp_stage", 0);
  shape.extra_warmup = family.extra_warmup;
  shape.slices = file.value("seq_splits", 0);
  return shape;
}

class ProjectOrder : public testing::TestWithParam<Fixture> {
 protected:
  void SetUp() override {
    ASSERT_FALSE(family().name.empty()) << "NAMES.md has no name for this family";
    file_ = read(GetParam());
    Result<Schedule> made = generate(family().name, shape_of(file_, family()));
    ASSERT_TRUE(made) << made.error().message;
    schedule_ = std::move(made).value();
  }
  const Family& family() const { return GetParam().family; }
  bool at_least_as_good() const { return family().compare == Compare::AtLeastAsGood; }

  ScheduleMetrics measured(double f, double i, double w) const {
    const int k = family().per_chunk ? file_.at("v").get<int>() : 1;
    const std::int32_t visited = visited_chunks(schedule_);
    const Result<Ticks> ticks =
        to_ticks({.forward = f * k, .input_gradient = i * k, .weight_gradient = w * k}, visited,
                 schedule_.placement.positions, schedule_.microbatches);
    EXPECT_EQ(ticks.value().per_unit, visited);  // whole numbers: one tick is 1/v
    const Result<ComputeTiming> timing =
        time_compute(schedule_, divide(ticks.value().times, visited));
    EXPECT_TRUE(timing) << timing.error().message;
    ScheduleMetrics metrics = measure(schedule_, timing.value());
    EXPECT_EQ(metrics.makespan.value % visited, 0);
    metrics.makespan.value /= visited;
    return metrics;
  }

  json file_;
  Schedule schedule_;
};

TEST_P(ProjectOrder, IsTheirsOpByOp) {
  if (at_least_as_good()) GTEST_SKIP() << "a search: compared by its figures";
  const json& orders = file_.at("orders");
  ASSERT_EQ(orders.size(), static_cast<std::size_t>(schedule_.num_rows()));
  for (RankClass row{0}; row.value < schedule_.num_rows(); ++row.value) {
    std::string expected;
    for (const json& op : orders[row.index()]) {
      expected += (expected.empty() ? "" : " ") + op.get<std::string>();
    }
    EXPECT_EQ(row_to_text(schedule_, row), expected) << "rank " << row.value;
  }
}

TEST_P(ProjectOrder, HasTheirFigures) {
  if (family().compare == Compare::EqualOrders) GTEST_SKIP() << "no figures in the file";
  const json& all = file_.at("metrics");
  struct Times {
    const char* key;
    double f, i, w;
  };
  for (const Times& times : {Times{"F1_I1_W1_B2", 1, 1, 1}, Times{"F2_I3_W1_B4", 2, 3, 1}}) {
    // Searched for equal times only.
    if (at_least_as_good() && times.f != times.w) continue;
    SCOPED_TRACE(times.key);
    const json& theirs = all.at(times.key);
    const ScheduleMetrics ours = measured(times.f, times.i, times.w);
    const auto makespan = static_cast<double>(ours.makespan.value);
    const double x = theirs.at("span_bubble_over_ideal");
    const double fraction = theirs.at("bubble_fraction");
    if (at_least_as_good()) {
      EXPECT_LE(makespan, theirs.at("makespan").get<double>());
      EXPECT_LE(ours.span_bubble_ratio, x / (1 + x) + 1e-6);  // files round ratios to 6 digits
      continue;
    }
    EXPECT_EQ(makespan, theirs.at("makespan").get<double>());
    EXPECT_NEAR(ours.bubble_ratio, fraction, 1e-6);
    EXPECT_NEAR(ours.span_bubble_ratio, x / (1 + x), 1e-6);
    EXPECT_NEAR(ours.bubble_overhead, theirs.at("bubble_over_ideal"), 1e-6);
  }
  const ScheduleMetrics ours = measured(1, 1, 1);
  const auto peak = all.at("peak_inflight_stage_activations_per_rank").get<std::vector<double>>();
  const auto weighted = all.at("peak_weighted_I_frees_half_per_rank").get<std::vector<double>>();
  if (!at_least_as_good()) {
    EXPECT_EQ(ours.peak_activations, peak);
    EXPECT_EQ(ours.peak_activations_weighted, weighted);
  } else if (family().limit == Limit::Weighted) {
    EXPECT_LE(ours.largest_weighted_peak(), file_.at("mem_limit_activations").get<double>());
  } else {
    EXPECT_LE(ours.largest_peak(), *std::ranges::max_element(peak));
  }
}

std::string test_name(const testing::TestParamInfo<Fixture>& info) {
  std::string name = info.param.file.substr(0, info.param.file.size() - 5);
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Fixtures, ProjectOrder, testing::ValuesIn(fixtures()), test_name);

TEST(ProjectOrders, AreAllThere) {
  EXPECT_EQ(fixtures().size(), 81U);
}

}  // namespace
}  // namespace rehearse
