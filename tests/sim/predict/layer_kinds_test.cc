// SPDX-License-Identifier: Apache-2.0
// Models of layers that differ, through the whole predictor: a mixture of four kinds over random
// plans (REHEARSE_TEST_LONG=1: 300 of them), memory by hand and against measured tests of
// Megatron-LM, refusals, search.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <numeric>
#include <random>
#include <set>

#include "schedules/model/hf_config.h"
#include "schedules/model/layer_mix.h"
#include "schedules/proof/validate.h"
#include "schedules/scenario/scenario.h"
#include "sim/memory/memory_script.h"
#include "sim/predict/predict.h"
#include "sim/predict/predicted_trace.h"
#include "sim/report/report.h"
#include "sim/search/search.h"

namespace rehearse::sim {
namespace {

// Mamba-2, attention, an MLP and experts in one stack, small.
constexpr const char* kFour =
    R"({"model_type": "nemotron_h", "hybrid_override_pattern": "MEM*-MEM*-ME", "hidden_size": 512,
        "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64,
        "intermediate_size": 1024, "mamba_num_heads": 16, "mamba_head_dim": 64,
        "ssm_state_size": 64, "n_groups": 4, "chunk_size": 128, "n_routed_experts": 8,
        "num_experts_per_tok": 2, "moe_intermediate_size": 256, "moe_latent_size": 256,
        "moe_shared_expert_intermediate_size": 512, "vocab_size": 4096,
        "max_position_embeddings": 4096})";

Result<Scenario> read(const std::string& model, const std::string& plan, int gpus = 8) {
  return parse_scenario("{\"model\": " + model +
                            ", \"cluster\": \"dgx-h100\", \"gpus\": " + std::to_string(gpus) +
                            ", \"plan\": {\"sequence_length\": 1024, " + plan + "}}",
                        "x.json", 1, {});
}
std::string error(const std::string& model, const std::string& plan, int gpus = 8) {
  const Result<Scenario> made = read(model, plan, gpus);
  return made ? "" : made.error().message;
}
Prediction predicted(const Scenario& scenario) {
  const Result<Prediction> made = predict(scenario, read_cluster(scenario.cluster).value());
  EXPECT_TRUE(made) << (made ? "" : made.error().message);
  return made ? made.value() : Prediction{};
}

int pick(std::mt19937& random, std::initializer_list<int> choices) {
  return *(choices.begin() + std::uniform_int_distribution<std::ptrdiff_t>(
                                 0, static_cast<std::ptrdiff_t>(choices.size()) - 1)(random));
}

std::string random_plan(std::mt19937& random, int& gpus) {
  const int t = pick(random, {1, 1, 2, 4}), p = pick(random, {1, 2, 3, 4});
  const int c = pick(random, {1, 1, 2, 4}), e = pick(random, {1, 2, 4}),
            d = pick(random, {1, 2, 4});
  const int micro = pick(random, {1, 2}), m = pick(random, {2, 4, 8});
  constexpr const char* kOrders[]{"1f1b", "gpipe", "interleaved_1f1b", "zb_h1"};
  const char* order = kOrders[pick(random, {0, 1, 2, 3})];
  const bool fsdp = pick(random, {0, 0, 0, 1}) != 0;
  gpus = t * p * c * d;
  std::string text =
      "\"tensor_parallel\": " + std::to_string(t) +
      ", \"pipeline_parallel\": " + std::to_string(p) +
      ", \"context_parallel\": " + std::to_string(c) +
      ", \"expert_parallel\": " + std::to_string(e) +
      ", \"micro_batch\": " + std::to_string(micro) +
      ", \"global_batch\": " + std::to_string(micro * d * m) +
      ", \"zero_stage\": " + std::to_string(fsdp ? 3 : pick(random, {0, 1, 1})) +
      ", \"sequence_parallel\": " + (pick(random, {0, 1}) != 0 ? "true" : "false") +
      ", \"recompute\": " + (pick(random, {0, 1, 1}) != 0 ? "\"none\"" : "\"full\"") +
      ", \"runtime\": \"" + (fsdp ? "torchtitan" : "megatron") + "\"";
  if (p > 1) text += ", \"schedule\": \"" + std::string(order) + "\"";
  if (p > 1 && std::string_view(order) == "interleaved_1f1b") text += ", \"virtual_stages\": 2";
  return text;
}

TEST(LayerKinds, FourKindsHoldUnderRandomPlans) {
  std::mt19937 random(20261126);
  int made = 0;
  const int wanted = std::getenv("REHEARSE_TEST_LONG") != nullptr ? 300 : 60;
  for (int trial = 0; made < wanted; ++trial) {
    ASSERT_LT(trial, 20 * wanted) << "too few of the random plans are legal";
    int gpus = 0;
    const std::string plan = random_plan(random, gpus);
    const Result<Scenario> scenario = read(kFour, plan, gpus);
    if (!scenario) continue;
    const Cluster cluster = read_cluster(scenario.value().cluster).value();
    const Result<Prediction> result = predict(scenario.value(), cluster);
    ASSERT_TRUE(result) << result.error().message << '\n' << plan;
    const Prediction& p = result.value();
    const Validation proof = validate(p.schedule, {.compute_order = &p.order});
    for (const Violation& v : proof.violations) {
      ADD_FAILURE() << v.rule << ": " << v.message << '\n' << plan;
    }
    for (const RankMemory& rank : p.memory.ranks) {
      EXPECT_EQ(rank.parts.allocated(), rank.peak_allocated) << plan;
    }
    EXPECT_GT(p.timeline.step().value, 0);
    ++made;
    if (testing::Test::HasFailure()) break;
  }
}

// What each kind of layer keeps of a token: rows of its file, and of the block its norm's input and
// output, 2 h each, and the norm's statistics.
TEST(LayerKinds, KeepWhatTheirFilesSay) {
  const Scenario s =
      read("\"models/nemotron-3-nano.json\"",
           R"("micro_batch": 1, "global_batch": 8, "zero_stage": 1, "expert_parallel": 8)")
          .value();
  const Layout layout(s.model, s.plan);
  const MemoryProfile profile = read_memory_profile("megatron").value();
  ASSERT_EQ(variants(s.model), 3);
  const std::int64_t tokens = 1024, handover = tokens * 2 * 2688;
  const auto kept = [&](std::int32_t layer) {
    return kept_bytes(layer_program(profile, layout, variant_of(s.model, layer)), handover);
  };
  EXPECT_EQ(kept(0), tokens * (45'216 + 2 * 2 * 2688 + 4));  // M
  const Transformer& attention = variant(s.model, variant_of(s.model, 5));
  EXPECT_FALSE(attention.has_mlp);
  // * : qkv (32 + 2 * 2 heads of 128), output, statistics of attention and norm
  EXPECT_EQ(kept(5), tokens * (2 * 2 * 2688 + 2 * (36 + 32) * 128 + 4 * 32 + 8));
}

// Tensor parallelism halves what a Mamba layer keeps, but for the block's norm where the sequence
// is not cut too.
TEST(LayerKinds, AreCutByTensorParallelism) {
  const MemoryProfile profile = read_memory_profile("megatron").value();
  const auto kept = [&](const char* plan) {
    const Scenario s = read("\"models/nemotron-3-nano.json\"", plan).value();
    const Layout layout(s.model, s.plan);
    return kept_bytes(layer_program(profile, layout, variant_of(s.model, 0)),
                      layout.activation_bytes());
  };
  const std::int64_t whole = kept(R"("micro_batch": 1, "global_batch": 8)");
  EXPECT_EQ(2 * kept(R"("micro_batch": 1, "global_batch": 8, "tensor_parallel": 2,
                       "sequence_parallel": true)"),
            whole);
  EXPECT_EQ(kept(R"("micro_batch": 1, "global_batch": 8, "tensor_parallel": 2,
                   "sequence_parallel": false)"),
            1024 * (45'216 / 2 + 2 * 2 * 2688 + 4));
}

// NVIDIA/Megatron-LM tests/functional_tests/test_cases/hybrid on H100: bytes between the steady
// state and the peak of the last rank. The norms there are LayerNorm with bias, and dropout is 0.1,
// which nemotron_h's file cannot say; the plan says the dropout.
TEST(LayerKinds, KeepWhatMegatronsTestsMeasure) {
  const JsonValue file =
      read_json("tests/data/validation/layers/hybrid_megatron_golden.json").value();
  for (const JsonValue& one : file.given("cases")->items) {
    JsonValue document = *one.given("scenario");
    for (JsonMember& member : document.members) {
      if (member.key != "plan") continue;
      JsonValue dropout{.kind = JsonKind::Number, .number = 0.1};
      member.value.members.push_back({.key = "dropout", .value = dropout});
    }
    const std::string id = one.given("id")->text;
    const Result<Scenario> scenario = parse_scenario(to_json_text(document), id, 1, {});
    ASSERT_TRUE(scenario) << scenario.error().message;
    const Prediction p = predicted(scenario.value());
    const JsonValue& rank = one.given("measured")->given("ranks")->items.front();
    const double peak = rank.given("peak_allocated_bytes")->number;
    EXPECT_NEAR(static_cast<double>(p.memory.ranks.back().peak_allocated) / peak, 1, 0.03) << id;
  }
}

// DeepSeek-V4, small: windows, compressed entries with an indexer and without, experts, four
// streams.
constexpr const char* kStreams =
    R"({"model_type": "deepseek_v4", "num_hidden_layers": 6, "compress_ratios": [0, 4, 128, 4, 128,
        4, 0], "hidden_size": 512, "moe_intermediate_size": 256, "num_attention_heads": 8,
        "head_dim": 128, "q_lora_rank": 256, "o_groups": 4, "o_lora_rank": 128,
        "index_n_heads": 4, "index_head_dim": 64, "index_topk": 32, "n_routed_experts": 8,
        "num_experts_per_tok": 2, "vocab_size": 4096})";

// Stages hand on all four streams; a layer keeps its input and what lies between its blocks with
// all four, and what its kinds' files say: of both hyper-connections what is collapsed, what the
// block gives and 24 coefficients, of attention its products.
TEST(LayerKinds, HandOnAllStreams) {
  const Scenario s =
      read("\"models/deepseek-v4-flash.json\"",
           R"("micro_batch": 1, "global_batch": 8, "zero_stage": 1, "expert_parallel": 8)")
          .value();
  const Layout layout(s.model, s.plan);
  const std::int64_t tokens = 1024, h = 4096;
  EXPECT_EQ(layout.activation_bytes(), tokens * 2 * 4 * h);
  const MemoryProfile profile = read_memory_profile("megatron").value();
  const Layout one(variant(s.model, variant_of(s.model, 0)), s.plan);
  const SizeLetters letters = size_letters(one, true);
  const std::int64_t streams = 2 * tokens * 4 * h, norms = 2 * 2 * tokens * h + 4 * 2 * tokens;
  const std::int64_t attention = tokens * (2 * 2 * (1024 + 512) + 8 + 2 * 64 * 512 + 4 * 64 +
                                           2 * 64 * 512 + 4 * 64 + 2 * 8 * 1024);
  const std::int64_t connections = 2 * tokens * (2 * 2 * h + 8 * 24 + 4);
  const std::int64_t rows = letters.value[static_cast<std::size_t>(SizeLetter::ExpertTokens)];
  const std::int64_t experts = 2 * rows * h + 3 * 2 * rows * 2048 + 3 * 2 * tokens * 2048;
  EXPECT_EQ(
      kept_bytes(layer_program(profile, layout, variant_of(s.model, 0)), layout.activation_bytes()),
      2 * streams + norms + attention + connections + experts);
}

TEST(LayerKinds, OfSeveralStreamsHoldUnderPlans) {
  const char* plans[]{
      R"("tensor_parallel": 2, "sequence_parallel": true, "pipeline_parallel": 2,
         "expert_parallel": 2)",
      R"("context_parallel": 2, "pipeline_parallel": 3, "schedule": "zb_h1")",
      R"("pipeline_parallel": 2, "virtual_stages": 3, "schedule": "interleaved_1f1b")",
      R"("zero_stage": 3, "runtime": "torchtitan")"};
  const int gpus[]{8, 6, 8, 8};
  for (std::size_t i = 0; i < std::size(plans); ++i) {
    const Result<Scenario> scenario = read(
        kStreams, std::string(plans[i]) + R"(, "micro_batch": 1, "global_batch": 24)", gpus[i]);
    ASSERT_TRUE(scenario) << scenario.error().message;
    const Prediction p = predicted(scenario.value());
    EXPECT_TRUE(validate(p.schedule, {.compute_order = &p.order}).violations.empty()) << plans[i];
    for (const RankMemory& rank : p.memory.ranks) {
      EXPECT_EQ(rank.parts.allocated(), rank.peak_allocated) << plans[i];
    }
  }
}

TEST(LayerKinds, RefuseWhatTheyCannotMeet) {
  EXPECT_EQ(error(kFour, R"("tensor_parallel": 8, "micro_batch": 1, "global_batch": 8)"),
            "x.json:7: plan.tensor_parallel: layers of kind mamba2 need G % tp == 0, with G = 4, "
            "tp = 8");
  EXPECT_NE(error(kFour, R"("runtime": "rehearse", "micro_batch": 1, "global_batch": 8)")
                .find("model_type nemotron_h has layers of kind mamba2; runtime rehearse has "
                      "attention, MLP and experts alone"),
            std::string::npos);
  EXPECT_EQ(error(kFour, R"("zero_stage": 3, "runtime": "torchtitan", "recompute": "selective",
                            "micro_batch": 1, "global_batch": 8)"),
            "x.json:7: plan.recompute: selective: which operators are computed again is not built "
            "for layers of kind mamba2");
  EXPECT_EQ(error("\"models/deepseek-v4-flash.json\"",
                  R"("recompute": "full", "micro_batch": 1, "global_batch": 8)"),
            "x.json:1: plan.recompute: full: Megatron-LM computes no layers of several residual "
            "streams (hyper-connections) again");
  EXPECT_EQ(
      error(kFour, R"("recompute": ["delta_norm_out"], "micro_batch": 1,
                            "global_batch": 8)"),
      "x.json:7: plan.recompute: delta_norm_out: the model has no delta net whose norm can be "
      "made again");
  const Result<ModelFile> read = read_model_file("scenarios/models/nemotron-3-nano.json");
  ASSERT_FALSE(read.value().use.unperformed.empty());
  EXPECT_NE(not_performed(read.value().use.unperformed)
                .message.find("\"nemotron_h\" is not performed by `run`"),
            std::string::npos);
}

// The norm of a delta net made again keeps less, two arrays of 32 heads of 128, and computes more.
TEST(LayerKinds, MakeADeltaNormAgain) {
  const MemoryProfile profile = read_memory_profile("megatron").value();
  struct Made {
    std::int64_t kept = 0, step = 0;
  };
  const auto made = [&](const char* recompute) {
    const Scenario s = read("\"models/qwen3.5-35b-a3b.json\"",
                            std::string(R"("micro_batch": 1, "global_batch": 8, "zero_stage": 1,
                              "expert_parallel": 8, "recompute": )") +
                                recompute)
                           .value();
    const Layout layout(s.model, s.plan);
    return Made{kept_bytes(layer_program(profile, layout, variant_of(s.model, 0)),
                           layout.activation_bytes()),
                predicted(s).timeline.step().value};
  };
  const Made none = made("\"none\""), again = made(R"(["delta_norm_out"])");
  EXPECT_EQ(none.kept - again.kept, 1024 * 2 * 2 * 4096);
  EXPECT_GT(again.step, none.step);
}

// Queries widened again keep less, 64 heads of 512 and their norms' statistics, and compute more.
TEST(LayerKinds, WidenQueriesAgain) {
  const MemoryProfile profile = read_memory_profile("megatron").value();
  const auto made = [&](const char* recompute) {
    const Scenario s = read("\"models/deepseek-v4-flash.json\"",
                            std::string(R"("micro_batch": 1, "global_batch": 8, "zero_stage": 1,
                              "expert_parallel": 8, "recompute": )") +
                                recompute)
                           .value();
    const Layout layout(s.model, s.plan);
    return std::pair(kept_bytes(layer_program(profile, layout, variant_of(s.model, 0)),
                                layout.activation_bytes()),
                     predicted(s).timeline.step().value);
  };
  const auto none = made("\"none\""), again = made(R"(["latent_up"])");
  EXPECT_EQ(none.first - again.first, 1024 * (2 * 64 * 512 + 4 * 64));
  EXPECT_GT(again.second, none.second);
}

// In a trace, and so in pictures of what is inside an op, every kind of layer has its name.
TEST(LayerKinds, AreNamedInTraces) {
  const Scenario s = read(kFour, R"("micro_batch": 1, "global_batch": 8)", 1).value();
  const Trace trace = predicted_trace(predicted(s), s, read_cluster(s.cluster).value());
  std::set<std::string> names;
  for (const TraceBody& body : trace.bodies) {
    names.insert(trace.strings[static_cast<std::size_t>(body.name)]);
  }
  for (const char* name : {"layer (mamba2) F", "layer (attention) F, not rotated", "layer (MLP) F",
                           "layer with experts F", "layer (mamba2) B"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
}

TEST(LayerKinds, AreSearched) {
  const Result<Space> space =
      parse_space(std::string("{\"model\": ") + kFour +
                      R"(, "cluster": "dgx-h100", "gpus": 8, "plan": {"sequence_length": 1024,
              "global_batch": 32, "runtime": "megatron"}})",
                  "x.json", {});
  ASSERT_TRUE(space) << space.error().message;
  const Cluster cluster = read_cluster(space.value().base.cluster).value();
  const Result<SearchResult> result = search(space.value(), cluster, {});
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_FALSE(result.value().best.empty());
}

}  // namespace
}  // namespace rehearse::sim
