// SPDX-License-Identifier: Apache-2.0
// Layers of multi-token prediction: where a layout places them, what is handed on behind them, what
// they and their heads keep.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "schedules/body/sizes.h"
#include "schedules/proof/validate.h"
#include "schedules/scenario/scenario.h"
#include "sim/memory/memory_script.h"
#include "sim/predict/predict.h"

namespace rehearse::sim {
namespace {

constexpr std::int64_t kTokens = 128, kHidden = 256, kVocabulary = 1024;

std::string text(const std::string& layout, int predictions, const std::string& runtime) {
  return R"({"model": {"model_type": "deepseek_v3", "hidden_size": 256, "intermediate_size": 512,
          "moe_intermediate_size": 64, "num_hidden_layers": 6, "num_attention_heads": 8,
          "n_routed_experts": 32, "num_experts_per_tok": 4, "n_group": 4, "topk_group": 2,
          "first_k_dense_replace": 2, "vocab_size": 1024, "num_nextn_predict_layers": )" +
         std::to_string(predictions) + R"(}, "cluster": "dgx-h100", "gpus": 8, "plan": {
          "pipeline_parallel": 4, "data_parallel": 2, "expert_parallel": 2, "micro_batch": 1,
          "global_batch": 16, "sequence_length": 128, "runtime": ")" +
         runtime + R"(", "stage_layers": )" + layout + "}}";
}
Scenario scenario(const std::string& layout, int predictions = 1,
                  const std::string& runtime = "megatron") {
  const Result<Scenario> read = parse_scenario(text(layout, predictions, runtime), "x.json", 1, {});
  EXPECT_TRUE(read) << (read ? "" : read.error().message);
  return read ? read.value() : Scenario{};
}
Prediction predicted(const std::string& layout) {
  const Scenario s = scenario(layout);
  const Result<Cluster> cluster = read_cluster(s.cluster);
  Result<Prediction> made = predict(s, cluster.value());
  EXPECT_TRUE(made) << (made ? "" : made.error().message);
  return made ? std::move(made).value() : Prediction{};
}
// Layers of every stage, by number.
std::vector<std::vector<int>> layers(const Scenario& s) {
  std::vector<std::vector<int>> all;
  for (const auto& stage : stage_segments({s.model, s.plan}, 4)) {
    all.emplace_back();
    for (const SegmentInfo& segment : stage) {
      if (segment.kind == SegmentKind::Layer) all.back().push_back(segment.layer);
    }
  }
  return all;
}

// Our executor trains a model without them: what is priced is that model, and it is said.
TEST(PredictionLayers, AreLeftOutByARuntimeThatHasNone) {
  std::vector<Prediction> made;
  for (const int predictions : {0, 1}) {
    const Scenario s = scenario("[2, 2, 2, 0]", predictions, "rehearse");
    EXPECT_EQ(s.notes().size(), static_cast<std::size_t>(predictions));
    if (predictions > 0) {
      EXPECT_NE(s.notes()[0].find("model.num_nextn_predict_layers 1: trained without"),
                std::string::npos);
    }
    Result<Prediction> one = predict(s, read_cluster(s.cluster).value());
    ASSERT_TRUE(one) << one.error().message;
    made.push_back(std::move(one).value());
  }
  EXPECT_EQ(made[0].step_s, made[1].step_s);
  EXPECT_EQ(made[0].model_flops, made[1].model_flops);
}

// A layout that places one asks for what is not there.
TEST(PredictionLayers, HaveNoPlaceInARunsLayout) {
  const Result<Scenario> read =
      parse_scenario(text(R"("Ett|tt|tt|mL")", 1, "rehearse"), "x.json", 1, {});
  ASSERT_FALSE(read);
  EXPECT_NE(read.error().message.find("x.json:6: plan.stage_layers: runtime rehearse"),
            std::string::npos)
      << read.error().message;
}

// Layer 6 is the first behind the model's six. Without m it stands before the head.
TEST(PredictionLayers, StandWhereTheLayoutSays) {
  using Layers = std::vector<std::vector<int>>;
  EXPECT_EQ(layers(scenario("[2, 2, 2, 0]")), (Layers{{0, 1}, {2, 3}, {4, 5}, {6}}));
  EXPECT_EQ(layers(scenario(R"("Ett|tt|tt|mL")")), (Layers{{0, 1}, {2, 3}, {4, 5}, {6}}));
  EXPECT_EQ(layers(scenario(R"("Ettt|ttt|m|L")")), (Layers{{0, 1, 2}, {3, 4, 5}, {6}, {}}));
  EXPECT_EQ(layers(scenario(R"("Ettt|tttmm||L")", 2)),
            (Layers{{0, 1, 2}, {3, 4, 5, 6, 7}, {}, {}}));
}

TEST(PredictionLayers, AreOneValueOfThePlanAgain) {
  const Scenario s = scenario(R"("Ettt|ttt|m|L")");
  EXPECT_EQ(s.plan.prediction_stage, 2);
  EXPECT_NE(plan_json(s.plan, 0).find(R"("stage_layers": "Et*3|t*3|m*1|L")"), std::string::npos);
}

TEST(PredictionLayers, AreAsManyAsTheModelHas) {
  const auto error = [](const char* layout) {
    const std::string text =
        R"({"model": {"model_type": "mixtral", "num_hidden_layers": 2}, "cluster": "dgx-h100",
            "plan": {"pipeline_parallel": 2, "stage_layers": )" +
        std::string(layout) + "}}";
    const Result<Scenario> read = parse_scenario(text, "x.json", 1, {});
    return read ? "" : read.error().message;
  };
  EXPECT_NE(error(R"("Et|tmL")").find("1 m, but num_nextn_predict_layers is 0"), std::string::npos);
  EXPECT_NE(error(R"("Et|mtL")").find("a t behind an m"), std::string::npos);
  EXPECT_NE(error(R"("Ettm|L")").find("m in the first of several chunks"), std::string::npos);
}

// Heads stand last: from the prediction layer on, its output travels beside the model's. Forward
// and backward alike, and nowhere else.
TEST(PredictionLayers, HandOnOneActivationMore) {
  const Prediction p = predicted(R"("Ettt|ttt|m|L")");
  EXPECT_TRUE(validate(p.schedule, {.compute_order = &p.order}).violations.empty());
  std::map<std::int32_t, std::int64_t> bytes;  // by the stage before
  for (const Op& op : p.schedule.ops) {
    if (op.kind != OpKind::Send) continue;
    const bool back = op.payload == Payload::Gradient;
    const std::int64_t carried = p.schedule.carried[op.match.index()].bytes();
    const auto [at, fresh] = bytes.try_emplace(op.stage.value - (back ? 1 : 0), carried);
    EXPECT_EQ(at->second, carried);
  }
  const std::int64_t one = 2 * kTokens * kHidden;
  EXPECT_EQ(bytes, (std::map<std::int32_t, std::int64_t>{{0, one}, {1, one}, {2, 2 * one}}));
}

// The model's parameters are the same wherever the layer stands, and the same work is done.
TEST(PredictionLayers, ArePlacedNotChanged) {
  const Prediction behind = predicted("[3, 3, 0, 0]"), before = predicted(R"("Ettt|ttt|m|L")");
  const auto parameters = [](const Prediction& p) {
    std::int64_t sum = 0;
    for (const Bucket& bucket : p.schedule.buckets) sum += bucket.elements;
    return sum;
  };
  EXPECT_EQ(parameters(behind), parameters(before));
  EXPECT_EQ(behind.model_flops, before.model_flops);
  // In the last chunk is where it stands anyway.
  EXPECT_EQ(predicted(R"("Ettt|ttt||mL")").timeline.step(), behind.timeline.step());
}

// Each loss keeps its own logits in fp32, norm, statistics and labels: twice one head's. The layer
// keeps what a layer keeps, and before it 8 n of tokens, embedding, both norms side by side (6 l h
// in 16 bit), 16 l of statistics and its projection's output, which is the layer's input.
TEST(PredictionLayers, KeepALayerAndALossMore) {
  const Scenario one = scenario("[2, 2, 2, 0]", 1), none = scenario("[2, 2, 2, 0]", 0);
  const MemoryProfile profile = read_memory_profile("megatron").value();
  const auto kept = [&](const Scenario& s, SegmentShape shape) {
    return kept_bytes(segment_program(profile, {s.model, s.plan}, shape), 0);
  };
  EXPECT_EQ(kept(one, SegmentShape::Head), 2 * kept(none, SegmentShape::Head));
  EXPECT_GT(kept(none, SegmentShape::Head), 4 * kTokens * kVocabulary);
  EXPECT_EQ(kept(one, SegmentShape::PredictionLayer) - kept(one, SegmentShape::ExpertLayer),
            8 * kTokens + 6 * kTokens * kHidden + 16 * kTokens + 2 * kTokens * kHidden);
}

// A chain of programs makes and frees what its parts do.
TEST(PredictionLayers, ProgramsInAChainLeaveNothingBehind) {
  const Scenario s = scenario("[2, 2, 2, 0]");
  const MemoryProfile profile = read_memory_profile("megatron").value();
  for (const SegmentShape shape : {SegmentShape::PredictionLayer, SegmentShape::Head}) {
    const SegmentProgram program = segment_program(profile, {s.model, s.plan}, shape);
    std::map<std::int16_t, std::int64_t> alive;
    for (const auto* steps : {&program.forward, &program.backward}) {
      for (const ScriptStep& step : *steps) {
        ASSERT_LT(step.slot, program.slots);
        alive[step.slot] = step.bytes;
      }
    }
    for (const auto& [slot, bytes] : alive) {
      EXPECT_TRUE(slot <= kInputGradientSlot || bytes == 0) << slot;
    }
  }
}

}  // namespace
}  // namespace rehearse::sim
