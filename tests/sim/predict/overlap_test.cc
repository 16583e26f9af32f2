// SPDX-License-Identifier: Apache-2.0
// overlap.gradient_reduce and .parameter_gather: what may run beside data-parallel collectives.
#include <gtest/gtest.h>

#include <algorithm>

#include "schedules/proof/validate.h"
#include "schedules/scenario/scenario.h"
#include "sim/predict/predict.h"

namespace rehearse::sim {
namespace {

Prediction predicted(int zero, bool overlap, const std::string& more = {}) {
  const std::string flag = overlap ? "true" : "false";
  const Result<Scenario> scenario = parse_scenario(
      R"({"model": "models/gpt2-124m.json", "cluster": "clusters/dgx-a100-80gb.json", "plan":
{"data_parallel": 16, "global_batch": 64, "micro_batch": 2, "bucket_bytes": 30000000,
"zero_stage": )" +
          std::to_string(zero) + R"(, "overlap": {"gradient_reduce": )" + flag +
          R"(, "parameter_gather": )" + flag + "}" + more + "}}",
      "test.json", 1, {});
  EXPECT_TRUE(scenario) << scenario.error().message;
  const Result<Cluster> cluster = read_cluster(scenario.value().cluster);
  Result<Prediction> made = predict(scenario.value(), cluster.value());
  EXPECT_TRUE(made) << made.error().message;
  return std::move(made).value();
}

// Nanoseconds of row 0 in which forwards or backwards run while a collective of dp does.
std::int64_t beside(const Prediction& p) {
  const Schedule& s = p.schedule;
  std::int64_t sum = 0;
  for (std::size_t c = s.first_op(RankClass{0}); c < s.first_op(RankClass{1}); ++c) {
    if (traits(s.ops[c].kind).op_class != OpClass::Collective || s.ops[c].stream != Stream::Dp) {
      continue;
    }
    for (std::size_t k = s.first_op(RankClass{0}); k < s.first_op(RankClass{1}); ++k) {
      if (!is_compute(s.ops[k].kind)) continue;
      const std::int64_t begin = std::max(p.timeline.start[c], p.timeline.start[k]).value;
      const std::int64_t end = std::min(p.timeline.end[c], p.timeline.end[k]).value;
      sum += std::max<std::int64_t>(0, end - begin);
    }
  }
  return sum;
}

class DataParallel : public testing::TestWithParam<int> {};

TEST_P(DataParallel, IsThereWhereThePlanAsksForItAndNowhereElse) {
  for (const char* runtime : {R"(, "runtime": "rehearse")", ""}) {
    const Prediction hidden = predicted(GetParam(), true, runtime);
    const Prediction plain = predicted(GetParam(), false, runtime);
    EXPECT_GT(beside(hidden), 0) << runtime;
    EXPECT_EQ(beside(plain), 0) << runtime;
    EXPECT_GT(plain.step_s, hidden.step_s) << runtime;
  }
}
INSTANTIATE_TEST_SUITE_P(Zero, DataParallel, testing::Values(0, 1, 2, 3));

// FSDP gathers `prefetch` units ahead of the one that computes, not all that the link has time for.
TEST(Overlap, OfGathersEndsWithThePrefetch) {
  for (const int prefetch : {0, 1, 2}) {
    const Prediction p = predicted(3, true, R"(, "prefetch": )" + std::to_string(prefetch));
    const Schedule& s = p.schedule;
    // A part may read two buckets (the tied table is one of its own): layers alone are counted.
    const auto gathers_layer = [&](std::size_t op) {
      return s.ops[op].kind == OpKind::Unshard &&
             s.buckets[s.ops[op].bucket.index()].name[0] == 'L';
    };
    std::size_t most = 0;
    for (std::size_t g = s.first_op(RankClass{0}); g < s.first_op(RankClass{1}); ++g) {
      if (!gathers_layer(g)) continue;
      // Gathers that have begun by then for compute that has not.
      std::size_t ahead = 0;
      for (std::size_t other = s.first_op(RankClass{0}); other <= g; ++other) {
        if (!gathers_layer(other)) continue;
        const auto made = s.operands_of({static_cast<std::int32_t>(other)})[1].value;
        const OpId use = s.values[made.index()].last_use;
        ahead += p.timeline.start[use.index()] > p.timeline.start[g];
      }
      most = std::max(most, ahead);
    }
    // A gather begins as the unit `prefetch` before its own begins to compute.
    EXPECT_EQ(most, static_cast<std::size_t>(std::max(1, prefetch)));
  }
}

// A stage's round is F, what it sends, B, what it sends: where sends keep the compute stream, at
// least one of them takes e = 720 us of every round beyond the first and last p.
TEST(PipelineTransfers, KeepTheComputeStreamWhereTheyDoNotOverlap) {
  const std::int64_t p = 4, m = 16, e = 720'000;
  const auto made = [&](const char* overlap, const char* runtime) {
    const Result<Scenario> scenario = parse_scenario(
        std::string(R"({"model": "models/gpt2-124m.json", "cluster": "clusters/dgx-a100-80gb.json",
"gpus": 4, "plan": {"pipeline_parallel": 4, "micro_batch": 2, "global_batch": 32,
"runtime": ")") +
            runtime + R"(", "overlap": {"pipeline": )" + overlap + "}}}",
        "test.json", 1, {});
    EXPECT_TRUE(scenario) << scenario.error().message;
    const Result<Cluster> cluster = read_cluster(scenario.value().cluster);
    return predict(scenario.value(), cluster.value()).value();
  };
  const Prediction beside = made("true", "megatron"), blocking = made("false", "megatron");
  EXPECT_GE(blocking.timeline.finish.value, beside.timeline.finish.value + (m - p) * e);
  for (const Prediction* plan : {&beside, &blocking}) {
    const Schedule& s = plan->schedule;
    EXPECT_TRUE(validate(s).violations.empty());
    for (const Op& op : s.ops) {
      if (op.kind != OpKind::Send && op.kind != OpKind::Recv) continue;
      const bool keeps = plan == &blocking && op.kind == OpKind::Send;
      EXPECT_EQ(op.stream, keeps ? Stream::Compute : Stream::P2p);
    }
  }
}

}  // namespace
}  // namespace rehearse::sim
