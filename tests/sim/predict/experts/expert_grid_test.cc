// SPDX-License-Identifier: Apache-2.0
// What must hold of every prediction with experts, over random plans: the validator finds nothing,
// every expert's gradients and states lie with its own replicas, memory adds up, idle time too.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>

#include "schedules/proof/validate.h"
#include "schedules/scenario/scenario.h"
#include "sim/formulas/expert_load.h"
#include "sim/memory/peak_lower_bound.h"
#include "sim/predict/predict.h"
#include "sim/predict/pricing/body_collectives.h"

namespace rehearse::sim {
namespace {

int pick(std::mt19937& random, std::initializer_list<int> choices) {
  return *(choices.begin() + std::uniform_int_distribution<std::ptrdiff_t>(
                                 0, static_cast<std::ptrdiff_t>(choices.size()) - 1)(random));
}
const char* pick(std::mt19937& random, std::initializer_list<const char*> choices) {
  return *(choices.begin() + std::uniform_int_distribution<std::ptrdiff_t>(
                                 0, static_cast<std::ptrdiff_t>(choices.size()) - 1)(random));
}

const char* const kMixtral =
    R"({"model_type": "mixtral", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 8,
        "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 1024})";
const char* const kDeepseek =
    R"({"model_type": "deepseek_v3", "hidden_size": 256, "intermediate_size": 512,
        "moe_intermediate_size": 64, "num_hidden_layers": 8, "num_attention_heads": 8,
        "n_routed_experts": 32, "num_experts_per_tok": 4, "n_group": 4, "topk_group": 2,
        "first_k_dense_replace": 2, "num_nextn_predict_layers": 1, "vocab_size": 1024})";

// A scenario that the plan table allows, most of the time.
std::string random_scenario(std::mt19937& random) {
  const int t = pick(random, {1, 2, 4}), p = pick(random, {1, 2, 4}), c = pick(random, {1, 1, 2});
  const int d = pick(random, {1, 2, 4, 8}), e = pick(random, {1, 2, 4, 8}),
            m = pick(random, {1, 2, 8});
  const int zero = pick(random, {0, 1, 2, 3});
  const bool deepseek = pick(random, {0, 1}) == 1;
  const std::string schedule =
      p == 1 ? "none" : pick(random, {"gpipe", "1f1b", "interleaved_1f1b", "zb_h1", "dualpipev"});
  std::string text = std::string("{\"model\": ") + (deepseek ? kDeepseek : kMixtral);
  text += R"(, "cluster": "dgx-h100", "plan": {"sequence_length": 128, "micro_batch": 1)";
  text += ", \"tensor_parallel\": " + std::to_string(t);
  text += ", \"pipeline_parallel\": " + std::to_string(p);
  text += ", \"context_parallel\": " + std::to_string(c);
  text += ", \"data_parallel\": " + std::to_string(d);
  text += ", \"expert_parallel\": " + std::to_string(e);
  if (const int q = pick(random, {0, 0, 1, 2}); q > 0) {
    text += ", \"expert_tensor_parallel\": " + std::to_string(q);
  }
  text += ", \"schedule\": \"" + schedule + "\"";
  text += ", \"global_batch\": " + std::to_string(d * m);
  text += ", \"sequence_parallel\": " + std::string(t > 1 ? "true" : "false");
  text += ", \"zero_stage\": " + std::to_string(zero);
  text += ", \"recompute\": " +
          std::string(pick(random, {"\"none\"", "\"selective\"", "\"full\"", "[\"experts\"]",
                                    "[\"norm\", \"latent_up\", \"expert_activation\"]"}));
  // The prediction layer before the last of four chunks.
  const bool looped = schedule == "interleaved_1f1b";
  if (deepseek && (looped ? p == 2 : p == 4 && schedule != "dualpipev")) {
    text += R"(, "stage_layers": "Ett|ttt|tttm|L")";
  }
  text += ", \"expert_dispatch\": \"" +
          std::string(pick(random, {"all_to_all", "all_gather", "deduplicated"})) + "\"";
  text +=
      ", \"expert_routing\": " + std::string(pick(random, {"\"balanced\"", "\"uniform\"", "1.3"}));
  const std::string capacity = pick(random, {"null", "null", "1.25", "{\"drop\": 1.1}"});
  text += ", \"expert_capacity\": " + capacity;
  text += ", \"overlap\": {\"gradient_reduce\": " + std::string(pick(random, {"true", "false"}));
  text += ", \"parameter_gather\": " + std::string(pick(random, {"true", "false"}));
  if (deepseek && e > 1 && pick(random, {0, 1}) == 1) text += ", \"expert_parallel\": \"shared\"";
  if (!deepseek && e > 1 && looped) text += ", \"expert_parallel\": \"pair\"";
  text += "}, \"runtime\": \"" + std::string(zero == 3 ? "fsdp" : "megatron") + "\"}}";
  return text;
}

// A bucket of experts has r replicas; ZeRO shards over them.
void check_buckets(const Prediction& p, const Transformer& model, const std::string& text) {
  const Plan& plan = p.plan;
  std::int64_t experts = 0, of_model = 0;
  for (const Bucket& bucket : p.schedule.buckets) {
    if (bucket.replicas != GroupKind::ExpertData) continue;
    experts += bucket.elements;
    EXPECT_EQ(p.schedule.replicas(bucket), plan.expert_replicas()) << text;
    EXPECT_EQ(bucket.partial, 0) << text;
    EXPECT_EQ(bucket.padded % (64 * plan.expert_replicas()), 0) << text;
  }
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    if (model.has_experts(layer)) {
      of_model += model.experts.count * expert_parameters(model);
    }
  }
  of_model += model.prediction_layers * model.experts.count * expert_parameters(model);
  // All ranks of one set of experts hold the model's, once (a bidirectional order none here).
  if (!plan.folds_experts()) return;
  EXPECT_EQ(experts * plan.expert_parallel * plan.expert_tensor_parallel, of_model) << text;
}

TEST(ExpertGrid, EveryPlanIsSoundAndItsMemoryAddsUp) {
  std::mt19937 random(20250917);
  int predicted = 0, folded = 0, paired = 0, placed = 0, parts = 0;
  for (int trial = 0; predicted < 500; ++trial) {
    ASSERT_LT(trial, 12000) << "too few of the random scenarios are legal";
    const std::string text = random_scenario(random);
    const Result<Scenario> scenario = parse_scenario(text, "random.json", 1, {});
    if (!scenario) continue;
    const Result<Cluster> cluster = read_cluster(scenario.value().cluster);
    ASSERT_TRUE(cluster) << cluster.error().message;
    const Result<Prediction> made = predict(scenario.value(), cluster.value());
    ASSERT_TRUE(made) << made.error().message << '\n' << text;
    const Prediction& p = made.value();
    const Validation proof = validate(p.schedule, {.compute_order = &p.order});
    for (const Violation& v : proof.violations) {
      ADD_FAILURE() << v.rule << ": " << v.message << '\n' << text;
    }
    check_buckets(p, scenario.value().model, text);
    for (const RowBubbles& row : p.bubbles.rows) {
      EXPECT_EQ(std::accumulate(row.causes.begin(), row.causes.end(), std::int64_t{0}), row.idle);
      EXPECT_EQ(row.busy + row.idle, p.timeline.step().value);
    }
    const bool uneven = p.bubbles.causes[static_cast<std::size_t>(IdleCause::Imbalance)] > 0;
    EXPECT_EQ(uneven,
              p.plan.expert_parallel > 1 && p.plan.expert_routing != ExpertRouting::Balanced)
        << text;
    for (const RankMemory& rank : p.memory.ranks) {
      EXPECT_EQ(rank.parts.allocated(), rank.peak_allocated) << text;
      EXPECT_LE(rank.parts.experts,
                rank.parts.parameters + rank.parts.gradients + rank.parts.optimizer)
          << text;
    }
    // A search leaves out by this bound what the replay would refuse.
    const MemoryProfile profile = read_memory_profile(p.plan.runtime.name).value();
    EXPECT_LE(
        memory_lower_bound(profile, {scenario.value().model, p.plan}),
        std::ranges::max_element(p.memory.ranks, {}, &RankMemory::peak_allocated)->peak_allocated)
        << text;
    folded += p.plan.folds_experts() ? 1 : 0;
    paired += p.plan.overlap_expert_parallel == ExpertOverlap::Pair ? 1 : 0;
    placed += p.plan.prediction_stage >= 0 ? 1 : 0;
    parts += p.plan.recompute.any() && !p.plan.recompute.is_full() &&
                     !p.plan.recompute.is_word_selective()
                 ? 1
                 : 0;
    ++predicted;
    if (testing::Test::HasFailure()) break;
  }
  EXPECT_GE(folded, 250);
  EXPECT_GE(paired, 5);
  EXPECT_GE(placed, 20);
  EXPECT_GE(parts, 20);
}

// The same plans as our executor performs them, with its arena.
TEST(ExpertGrid, PlansOfOurExecutorAreSound) {
  std::mt19937 random(20251123);
  int predicted = 0, folded = 0;
  for (int trial = 0; predicted < 200; ++trial) {
    ASSERT_LT(trial, 6000) << "too few of the random scenarios are legal";
    std::string text = random_scenario(random);
    const std::size_t at = text.rfind("\"runtime\"");
    text = text.substr(0, at) + R"("runtime": "rehearse"}})";
    const std::string predicts = R"("num_nextn_predict_layers": 1)";  // frameworks alone have them
    if (const std::size_t key = text.find(predicts); key != std::string::npos) {
      text.replace(key + predicts.size() - 1, 1, "0");
    }
    const Result<Scenario> scenario = parse_scenario(text, "random.json", 1, {});
    if (!scenario) continue;
    const Result<Cluster> cluster = read_cluster(scenario.value().cluster);
    ASSERT_TRUE(cluster) << cluster.error().message;
    const Result<Prediction> made = predict(scenario.value(), cluster.value());
    ASSERT_TRUE(made) << made.error().message << '\n' << text;
    const Prediction& p = made.value();
    const Validation proof = validate(p.schedule, {.compute_order = &p.order});
    for (const Violation& v : proof.violations) {
      ADD_FAILURE() << v.rule << ": " << v.message << '\n' << text;
    }
    check_buckets(p, scenario.value().model, text);
    folded += p.plan.folds_experts() ? 1 : 0;
    ++predicted;
    if (testing::Test::HasFailure()) break;
  }
  EXPECT_GE(folded, 100);
}

// Of 8 ranks the busiest has twice the mean's rows, were it not for the capacity.
TEST(ExpertGrid, ACapacityBoundsTheRowsOfARank) {
  struct Row {
    const char* capacity;
    double busiest, mean;
  };
  for (const Row& row : {Row{"null", 2, 1}, Row{"1.5", 1.5, 1}, Row{"\"drop\"", 1.25, 1},
                         Row{"{\"drop\": 0.5}", 0.5, 0.5}}) {
    const std::string text = R"({"model": "models/mixtral-8x7b.json", "cluster": "dgx-h100",
        "gpus": 8, "plan": {"expert_parallel": 8, "sequence_length": 4096, "micro_batch": 1,
        "expert_routing": 2, "expert_capacity": )" +
                             std::string(row.capacity) + "}}";
    const Result<Scenario> scenario = parse_scenario(text, "x.json", 1, {});
    ASSERT_TRUE(scenario) << scenario.error().message;
    const RowsOfExperts rows =
        balance_of({scenario.value().model, scenario.value().plan}).rows(4096);
    EXPECT_EQ(rows.busiest, row.busiest) << row.capacity;
    EXPECT_EQ(rows.mean, row.mean) << row.capacity;
  }
}

// A slot travels whole, and from the busiest rank no more than from others: inside a node as any
// all-to-all of the payload. By counts the busiest rank's rows are waited for.
TEST(ExpertGrid, SlotsArePricedAsAllThatTheyCarry) {
  for (const char* dispatch : {"all_to_all", "deduplicated"}) {
    for (const bool slots : {false, true}) {
      const std::string text =
          std::string(R"({"model": "models/mixtral-8x7b.json", "cluster": "dgx-h100", "gpus": 8,
        "plan": {"expert_parallel": 8, "sequence_length": 4096, "micro_batch": 1,
        "runtime": "rehearse", "expert_routing": 2, "expert_slots": )") +
          (slots ? "true" : "false") + R"(, "expert_dispatch": ")" + dispatch + "\"}}";
      const Result<Scenario> scenario = parse_scenario(text, "x.json", 1, {});
      ASSERT_TRUE(scenario) << scenario.error().message;
      const Plan& plan = scenario.value().plan;
      const Cluster cluster = read_cluster(scenario.value().cluster).value();
      const CollectiveModel model = make_collective_model(
          read_collective_tables("scenarios/kernels/collectives.json").value(), cluster);
      const Network network(cluster, model, plan, std::span<const RankClassInfo>{});
      const Layout layout(scenario.value().model, plan);
      BodyCollectives of(network, layout);
      const Bytes payload{std::int64_t{64} << 20};
      const Nanoseconds priced = of.cost(NodeKind::Dispatch, Axis::Expert, payload).time;
      const Nanoseconds plain =
          collective_cost(OpKind::AllToAll, payload, of.group(Axis::Expert), network).time;
      EXPECT_EQ(priced == plain, slots) << dispatch;
    }
  }
}

// V10 asks a bucket over whom it is summed: dp does not do for experts, nor edp for the rest.
TEST(ExpertGrid, GradientsReducedOverTheWrongReplicasAreFound) {
  const std::string text = std::string(R"({"model": )") + kMixtral +
                           R"(, "cluster": "dgx-h100", "gpus": 8, "plan": {"micro_batch": 1,
      "sequence_length": 128, "zero_stage": 1, "expert_parallel": 2}})";
  const Result<Scenario> scenario = parse_scenario(text, "x.json", 1, {});
  ASSERT_TRUE(scenario) << scenario.error().message;
  const Result<Cluster> cluster = read_cluster(scenario.value().cluster);
  const Result<Prediction> p = predict(scenario.value(), cluster.value());
  ASSERT_TRUE(p) << p.error().message;
  const Schedule& sound = p.value().schedule;
  EXPECT_TRUE(validate(sound, {.compute_order = &p.value().order}).violations.empty());
  for (const GroupKind right : {GroupKind::ExpertData, GroupKind::Data}) {
    const GroupKind wrong = right == GroupKind::Data ? GroupKind::ExpertData : GroupKind::Data;
    Schedule mutated = sound;
    for (Op& op : mutated.ops) {
      if (op.kind == OpKind::ReduceScatter && sound.is_on(op, right)) op.group = sound.group(wrong);
    }
    const Validation proof = validate(mutated, {.compute_order = &p.value().order});
    const auto named = [&](const Violation& v) {
      return v.rule == "V10" &&
             v.message.find(std::string("reduced over ") + std::string(traits(right).name)) !=
                 std::string::npos;
    };
    EXPECT_TRUE(std::ranges::any_of(proof.violations, named)) << traits(right).name;
  }
}

// The total of parameters does not depend on e and q, and with more of e each rank holds less.
TEST(ExpertGrid, MoreRanksHoldFewerExpertsEach) {
  std::int64_t last = 0, total = 0;
  for (const int e : {1, 2, 4, 8}) {
    const std::string text = std::string(R"({"model": )") + kMixtral +
                             R"(, "cluster": "dgx-h100", "gpus": 8, "plan": {"micro_batch": 1,
        "sequence_length": 128, "expert_parallel": )" +
                             std::to_string(e) + "}}";
    const Result<Scenario> scenario = parse_scenario(text, "x.json", 1, {});
    ASSERT_TRUE(scenario) << scenario.error().message;
    const Result<Cluster> cluster = read_cluster(scenario.value().cluster);
    const Result<Prediction> p = predict(scenario.value(), cluster.value());
    ASSERT_TRUE(p) << p.error().message;
    const std::int64_t held = p.value().memory.ranks[0].parts.experts;
    // 2 + 4 + 12 bytes per parameter, without ZeRO.
    const std::int64_t all = 8 * 8 * expert_parameters(scenario.value().model);
    EXPECT_EQ(held * e, 18 * all);
    if (last > 0) {
      EXPECT_EQ(2 * held, last);
    }
    last = held;
    if (total == 0) total = p.value().parameters;
    EXPECT_EQ(p.value().parameters, total);
  }
}

}  // namespace
}  // namespace rehearse::sim
