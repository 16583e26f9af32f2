// SPDX-License-Identifier: Apache-2.0
// Parts of a layer that a framework drops and computes again: the key, the kernels, the bytes.
#include "schedules/scenario/memory/recompute_parts.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "schedules/body/body.h"
#include "schedules/scenario/keys/plan_rows.h"
#include "schedules/scenario/scenario.h"
#include "sim/memory/memory_script.h"
#include "sim/predict/predict.h"
#include "sim/search/nearest_fit.h"

namespace rehearse::sim {
namespace {

// DeepSeek's shape, small: n tokens, h wide; queries through 24, keys through 16; 8 heads of 8 + 8
// and 8; f of the dense layers, 16 experts of width i on 2 ranks, 2 for each token, one shared.
constexpr std::int64_t n = 64, h = 128, f = 256, i = 32, a = 8, k = 2;

Result<Scenario> read(const std::string& recompute, const std::string& more = "",
                      const std::string& model = "") {
  const std::string deepseek =
      R"({"model_type": "deepseek_v3", "hidden_size": 128, "intermediate_size": 256,
          "moe_intermediate_size": 32, "num_hidden_layers": 4, "num_attention_heads": 8,
          "q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8,
          "v_head_dim": 8, "n_routed_experts": 16, "num_experts_per_tok": 2, "n_group": 4,
          "topk_group": 2, "n_shared_experts": 1, "first_k_dense_replace": 1, "vocab_size": 256,
          "num_nextn_predict_layers": 0})";
  const std::string text = R"({"model": )" + (model.empty() ? deepseek : model) +
                           R"(, "cluster": "dgx-h100", "gpus": 2, "plan": {"micro_batch": 1,
          "global_batch": 4, "sequence_length": 64, "recompute": )" +
                           recompute + more + "}}";
  return parse_scenario(text, "x.json", 1, {});
}
const char* const kExperts = R"(, "expert_parallel": 2)";
Scenario scenario(const std::string& recompute) {
  const Result<Scenario> made = read(recompute, kExperts);
  EXPECT_TRUE(made) << (made ? "" : made.error().message);
  return made ? made.value() : Scenario{};
}
std::string error(const std::string& recompute, const std::string& more = kExperts,
                  const std::string& model = "") {
  const Result<Scenario> made = read(recompute, more, model);
  return made ? "" : made.error().message;
}
bool says(const std::string& message, const std::string& words) {
  return message.find(words) != std::string::npos;
}

TEST(RecomputeParts, AListIsReadAndPrintedBack) {
  const Scenario s = scenario(R"(["norm", "latent_up"])");
  EXPECT_TRUE(s.plan.recomputes(RecomputePart::Norm));
  EXPECT_TRUE(s.plan.recomputes(RecomputePart::LatentUp));
  EXPECT_FALSE(s.plan.recomputes(RecomputePart::Mlp));
  EXPECT_EQ(recompute_json(s.plan), R"(["norm", "latent_up"])");
  EXPECT_EQ(recompute_text(s.plan), "norm + latent_up");
  EXPECT_EQ(recompute_text(scenario("\"full\"").plan), "full");
  const Result<Scenario> again = read(recompute_json(s.plan), kExperts);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again.value().plan, s.plan);
}

TEST(RecomputeParts, WhatIsNoPartOfTheModelIsRefused) {
  const char* const kGpt = R"({"model_type": "gpt2", "n_layer": 4})";
  EXPECT_TRUE(says(error(R"(["latent_up"])", "", kGpt), "latent_up: the model has no compressed"));
  EXPECT_TRUE(says(error(R"(["experts"])", "", kGpt), "experts: the model has no experts"));
  EXPECT_TRUE(says(error(R"(["norm", "selective"])"), "\"selective\" is not one of the parts"));
  EXPECT_TRUE(says(error(R"(["norm", 3])"), "an item is not one of the parts"));
  EXPECT_TRUE(says(error(R"(["expert"])"), "\"expert\" is not one of the parts"));
  EXPECT_TRUE(says(error(R"(["none", "full"])"), "a list of values is a search space"));
  EXPECT_TRUE(
      says(error(R"(["experts", "shared_experts"])"), "shared_experts lies within experts"));
  EXPECT_TRUE(says(error(R"(["norm"])", R"(, "zero_stage": 3, "runtime": "fsdp")", kGpt),
                   "no list of parts"));
  EXPECT_TRUE(says(error(R"(["norm"])", R"(, "runtime": "rehearse")", kGpt), "no list of parts"));
}

// FLOPs and kernels that a backward runs again.
struct Again {
  double flops = 0;
  int kernels = 0, travels = 0;
};
Again again(const std::string& recompute, bool experts) {
  const Scenario s = scenario(recompute);
  Again sum;
  for (const Node& node : make_body({s.model, s.plan}, {.segment = SegmentKind::Layer,
                                                       .experts = experts,
                                                       .direction = Direction::Backward})
                              .nodes) {
    if (node.phase != NodePhase::Recompute) continue;
    sum.flops += node.flops;
    sum.kernels += node.flops == 0 ? 1 : 0;
    sum.travels += node.kernel == Kernel::Dispatch || node.kernel == Kernel::Combine ? 1 : 0;
  }
  return sum;
}

// Two norms; queries a (8 + 8) from 24 and keys with values a (8 + 8) from 16, and rotary
// positions; products of 2 n h f each, three of a gated MLP; of the experts R = n k rows, router
// and shared expert beside them, tokens travelling out and home.
TEST(RecomputeParts, RunTheKernelsThatMadeThem) {
  EXPECT_EQ(again("\"none\"", true).kernels, 0);
  EXPECT_EQ(again(R"(["norm"])", true).kernels, 2);
  EXPECT_EQ(again(R"(["latent_up"])", true).flops, 2. * n * a * (16 * 24 + 16 * 16));
  EXPECT_EQ(again(R"(["latent_up"])", true).kernels, 1);
  EXPECT_EQ(again(R"(["mlp_activation"])", false).kernels, 1);
  EXPECT_EQ(again(R"(["mlp_activation"])", true).kernels, 0);
  EXPECT_EQ(again(R"(["expert_activation"])", true).kernels, 1);
  EXPECT_EQ(again(R"(["expert_activation"])", false).kernels, 0);
  EXPECT_EQ(again(R"(["mlp"])", false).flops, 3 * 2. * n * h * f);
  EXPECT_EQ(again(R"(["shared_experts"])", true).flops, 3 * 2. * n * h * i);
  const Again experts = again(R"(["experts"])", true);
  EXPECT_EQ(experts.flops, 3 * 2. * n * k * h * i + 2. * n * h * 16 + 3 * 2. * n * h * i);
  EXPECT_EQ(experts.travels, 2);
  EXPECT_EQ(again(R"(["attention_core"])", true).flops, again("\"selective\"", true).flops);
}

// What the forward no longer keeps, in 16 bit: both norms' outputs; queries, keys (8 + 8 of each
// head) and values; the activation; a gated MLP's two projections and its activation; of R = n k
// rows the same beside the rows themselves.
TEST(RecomputeParts, KeepByThatMuchLess) {
  const MemoryProfile profile = read_memory_profile("megatron").value();
  const auto kept = [&](const std::string& recompute, SegmentShape shape) {
    const Scenario s = scenario(recompute);
    return kept_bytes(segment_program(profile, {s.model, s.plan}, shape), 2 * n * h);
  };
  const auto saved = [&](const std::string& part, SegmentShape shape) {
    return kept("\"none\"", shape) - kept("[\"" + part + "\"]", shape);
  };
  constexpr auto kDense = SegmentShape::DenseLayer, kExpert = SegmentShape::ExpertLayer;
  EXPECT_EQ(saved("norm", kDense), 2 * 2 * n * h);
  EXPECT_EQ(saved("norm", kExpert), 2 * 2 * n * h);
  EXPECT_EQ(saved("latent_up", kExpert), 2 * n * a * (16 + 16 + 8));
  EXPECT_EQ(saved("mlp_activation", kDense), 2 * n * f);
  EXPECT_EQ(saved("mlp_activation", kExpert), 0);
  EXPECT_EQ(saved("mlp", kDense), 2 * n * 3 * f);
  EXPECT_EQ(saved("expert_activation", kExpert), 2 * n * k * i);
  EXPECT_EQ(saved("shared_experts", kExpert), 2 * n * 3 * i);
  EXPECT_EQ(saved("experts", kExpert), 2 * n * (k * h + 3 * (k + 1) * i));
  EXPECT_EQ(kept(R"(["attention_core"])", kDense), kept("\"selective\"", kDense));
}

// Whoever looks for memory is offered what the plan has, and more: no mode that makes less again.
TEST(RecomputeParts, AdviceNeverMakesLessAgain) {
  const PlanRow* row = find_plan_row("recompute");
  ASSERT_NE(row, nullptr);
  ASSERT_NE(row->smaller, nullptr);
  const auto offered = [&](const std::string& recompute) {
    return row->smaller(scenario(recompute).plan);
  };
  using Values = std::vector<std::string>;
  EXPECT_EQ(offered("\"none\""), (Values{"\"none\"", "\"selective\"", "\"full\""}));
  EXPECT_EQ(offered("\"selective\""), (Values{"\"selective\"", "\"full\""}));
  EXPECT_EQ(offered("\"full\""), (Values{"\"full\""}));
  EXPECT_EQ(offered(R"(["norm", "mlp"])"), (Values{R"(["norm", "mlp"])", "\"full\""}));
  // The same set as `selective`, which therefore is no change.
  EXPECT_EQ(offered(R"(["attention_core"])"), (Values{R"(["attention_core"])", "\"full\""}));
}

// One value: full has every part; a list and the word for it are equal, and say themselves apart.
TEST(RecomputeParts, AreOneValueWithTheModes) {
  const Plan full = scenario("\"full\"").plan, word = scenario("\"selective\"").plan,
             list = scenario(R"(["attention_core"])").plan, none = scenario("\"none\"").plan;
  for (std::size_t part = 0; part < kNumRecomputeParts; ++part) {
    EXPECT_TRUE(full.recomputes(static_cast<RecomputePart>(part)));
    EXPECT_FALSE(none.recomputes(static_cast<RecomputePart>(part)));
  }
  EXPECT_EQ(word.recompute, list.recompute);
  EXPECT_EQ(recompute_text(word), "selective");
  EXPECT_EQ(recompute_text(list), "attention_core");
  EXPECT_EQ(recomputed_text(word), "attention is");
  EXPECT_EQ(recomputed_text(scenario(R"(["norm", "mlp"])").plan), "norm + mlp are");
  EXPECT_EQ(recomputed_text(none), "nothing is");
  EXPECT_EQ(recomputed_text(full), "every layer is");
}

// A plan that lists parts and does not fit: what is proposed makes them again, or every layer.
TEST(RecomputeParts, TheNearestPlanThatFitsMakesNoLessAgain) {
  const std::string text =
      R"({"model": "llama2-13b", "cluster": "dgx-a100-40gb", "gpus": 8, "plan": {
          "tensor_parallel": 8, "micro_batch": 16, "global_batch": 16, "sequence_length": 4096,
          "runtime": "megatron", "recompute": ["norm", "mlp"]}})";
  const Space space = parse_space(text, "x.json", {}).value();
  const Scenario s = parse_scenario(text, "x.json", 1, {}).value();
  const Cluster cluster = read_cluster(s.cluster).value();
  const Result<NearestPlan> nearest = nearest_fit(space, cluster, s.plan, /*every_row=*/false);
  ASSERT_TRUE(nearest) << nearest.error().message;
  for (const PlanChange& change : nearest.value().changes) {
    if (change.key == "recompute") {
      EXPECT_EQ(change.to, "\"full\"");
    }
  }
}

// What is made again is freed again, whichever parts are listed, also where W runs apart.
TEST(RecomputeParts, LeaveNothingBehind) {
  const MemoryProfile profile = read_memory_profile("megatron").value();
  for (unsigned parts = 0; parts < 1U << kNumRecomputeParts; ++parts) {
    Scenario s = scenario("\"none\"");
    for (std::size_t part = 0; part < kNumRecomputeParts; ++part) {
      if ((parts >> part & 1U) != 0) s.plan.recompute.add(static_cast<RecomputePart>(part));
    }
    if (!unfit_parts(s.model, s.plan).empty()) continue;
    for (const SegmentShape shape : {SegmentShape::DenseLayer, SegmentShape::ExpertLayer}) {
      const SegmentProgram program = segment_program(profile, {s.model, s.plan}, shape);
      std::vector<std::int64_t> alive(static_cast<std::size_t>(program.slots));
      for (const auto* steps : {&program.forward, &program.backward}) {
        for (const ScriptStep& step : *steps) {
          std::int64_t& slot = alive[static_cast<std::size_t>(step.slot)];
          EXPECT_TRUE(step.bytes == 0 || slot == 0) << "made twice: slot " << step.slot;
          slot = step.bytes;
        }
      }
      for (std::size_t slot = kInputGradientSlot + 1; slot < alive.size(); ++slot) {
        EXPECT_EQ(alive[slot], 0) << parts << " slot " << slot;
      }
    }
  }
}

// More parts: never faster, and no more memory kept; nothing and everything are the ends.
TEST(RecomputeParts, LieBetweenNothingAndEverything) {
  const auto predicted = [](const std::string& recompute) {
    const Scenario s = scenario(recompute);
    const Result<Cluster> cluster = read_cluster(s.cluster);
    const Result<Prediction> made = predict(s, cluster.value());
    EXPECT_TRUE(made) << (made ? "" : made.error().message);
    return std::pair{made.value().timeline.step().value, made.value().recomputed_flops};
  };
  std::pair<std::int64_t, double> last = predicted("\"none\"");
  EXPECT_EQ(last.second, 0);
  for (const char* parts :
       {R"(["norm"])", R"(["norm", "latent_up"])", R"(["norm", "latent_up", "mlp"])",
        R"(["norm", "latent_up", "mlp", "experts"])", "\"full\""}) {
    const auto now = predicted(parts);
    EXPECT_GE(now.first, last.first) << parts;
    EXPECT_GE(now.second, last.second) << parts;
    last = now;
  }
}

}  // namespace
}  // namespace rehearse::sim
