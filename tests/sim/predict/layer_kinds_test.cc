// SPDX-License-Identifier: Apache-2.0
// Models of layers that differ, through the whole predictor: a mixture of four kinds over random
// plans (REHEARSE_TEST_LONG=1: 300 of them), memory by hand and against measured tests of
// Megatron-LM, refusals, search.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <utility>

#include "schedules/body/body.h"
#include "schedules/model/config/hf_config.h"
#include "schedules/model/layer_mix.h"
#include "schedules/proof/validate.h"
#include "schedules/scenario/scenario.h"
#include "sim/memory/memory_script.h"
#include "sim/memory/stage_walk.h"
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
// which nemotron_h's file cannot say; the plan says the dropout. Of these bytes Mamba layers, with
// their norms and masks, have 35, 36, 23 and 44 % by a count of their rows by hand.
TEST(LayerKinds, KeepWhatMegatronsTestsMeasure) {
  const std::map<std::string, double> mamba{{"mlm-hybrid-tp1_pp1_cp1-h100", 0.35},
                                            {"mlm-hybrid-tp2_pp1_cp1-h100", 0.36},
                                            {"mlm-hybrid-tp1_pp4_cp1-h100", 0.23},
                                            {"mlm-hybrid-tp2_pp1_cp4-h100", 0.44}};
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
    const RankMemory& last = p.memory.ranks.back();
    EXPECT_NEAR(static_cast<double>(last.peak_allocated) / peak, 1, 0.03) << id;
    std::int64_t activations = 0, parameters = 0;
    for (const KindMemory& kind : last.kinds) {
      activations += kind.activations;
      parameters += kind.parameters;
      if (kind.kind != "mamba2") continue;
      const auto grown = static_cast<double>(last.peak_allocated - last.steady_allocated);
      EXPECT_NEAR(static_cast<double>(kind.activations) / grown, mamba.at(id), 0.01) << id;
      EXPECT_EQ(kind.layers, p.plan.pipeline_parallel > 1 ? 5 : 20) << id;
    }
    EXPECT_EQ(activations, last.parts.activations) << id;
    const std::int64_t ranks = p.plan.tensor_parallel * p.plan.pipeline_parallel;
    const Transformer& model = scenario.value().model;
    const std::int64_t padding = p.plan.padded_vocabulary - model.vocabulary;
    if (ranks == 1) {
      EXPECT_EQ(parameters, p.parameters + padding * model.hidden) << id;
    }
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

// Bytes that are there, and the most of them.
struct Counted {
  using Tensor = std::int64_t;
  static constexpr std::int64_t kNothing = 0;
  std::int64_t now = 0, most = 0;
  void make(std::int64_t& tensor, std::int64_t bytes, bool /*kept*/, std::uint8_t /*kind*/) {
    tensor = bytes;
    now += bytes;
    most = std::max(most, now);
  }
  void drop(std::int64_t& tensor) { now -= std::exchange(tensor, 0); }
  void take(std::int64_t /*tensor*/, std::uint8_t /*kind*/) {}
  std::int64_t bytes(std::int64_t tensor) const { return tensor; }
  void enter(std::size_t, std::ptrdiff_t) {}
  void leave_forward(std::size_t) {}
  void leave_backward(std::size_t) {}
};

// Five layers, each of which keeps 10 and, of its streams, 100, and hands on 1000; in blocks of two
// layers. A forward keeps five times 10, and what the second and third block read. The backward has
// most in the second block: four times 10, what the block reads and what is between its layers, the
// streams of both, and two gradients.
TEST(LayerKinds, DropStreamsInBlocksOfLayers) {
  SegmentProgram layer{.forward = {{.bytes = 100, .slot = 4, .kept = true},
                                   {.bytes = 10, .slot = 5, .kept = true},
                                   {.bytes = 1000, .slot = kOutputSlot, .kept = true}},
                       .backward = {{.bytes = 1000, .slot = kInputGradientSlot, .kept = true},
                                    {.slot = 4},
                                    {.slot = 5}},
                       .slots = 6,
                       .streams = {{.bytes = 100, .slot = 4, .kept = true}},
                       .output = 1000};
  StageSegments stage;
  stage.outgoing = 1000;
  for (std::size_t i = 0; i < 5; ++i) stage.add(layer, i, /*leaves=*/false);
  const auto kept = [&](std::int32_t layers) {
    StageSegments cut = stage;
    cut.form_blocks(layers);
    Counted memory;
    StageWalk<Counted> walk(memory, cut);
    std::vector<std::int64_t> tensors(cut.slots);
    walk.forward(tensors.data());
    const std::int64_t left = memory.now;
    memory.most = 0;
    walk.backward(tensors.data(), /*split=*/false);
    EXPECT_EQ(memory.now, 0);
    return std::pair(left, memory.most);
  };
  EXPECT_EQ(kept(1), std::pair(5 * 10 + 4 * 1000L, 5 * 10 + 4 * 1000 + 100 + 2 * 1000L));
  EXPECT_EQ(kept(2).first, 5 * 10 + 2 * 1000);
  EXPECT_EQ(kept(2).second, 4 * 10 + 2 * 1000 + 2 * 100 + 2 * 1000);
  // All of a chunk: nothing between its layers is kept, and all of it is there again.
  EXPECT_EQ(kept(0), std::pair(5 * 10L, 5 * (10 + 100) + 4 * 1000 + 2 * 1000L));
}

// Streams made again: a layer drops what lies between its two blocks, all four streams, both norms'
// outputs and what they read; the backward runs both collapses and mixes again, the second mix of
// every second layer, and both norms once, whoever asks for them.
TEST(LayerKinds, MakeStreamsAgain) {
  const MemoryProfile profile = read_memory_profile("megatron").value();
  double mixes = 0;  // that the host launches again for a layer, in the mean
  const auto made = [&](const char* recompute) {
    const Scenario s = read("\"models/deepseek-v4-flash.json\"",
                            std::string(R"("micro_batch": 1, "global_batch": 8, "zero_stage": 1,
                              "expert_parallel": 8, "recompute": )") +
                                recompute)
                           .value();
    const Layout layout(s.model, s.plan);
    const Body body =
        make_body(layout, body_shape(layout, {SegmentKind::Layer, 0}, Direction::Backward));
    std::vector<std::pair<std::string, std::int64_t>> again;
    for (const Node& node : body.nodes) {
      if (node.phase != NodePhase::Recompute) continue;
      again.emplace_back(node.name, node.bytes);
      if (node.name == "mix") mixes += node.issued() / node.launches;
    }
    return std::pair(kept_bytes(layer_program(profile, layout, variant_of(s.model, 0)),
                                layout.activation_bytes()),
                     again);
  };
  constexpr std::int64_t kArray = 2 * 1024 * 4096;  // of one stream
  const auto none = made("\"none\"");
  const auto streams = made(R"(["norm", "residual_streams"], "recompute_stream_layers": 2)");
  EXPECT_EQ(none.first - streams.first, (4 + 2 + 2) * kArray);
  EXPECT_TRUE(none.second.empty());
  EXPECT_EQ(mixes, 1.5);
  std::map<std::string, std::int64_t> bytes;
  for (const auto& [name, of] : streams.second) bytes[name] += of;
  EXPECT_EQ(bytes["collapse"], 2 * (4 + 1) * kArray);
  EXPECT_EQ(bytes["mix"], (2 * 4 + 1) * kArray * 3 / 2);
  EXPECT_EQ(bytes["norm1"], 2 * kArray);
  EXPECT_EQ(bytes["norm2"], 2 * kArray);
  EXPECT_EQ(streams.second.size(), 6U);
  // A block of one layer hands its last streams on, and makes them not again.
  EXPECT_EQ(made(R"(["residual_streams"], "recompute_stream_layers": 1)").second.size(), 5U);
}

// Micro-batches in flight keep no streams between their layers, in time that costs; products are
// not run again.
TEST(LayerKinds, KeepFewerStreamsInFlight) {
  const auto made = [](const char* recompute) {
    return predicted(read(kStreams, std::string(R"("pipeline_parallel": 2, "zero_stage": 1,
                            "micro_batch": 1, "global_batch": 32, "recompute": )") +
                                        recompute)
                         .value());
  };
  const Prediction none = made("\"none\"");
  const Prediction one = made(R"(["residual_streams"], "recompute_stream_layers": 1)");
  const Prediction all = made(R"(["residual_streams"])");
  const auto first = [](const Prediction& p) { return p.memory.ranks.front().peak_allocated; };
  EXPECT_LT(first(one), first(none));
  EXPECT_LT(first(all), first(none));
  EXPECT_GT(one.timeline.step(), none.timeline.step());
  EXPECT_GT(all.timeline.step(), one.timeline.step());
  EXPECT_EQ(all.recomputed_flops, 0);
  EXPECT_TRUE(validate(all.schedule, {.compute_order = &all.order}).violations.empty());
  for (const Prediction* p : {&one, &all}) {
    for (const RankMemory& rank : p->memory.ranks) {
      EXPECT_EQ(rank.parts.allocated(), rank.peak_allocated);
    }
  }
}

TEST(LayerKinds, RefuseStreamsThatCannotBeMadeAgain) {
  const char* kPlan = R"("recompute": ["residual_streams"], "micro_batch": 1, "global_batch": 8)";
  EXPECT_EQ(error(kFour, kPlan),
            "x.json:7: plan.recompute: residual_streams: the model has one residual stream, no "
            "hyper-connections");
  EXPECT_NE(error(kStreams, std::string(kPlan) + R"(, "offload": "activations")")
                .find("plan.offload: activations beside recompute residual_streams"),
            std::string::npos);
  EXPECT_NE(error("\"models/hy-v4-defaults.json\"",
                  R"("recompute": ["mlp", "residual_streams"], "micro_batch": 1,
                     "global_batch": 8)")
                .find("residual_streams beside mlp: Megatron-LM refuses it"),
            std::string::npos);
}

// An indexer whose scores are held against attention's over the entries that it picked, 128 of
// 1,024 tokens in the mean: attention's scores in a forward, both again and two gradients of the
// indexer's in a backward, and gradients of its matrices, which go no further.
TEST(LayerKinds, TrainAnIndexer) {
  const auto nodes = [](const char* loss, std::int32_t layer, Direction direction) {
    const Scenario s = read("\"models/deepseek-v4-flash.json\"",
                            std::string(R"("micro_batch": 1, "global_batch": 8, "zero_stage": 1,
                              "expert_parallel": 8, "indexer_loss": )") +
                                loss)
                           .value();
    const Layout layout(s.model, s.plan);
    return make_body(layout, body_shape(layout, {SegmentKind::Layer, layer}, direction)).nodes;
  };
  const auto flops = [](const std::vector<Node>& of, std::string_view name) {
    double sum = 0;
    for (const Node& node : of) sum += node.name == name ? node.flops : 0;
    return sum;
  };
  const auto count = [](const std::vector<Node>& of, Kernel kernel, std::string_view name) {
    return std::ranges::count_if(
        of, [&](const Node& node) { return node.kernel == kernel && node.name == name; });
  };
  constexpr double kTokens = 1024, kScored = 128, kScores = 2 * kTokens * kScored * 64 * 512;
  EXPECT_EQ(flops(nodes("\"sparse\"", 2, Direction::Forward), "indexer loss"), kScores);
  const std::vector<Node> with = nodes("\"sparse\"", 2, Direction::Backward);
  EXPECT_EQ(flops(with, "indexer loss backward"), kScores + 6 * kTokens * kScored * 64 * 128);
  const char* kQueries = "gemm compressor.indexer.q_b_proj";
  EXPECT_EQ(count(with, Kernel::LinearWeight, kQueries), 1);
  EXPECT_EQ(count(with, Kernel::LinearInput, kQueries), 0);
  EXPECT_EQ(count(nodes("\"none\"", 2, Direction::Backward), Kernel::LinearWeight, kQueries), 0);
  EXPECT_EQ(flops(nodes("\"sparse\"", 0, Direction::Backward), "indexer loss backward"), 0);
  const Scenario without =
      read(kFour, R"("indexer_loss": "dense", "micro_batch": 1, "global_batch": 8)").value();
  ASSERT_EQ(without.warnings.size(), 1u);
  EXPECT_EQ(without.warnings[0],
            "plan.indexer_loss changes nothing: the model has no indexer that picks the keys of "
            "attention");
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
