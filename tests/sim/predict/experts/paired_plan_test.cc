// SPDX-License-Identifier: Apache-2.0
// A plan whose forwards run beside backwards while tokens travel (overlap.expert_parallel "pair").
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "schedules/proof/validate.h"
#include "schedules/scenario/scenario.h"
#include "sim/predict/predict.h"

namespace rehearse::sim {
namespace {

bool says(const std::string& message, const std::string& words) {
  return message.find(words) != std::string::npos;
}
Result<Scenario> read(const std::string& plan) {
  const std::string text =
      R"({"model": {"model_type": "mixtral", "hidden_size": 2048, "intermediate_size": 2048,
          "num_hidden_layers": 8, "num_attention_heads": 16, "num_key_value_heads": 4,
          "num_local_experts": 16, "num_experts_per_tok": 4, "vocab_size": 32000},
          "cluster": "dgx-h100", "gpus": 32, "plan": {"micro_batch": 1, "sequence_length": 4096,
          "pipeline_parallel": 2, "global_batch": 256, )" +
      std::string(says(plan, "\"expert_parallel\": 1,") ? "" : R"("expert_parallel": 16, )") +
      plan + "}}";
  return parse_scenario(text, "x.json", 1, {});
}
std::string error(const std::string& plan) {
  const Result<Scenario> made = read(plan);
  return made ? "" : made.error().message;
}
Prediction predicted(const std::string& plan) {
  const Result<Scenario> scenario = read(plan);
  EXPECT_TRUE(scenario) << (scenario ? "" : scenario.error().message);
  const Result<Cluster> cluster = read_cluster(scenario.value().cluster);
  Result<Prediction> made = predict(scenario.value(), cluster.value());
  EXPECT_TRUE(made) << (made ? "" : made.error().message);
  return made ? std::move(made).value() : Prediction{};
}

const char* const kInterleaved = R"("schedule": "interleaved_1f1b", "virtual_stages": 2)";
const char* const kPair = R"(, "overlap": {"expert_parallel": "pair"})";

TEST(PairedPlan, IsLegalWhereMegatronRunsIt) {
  const std::string interleaved = kInterleaved, pair = kPair;
  const Result<Scenario> made = read(interleaved + pair);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made.value().plan.overlap_expert_parallel, ExpertOverlap::Pair);
  EXPECT_EQ(made.value().plan.extra_warmup, 1);  // its default with pairs
  EXPECT_TRUE(says(error(R"("schedule": "1f1b")" + pair), "1f1b has no steady pairs"));
  EXPECT_TRUE(says(error(R"("schedule": "interleaved_1f1b", "virtual_stages": 1)" + pair),
                   "needs virtual_stages > 1"));
  EXPECT_TRUE(says(error(interleaved + R"(, "extra_warmup": 0)" + pair), "at least 1"));
  EXPECT_TRUE(says(error(interleaved + R"(, "recompute": "full")" + pair),
                   "dispatch cannot be computed again"));
  EXPECT_TRUE(says(error(interleaved + R"(, "recompute": ["experts"])" + pair),
                   "dispatch cannot be computed again"));
  EXPECT_TRUE(says(error(interleaved + R"(, "expert_dispatch": "all_gather")" + pair),
                   "must be all_to_all or deduplicated"));
  EXPECT_EQ(error(R"("schedule": "dualpipe")" + pair), "");
}

// Costs of plain forwards and backwards by stage, of the same bodies.
std::map<std::pair<OpKind, std::int32_t>, Cost> plain_costs(const Prediction& p) {
  std::map<std::pair<OpKind, std::int32_t>, Cost> costs;
  for (std::size_t i = 0; i < p.schedule.ops.size(); ++i) {
    const Op& op = p.schedule.ops[i];
    if (op.kind != OpKind::Forward && op.kind != OpKind::Backward) continue;
    costs[{op.kind, op.stage.value}] = p.pricing.table.cost(OpId{static_cast<std::int32_t>(i)});
  }
  return costs;
}

// Of every pair: what computes in both, or what travels in both, whichever is longer, is its least
// time; one after the other, with what the compute that hides loses (the share that two streams
// take from each other), its most.
TEST(PairedPlan, NoPairBeatsItsStreamsAndNoneIsSlowerThanItsHalves) {
  const std::string interleaved = kInterleaved;
  const Prediction plain = predicted(interleaved + R"(, "extra_warmup": 1)");
  const Prediction paired = predicted(interleaved + kPair);
  EXPECT_TRUE(validate(paired.schedule, {.compute_order = &paired.order}).violations.empty());
  const auto costs = plain_costs(plain);
  int pairs = 0;
  for (std::size_t i = 0; i < paired.schedule.ops.size(); ++i) {
    const Op& op = paired.schedule.ops[i];
    if (op.kind != OpKind::Overlap) continue;
    ++pairs;
    const Op& f = paired.schedule.children[static_cast<std::size_t>(op.child)];
    const Op& b = paired.schedule.children[static_cast<std::size_t>(op.child) + 1];
    EXPECT_NE(std::pair(f.stage, f.microbatch), std::pair(b.stage, b.microbatch));
    const Cost& forward = costs.at({OpKind::Forward, f.stage.value});
    const Cost& backward = costs.at({OpKind::Backward, b.stage.value});
    const Cost& pair = paired.pricing.table.cost(OpId{static_cast<std::int32_t>(i)});
    const double travels =
        static_cast<double>((forward.communicating + backward.communicating).value);
    const double whole = static_cast<double>((forward.time + backward.time).value);
    const auto time = static_cast<double>(pair.time.value);
    EXPECT_GE(time, std::max(whole - travels, travels) - 2);
    EXPECT_LE(time, whole + 0.2 * (whole - travels) + 2);
    EXPECT_LT(time, whole);  // here tokens travel over NICs, and there is compute to hide them
    EXPECT_LT(pair.communicating, forward.communicating + backward.communicating);
  }
  // 16 micro-batches in 2 chunks; position r forwards 2 (1 - r) + 2 + 1 of the 32 alone.
  EXPECT_EQ(pairs, (32 - 5) + (32 - 3));
  EXPECT_LT(paired.timeline.step(), plain.timeline.step());
  const auto communication = static_cast<std::size_t>(IdleCause::Communication);
  EXPECT_LT(paired.bubbles.causes[communication], plain.bubbles.causes[communication]);
}

// What the halves of DualPipeV's pairs hide is the plan's to say: with experts whole pairs and
// those of experts alone are the same streams; without, nothing travels, and a pair that hides
// experts alone takes both its halves.
TEST(PairedPlan, HidesWhatItsPairsAreSaidTo) {
  const auto step = [](const std::string& keys, const char* pair) {
    const Prediction made = predicted(R"("schedule": "dualpipev", )" + keys +
                                      R"("overlap": {"pair": ")" + pair + "\"}");
    EXPECT_TRUE(validate(made.schedule, {.compute_order = &made.order}).violations.empty());
    return made.timeline.step();
  };
  EXPECT_EQ(step("", "full"), step("", "experts"));
  EXPECT_LT(step("", "experts"), step("", "none"));
  const std::string whole = R"("expert_parallel": 1, "tensor_parallel": 2,
                               "sequence_parallel": true, )";
  EXPECT_LT(step(whole, "full"), step(whole, "experts"));
  EXPECT_EQ(step(whole, "experts"), step(whole, "none"));
}

TEST(PairedPlan, SaysWhatHidesNothing) {
  const std::string order = R"("schedule": "dualpipev", )";
  EXPECT_TRUE(says(error(order + R"("overlap": {"pair": "none", "expert_parallel": "pair"})"),
                   "overlap.pair: none: overlap.expert_parallel asks for pairs that overlap"));
  EXPECT_TRUE(says(error(order + R"("synchronous_launch": true, "overlap": {"pair": "full"})"),
                   "full: nothing overlaps under synchronous_launch"));
}

// DualPipe's pairs are pairs whether the plan says so or not.
TEST(PairedPlan, DualPipeHasThemAnyway) {
  const Prediction said = predicted(R"("schedule": "dualpipe")" + std::string(kPair));
  const Prediction unsaid = predicted(R"("schedule": "dualpipe")");
  EXPECT_EQ(said.timeline.step(), unsaid.timeline.step());
}

}  // namespace
}  // namespace rehearse::sim
