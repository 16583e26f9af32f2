// SPDX-License-Identifier: Apache-2.0
// The plan table of docs/scenario.md, row by row: defaults, values, what follows from what.
#include "schedules/scenario/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "schedules/scenario/reader/plan_reader.h"
#include "schedules/scenario/scenario.h"
#include "schedules/scenario/stage_layers.h"
#include "tests/schedules/scenario/plan_text.h"

namespace rehearse {
namespace {

using namespace plan_text;

TEST(PlanDefaults, OfAnEmptyPlanAreOneNodeOfReplicas) {
  const Plan p = plan("");
  EXPECT_EQ(p.tensor_parallel, 1);
  EXPECT_EQ(p.pipeline_parallel, 1);
  EXPECT_EQ(p.data_parallel, 8);  // gpus: one node; data_parallel: what remains
  EXPECT_EQ(p.expert_tensor_parallel, 1);
  EXPECT_FALSE(p.sequence_parallel);
  EXPECT_EQ(p.zero_stage, 0);
  EXPECT_EQ(p.schedule, "none");
  EXPECT_EQ(p.virtual_stages, 1);
  EXPECT_EQ(p.stage_layers, std::vector<std::int32_t>{12});
  EXPECT_TRUE(p.micro_batch_auto);
  EXPECT_EQ(p.global_batch, 8);        // d x p
  EXPECT_EQ(p.sequence_length, 1024);  // the model's positions
  EXPECT_EQ(p.recompute, Recompute{});
  EXPECT_EQ(p.precision.name, "bf16");
  EXPECT_TRUE(p.flash_attention);
  EXPECT_EQ(p.attention_kernel, AttentionKernel::Flash3);  // Transformer Engine's
  EXPECT_EQ(p.dropout, 0);
  EXPECT_EQ(p.padded_vocabulary, 50304);  // 393 x 128
  EXPECT_FALSE(p.offload.any());
  EXPECT_EQ(p.rank_order,
            (std::vector{Axis::Tensor, Axis::Context, Axis::Expert, Axis::Data, Axis::Pipeline}));
  EXPECT_FALSE(p.overlap_gradient_reduce);
  EXPECT_FALSE(p.overlap_parameter_gather);
  EXPECT_EQ(p.overlap_tensor_parallel, TensorOverlap::Default);
  EXPECT_EQ(p.bucket_bytes, 0);
  EXPECT_EQ(p.prefetch, 1);
  EXPECT_EQ(p.runtime.name, "megatron");
}

TEST(PlanSizes, RemainForDataParallel) {
  EXPECT_EQ(plan(R"("tensor_parallel": 2, "pipeline_parallel": 2)", "32").data_parallel, 8);
  const Scenario given = read(R"("tensor_parallel": 2, "data_parallel": 3)");
  EXPECT_EQ(given.gpus, 6);  // the product of the sizes
}

TEST(PlanSizes, TensorParallelMayReplicateKeyValueHeads) {
  const std::string model =
      R"({"model_type": "llama", "num_attention_heads": 32, "num_key_value_heads": 2})";
  EXPECT_EQ(read(R"("tensor_parallel": 8)", "8", model).plan.tensor_parallel, 8);
  EXPECT_EQ(read(R"("tensor_parallel": 2)", "8", model).plan.tensor_parallel, 2);
}

TEST(PlanContext, AnExchangeOfHeadsNeedsHeadsForEveryRank) {
  const std::string eight = R"("context_parallel": 8, "context_parallel_algorithm": "all_to_all")";
  EXPECT_EQ(plan(eight, "8").context_parallel_algorithm, ContextParallelAlgorithm::AllToAll);
  EXPECT_EQ(plan(R"("context_parallel": 8)", "8").context_parallel_algorithm,
            ContextParallelAlgorithm::Ring);
  EXPECT_EQ(error_of(eight + R"(, "tensor_parallel": 2)", "16"),
            "x.json:1: plan.context_parallel_algorithm: all_to_all: tensor x context parallel = "
            "2 x 8 = 16 does not divide num_attention_heads 8");
  EXPECT_NE(error_of(eight + R"(, "schedule": "seq_1f1b", "sequence_slices": 2)", "8")
                .find("all_to_all brings whole sequences: none of slices"),
            std::string::npos);
  // Three ranks of six key heads have two each; of four of twelve none has whole ones.
  const std::string model = R"({"model_type": "llama", "hidden_size": 96, "num_hidden_layers": 2,
      "num_attention_heads": 12, "intermediate_size": 96, "vocab_size": 100,
      "max_position_embeddings": 96, "num_key_value_heads": )";
  const auto says = [&](const std::string& heads, const std::string& ranks) {
    const Result<Scenario> read = parse_scenario(
        scenario_text(R"("context_parallel_algorithm": "all_to_all", "context_parallel": )" + ranks,
                      ranks, model + heads + "}"),
        "x.json", 1, {});
    return read ? std::string() : read.error().message;
  };
  EXPECT_EQ(says("6", "3"), "");
  EXPECT_EQ(says("2", "4"), "");
  EXPECT_NE(says("6", "4").find("neither divides num_key_value_heads 6 nor is a multiple of it"),
            std::string::npos);
}

// Left out, as many neighbours exchange as a node and the heads allow, and leave a ring across.
TEST(PlanContext, HeadsMayBeExchangedInsideARing) {
  const std::string eight = R"("context_parallel": 8, "context_parallel_algorithm": "a2a+p2p")";
  const auto heads_over = [&](const std::string& keys, const std::string& gpus = "8") {
    const Plan read = plan(eight + keys, gpus);
    EXPECT_EQ(read.exchanging_ranks(), read.head_exchange_group);
    return read.head_exchange_group;
  };
  EXPECT_EQ(heads_over(""), 4);
  EXPECT_EQ(heads_over(R"(, "head_exchange_group": 2)"), 2);
  EXPECT_EQ(heads_over(R"(, "tensor_parallel": 4)", "32"), 2);  // eight heads
  // Neighbours of a sequence lie two apart where replicas come first: four of them span a node of
  // eight. Four apart, two do.
  EXPECT_EQ(heads_over(R"(, "rank_order": "tp-dp-cp-ep-pp")", "16"), 4);
  EXPECT_EQ(heads_over(R"(, "rank_order": "tp-dp-cp-ep-pp")", "32"), 2);
  // Two key heads: of four ranks every second would have one twice, which Transformer Engine
  // refuses.
  const Result<Scenario> grouped =
      parse_scenario(scenario_text(eight, "8", R"({"model_type": "llama", "hidden_size": 64,
          "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 2,
          "intermediate_size": 96, "vocab_size": 100, "max_position_embeddings": 1024})"),
                     "x.json", 1, {});
  ASSERT_TRUE(grouped) << grouped.error().message;
  EXPECT_EQ(grouped.value().plan.head_exchange_group, 2);
  EXPECT_EQ(plan(R"("context_parallel": 8, "head_exchange_group": 2)", "8").head_exchange_group, 0);
  EXPECT_EQ(error_of(eight + R"(, "tensor_parallel": 8)", "64"),
            "x.json:1: plan.context_parallel_algorithm: a2a+p2p: no part of 8 ranks has whole "
            "heads and leaves a ring across");
  EXPECT_EQ(error_of(eight + R"(, "head_exchange_group": 8)", "8"),
            "x.json:1: plan.head_exchange_group: 8 is context_parallel: no ring is left across "
            "(all_to_all)");
  EXPECT_EQ(error_of(eight + R"(, "head_exchange_group": 3)", "8"),
            "x.json:1: plan.head_exchange_group: 3 does not divide context_parallel 8");
  EXPECT_EQ(error_of(eight + R"(, "head_exchange_group": 4, "tensor_parallel": 4)", "32"),
            "x.json:1: plan.context_parallel_algorithm: a2a+p2p: tensor parallel x "
            "head_exchange_group = 4 x 4 = 16 does not divide num_attention_heads 8");
}

TEST(PlanSchedule, FollowsFromTheSizesWhereItIsLeftOut) {
  EXPECT_EQ(plan(R"("pipeline_parallel": 4)").schedule, "1f1b");
  EXPECT_EQ(plan(R"("pipeline_parallel": 4, "virtual_stages": 3)").schedule, "interleaved_1f1b");
  EXPECT_EQ(plan(R"("pipeline_parallel": 1)").schedule, "none");
}

TEST(PlanSchedule, IsKnownInTheLiteraturesSpelling) {
  const struct {
    const char* written;
    const char* name;
  } rows[] = {{"1F1B", "1f1b"},
              {"GPipe", "gpipe"},
              {"ZB-H1", "zb_h1"},
              {"Interleaved 1F1B", "interleaved_1f1b"},
              {"ZB-V", "zb_v"},
              {"DualPipeV", "dualpipev"},
              {"Looped BFS", "looped_bfs"}};
  for (const auto& row : rows) {
    const Plan p =
        plan(R"("pipeline_parallel": 4, "micro_batch": 1, "global_batch": 32, "schedule": ")" +
             std::string(row.written) + '"');
    EXPECT_EQ(p.schedule, row.name);
  }
}

TEST(PlanSchedule, ChunksAreTheSchedulesOwn) {
  const auto v = [](const char* name, const char* more = "") {
    return plan(R"("pipeline_parallel": 4, "micro_batch": 1, "global_batch": 32, "schedule": ")" +
                std::string(name) + '"' + more);
  };
  EXPECT_EQ(v("interleaved_1f1b").virtual_stages, 2);
  EXPECT_EQ(v("interleaved_1f1b", R"(, "virtual_stages": 1)").virtual_stages, 1);
  EXPECT_EQ(v("looped_bfs", R"(, "virtual_stages": 3)").virtual_stages, 3);
  EXPECT_EQ(v("zb_v").virtual_stages, 2);
  EXPECT_EQ(v("zb_v", R"(, "virtual_stages": 2)").stage_layers.size(), 8u);
  EXPECT_EQ(v("1f1b", R"(, "virtual_stages": 1)").virtual_stages, 1);
  EXPECT_EQ(v("dualpipe").stage_layers.size(), 4u);
  EXPECT_EQ(v("chimera").stage_layers.size(), 4u);
  // One position runs its micro-batches one after another, whatever the name.
  EXPECT_EQ(plan(R"("schedule": "interleaved_1f1b")").virtual_stages, 1);
  EXPECT_EQ(plan(R"("schedule": "dualpipe", "micro_batch": 1, "global_batch": 8)").schedule,
            "dualpipe");
}

// 8 chunks of 12 layers: 14 slots, 6 chunks of 2 and 2 of 1; the embedding takes one of the first
// chunk's and the head one of the last's.
TEST(PlanLayers, UnevenSharesCountEmbeddingAndHead) {
  EXPECT_EQ(default_stage_layers(12, 8), (std::vector{1, 2, 2, 2, 2, 2, 1, 0}));
  EXPECT_EQ(default_stage_layers(12, 4), (std::vector{3, 3, 3, 3}));
  EXPECT_EQ(default_stage_layers(6, 8), (std::vector{0, 1, 1, 1, 1, 1, 1, 0}));
  for (std::int32_t layers = 1; layers <= 40; ++layers) {
    for (std::int32_t chunks = 1; chunks <= layers + 2; ++chunks) {
      const std::vector<std::int32_t> shares = default_stage_layers(layers, chunks);
      EXPECT_EQ(shares.size(), static_cast<std::size_t>(chunks));
      EXPECT_EQ(std::accumulate(shares.begin(), shares.end(), 0), layers);
      EXPECT_GE(*std::ranges::min_element(shares), 0);
    }
  }
}

TEST(PlanLayers, LayoutsAreReadInMegatronsWords) {
  const auto layout = [](const char* text) {
    const Result<StageLayout> made = parse_layout(text);
    return made ? made.value().layers : std::vector<std::int32_t>{-1};
  };
  EXPECT_EQ(layout("Ett|tt|ttL"), (std::vector{2, 2, 2}));
  EXPECT_EQ(layout("E|(t)*10|(tt|)*2,L"), (std::vector{0, 10, 2, 2, 0}));
  EXPECT_EQ(layout("Et*3|(tt|)*3L"), (std::vector{3, 2, 2, 2, 0}));
  EXPECT_EQ(layout("E((t|)*2 t|)*2 L"), (std::vector{1, 1, 1, 1, 1, 1, 0}));
  for (const char* bad :
       {"", "tt|L", "E|t", "E|t)L", "E(t|L", "E|t*L", "E|t*0L", "EtE|L", "EL|tL",
        "E(((((((((((t)))))))))))L", "E(t)*99999999L", "Em|tL", "E|m|mL", "Etm|tL", "Etm|L"}) {
    EXPECT_EQ(layout(bad), std::vector{-1}) << bad;
  }
}

TEST(PlanLayers, ALayoutPlacesPredictionLayers) {
  const StageLayout deepseek = parse_layout("Et*3|(tt|)*2m|L").value();
  EXPECT_EQ(deepseek.layers, (std::vector{3, 2, 2, 0, 0}));
  EXPECT_EQ(deepseek.prediction_stage, 3);
  EXPECT_EQ(deepseek.prediction_layers, 1);
  EXPECT_EQ(parse_layout("Et|tm*2L").value().prediction_layers, 2);
  EXPECT_EQ(parse_layout("Et|tL").value().prediction_stage, -1);
  EXPECT_EQ(parse_layout("EttmL").value().prediction_stage, 0);  // one chunk holds all
}

TEST(PlanLayers, AreTakenFromListsAndLayouts) {
  EXPECT_EQ(plan(R"("pipeline_parallel": 2, "stage_layers": [5, 7])").stage_layers,
            (std::vector{5, 7}));
  EXPECT_EQ(plan(R"("pipeline_parallel": 4, "stage_layers": "E|(t)*6|(t)*6|L")").stage_layers,
            (std::vector{0, 6, 6, 0}));
}

// N: the smallest N >= p for which the last group is whole or holds p (m < p: m).
TEST(PlanGroups, OfInterleavedOrdersHaveNoSmallRest) {
  const auto group = [](int p, int m, const char* more = "") {
    return plan(R"("schedule": "interleaved_1f1b", "pipeline_parallel": )" + std::to_string(p) +
                R"(, "data_parallel": 1, "micro_batch": 1, "global_batch": )" + std::to_string(m) +
                more)
        .microbatch_group_size;
  };
  EXPECT_EQ(group(4, 8), 4);
  EXPECT_EQ(group(4, 9), 5);  // 9 mod 4 = 1 < 4; 9 mod 5 = 4
  EXPECT_EQ(group(4, 2), 2);
  EXPECT_EQ(group(2, 5), 3);  // 5 mod 2 = 1; 5 mod 3 = 2
  EXPECT_EQ(group(4, 8, R"(, "microbatch_group_size": 8)"), 8);
  EXPECT_EQ(plan(R"("pipeline_parallel": 4)").microbatch_group_size, 0);
}

TEST(PlanBatches, MicroBatchIsGivenOrChosenLater) {
  const Plan given = plan(R"("data_parallel": 4, "micro_batch": 3)");
  EXPECT_FALSE(given.micro_batch_auto);
  EXPECT_EQ(given.global_batch, 12);
  EXPECT_EQ(given.microbatches(), 1);
  const Plan open = plan(R"("data_parallel": 4, "micro_batch": "auto", "global_batch": 48)");
  EXPECT_TRUE(open.micro_batch_auto);
  EXPECT_EQ(micro_batch_candidates(open), (std::vector{1, 2, 3, 4, 6, 12}));
  const Plan chosen = choose_micro_batch(open, 3).value();
  EXPECT_FALSE(chosen.micro_batch_auto);
  EXPECT_EQ(chosen.microbatches(), 4);
}

TEST(PlanBatches, AChoiceIsCheckedLikeAGivenValue) {
  const Plan open = plan(R"("pipeline_parallel": 4, "data_parallel": 1, "schedule": "dualpipe",
                            "global_batch": 16)");
  EXPECT_TRUE(choose_micro_batch(open, 2));   // m = 8 = 2 p
  EXPECT_FALSE(choose_micro_batch(open, 4));  // m = 4
  const Plan interleaved = plan(R"("pipeline_parallel": 4, "data_parallel": 1, "virtual_stages": 2,
                                   "global_batch": 18)");
  EXPECT_EQ(choose_micro_batch(interleaved, 2).value().microbatch_group_size, 5);  // m = 9
}

// d = 4, c = 2: 8 replicas, which all share one copy's shards unless a divisor of 8 is said.
TEST(PlanZero, ShardsOverAPartOfTheReplicas) {
  const std::string eight = R"("context_parallel": 2, "zero_stage": 3)";
  EXPECT_EQ(plan(eight).shards(), 8);
  EXPECT_EQ(plan(eight + R"(, "shard_group": null)"), plan(eight));
  EXPECT_EQ(plan(eight + R"(, "shard_group": 8)"), plan(eight));
  EXPECT_EQ(plan(eight + R"(, "shard_group": 2)").shards(), 2);
  EXPECT_EQ(error_of(eight + R"(, "shard_group": 3)"),
            "x.json:1: plan.shard_group: 3 does not divide data x context parallel = 4 x 2 = 8");
  EXPECT_EQ(plan(R"("shard_group": 4)").shard_group, 0);  // nothing is sharded, and a note says so
  EXPECT_EQ(plan(eight + R"(, "secondary_shard_group": 2)").secondary_shard_group, 2);
  EXPECT_EQ(plan(R"("zero_stage": 2, "secondary_shard_group": 2)").secondary_shard_group, 0);
  EXPECT_EQ(error_of(eight + R"(, "secondary_shard_group": 3)"),
            "x.json:1: plan.secondary_shard_group: 3 does not divide data x context parallel = 4 x "
            "2 = 8");
  EXPECT_EQ(plan(eight + R"(, "quantized_gather": 8)").quantized_gather, 8);
  EXPECT_EQ(plan(R"("zero_stage": 1, "quantized_gather": 8)").quantized_gather, 16);
  EXPECT_EQ(error_of(eight + R"(, "quantized_gather": 12)"),
            "x.json:1: plan.quantized_gather: 12 is neither 16 nor 8");
  EXPECT_EQ(error_of(eight + R"(, "shard_group": 4, "secondary_shard_group": 2)"),
            "x.json:1: plan.secondary_shard_group: shards lie over 4 neighbours already "
            "(shard_group): one of the two");
}

// One row per spelling: parameters + gradients + optimizer, and the type of the products.
TEST(PlanPrecision, IsBytesPerParameterAndAType) {
  const struct {
    const char* text;
    std::int32_t parameters, gradients, optimizer;
    ComputeType compute;
  } rows[] = {
      {R"("precision": "fp32")", 4, 4, 8, ComputeType::Fp32},
      {R"("precision": "fp16")", 2, 2, 12, ComputeType::Fp16},
      {R"("precision": "bf16")", 2, 4, 12, ComputeType::Bf16},
      {R"("precision": "fp8")", 2, 4, 12, ComputeType::Fp8},
      {R"("precision": "bf16", "zero_stage": 3)", 4, 4, 8, ComputeType::Bf16},
      {R"("precision": "fp8", "zero_stage": 3)", 4, 4, 8, ComputeType::Fp8},
      // FSDP's shards are the master copy; Megatron's and DeepSpeed's lie beside one.
      {R"("zero_stage": 2, "runtime": "fsdp")", 4, 4, 8, ComputeType::Bf16},
      {R"("zero_stage": 1, "runtime": "fsdp")", 2, 4, 12, ComputeType::Bf16},
      {R"("zero_stage": 3, "runtime": "rehearse")", 4, 4, 8, ComputeType::Bf16},
      {R"("zero_stage": 3, "runtime": "megatron")", 2, 4, 12, ComputeType::Bf16},
      {R"("zero_stage": 3, "runtime": "megatron_deepspeed", "precision": "fp16")", 2, 2, 12,
       ComputeType::Fp16},
      {R"("precision": {"parameters": 2, "gradients": 2, "optimizer": 12})", 2, 2, 12,
       ComputeType::Bf16},
      {R"("precision": {"compute": "fp16"})", 2, 4, 12, ComputeType::Fp16},
      {R"("precision": {"parameters": 2, "gradients": 4, "optimizer": 12}, "zero_stage": 3)", 2, 4,
       12, ComputeType::Bf16}};
  for (const auto& row : rows) {
    const Precision precision = plan(row.text).precision;
    EXPECT_EQ(precision.parameters, row.parameters) << row.text;
    EXPECT_EQ(precision.gradients, row.gradients) << row.text;
    EXPECT_EQ(precision.optimizer, row.optimizer) << row.text;
    EXPECT_EQ(precision.compute, row.compute) << row.text;
  }
}

TEST(PlanAttention, SwitchAndKernelAgree) {
  EXPECT_EQ(plan(R"("flash_attention": false)").attention_kernel, AttentionKernel::Unfused);
  EXPECT_FALSE(plan(R"("attention_kernel": "unfused")").flash_attention);
  EXPECT_EQ(plan(R"("attention_kernel": "flash3")").attention_kernel, AttentionKernel::Flash3);
  EXPECT_NE(error_of(R"("flash_attention": false, "attention_kernel": "flash2")"), "");
}

TEST(PlanRuntime, IsTheKeysThenTheCommandsThenFsdpForZero3) {
  EXPECT_EQ(plan(R"("zero_stage": 3)").runtime.name, "fsdp");
  // A stage that is set over the file keeps the file's.
  EXPECT_EQ(read("", "", kTiny, {.overrides = {"plan.zero_stage=3"}}).plan.runtime.name,
            "megatron");
  EXPECT_EQ(
      read(R"("zero_stage": 3)", "", kTiny, {.overrides = {"plan.zero_stage=0"}}).plan.runtime.name,
      "fsdp");
  EXPECT_EQ(read(R"("zero_stage": 3)", "", kTiny, {.runtime = "rehearse"}).plan.runtime.name,
            "rehearse");
  EXPECT_EQ(read(R"("runtime": "megatron")", "", kTiny, {.runtime = "rehearse"}).plan.runtime.name,
            "megatron");
}

TEST(PlanTraits, APlansKeyOverridesItsProfile) {
  const Plan profile = plan(R"("runtime": "aa_scaling")");
  EXPECT_EQ(profile.runtime.cross_entropy, CrossEntropy::Gathered);
  const Plan p = plan(
      R"("runtime": "aa_scaling", "cross_entropy": "fused", "eager_kernels": ["norm"],
         "gradient_reduction": null)");
  RuntimeTraits expected = profile.runtime;
  expected.cross_entropy = CrossEntropy::Fused;
  expected.eager_kernels = {.norm = true};
  EXPECT_EQ(p.runtime, expected);
  EXPECT_EQ(plan(plan_json(p, 0).substr(1, plan_json(p, 0).size() - 2)), p);  // as it is printed
}

TEST(PlanTraits, DeterministicRunsHaveNeitherAFusedLossNorTheNewestAttention) {
  const Plan p = plan(R"("deterministic": true)");
  EXPECT_EQ(p.runtime.cross_entropy, CrossEntropy::Eager);
  EXPECT_EQ(p.attention_kernel, AttentionKernel::Flash2);
  const Plan asked =
      plan(R"("deterministic": true, "cross_entropy": "fused", "attention_kernel": "flash3")");
  EXPECT_EQ(asked.runtime.cross_entropy, CrossEntropy::Fused);
  EXPECT_EQ(asked.attention_kernel, AttentionKernel::Flash3);
}

TEST(PlanTraits, OurExecutorIsNotAskedForWhatItDoesNotDo) {
  EXPECT_NE(error_of(R"("runtime": "rehearse", "gated_mlp": "split")")
                .find("plan.gated_mlp: runtime rehearse has \"fused\" alone, not \"split\""),
            std::string::npos);
  EXPECT_NE(error_of(R"("runtime": "rehearse", "overlap": {"pipeline": false})"), "");
  // What is asked for and cannot be is refused, whichever overlap it is.
  for (const char* what : {"gradient_reduce", "parameter_gather", "tensor_parallel", "pipeline"}) {
    const std::string asks = std::string(R"("synchronous_launch": true, "overlap": {")") + what;
    EXPECT_NE(error_of(asks + R"(": true})").find("synchronous_launch"), std::string::npos) << what;
    EXPECT_EQ(error_of(asks + R"(": false})"), "") << what;
  }
  EXPECT_EQ(error_of(R"("runtime": "rehearse", "gated_mlp": "fused")"), "");
  // Where not the plan but the command names the runtime, a line says what is left out.
  for (const char* asked : {R"("gated_mlp": "split")", R"("overlap": {"pipeline": false})"}) {
    const auto warnings = read(asked, "", kTiny, {.runtime = "rehearse"}).warnings;
    ASSERT_EQ(warnings.size(), 1u) << asked;
    EXPECT_NE(warnings[0].find("is left out: runtime rehearse has"), std::string::npos);
  }
}

// Megatron's transfers run beside compute where it has virtual stages; of the others only these do.
TEST(PlanOverlap, OfTransfersIsTheProfiles) {
  const std::string four = R"("pipeline_parallel": 2, "runtime": )";
  EXPECT_FALSE(plan(four + R"("megatron")").overlap_pipeline);
  EXPECT_TRUE(plan(four + R"("megatron", "virtual_stages": 2)").overlap_pipeline);
  EXPECT_TRUE(plan(four + R"("megatron", "overlap": {"pipeline": true})").overlap_pipeline);
  EXPECT_FALSE(plan(four + R"("megatron_2021", "virtual_stages": 2)").overlap_pipeline);
  EXPECT_TRUE(plan(four + R"("torchtitan")").overlap_pipeline);
  EXPECT_TRUE(plan(four + R"("rehearse")").overlap_pipeline);
}

// V = 50257: a multiple of 128 t for Megatron, of t for FSDP and our own runtime.
TEST(PlanVocabulary, IsPaddedAsTheRuntimeDoes) {
  EXPECT_EQ(plan(R"("tensor_parallel": 8)").padded_vocabulary, 51200);
  EXPECT_EQ(plan(R"("tensor_parallel": 8, "zero_stage": 3)").padded_vocabulary, 50264);
  EXPECT_EQ(
      plan(R"("tensor_parallel": 8, "zero_stage": 3, "runtime": "megatron")").padded_vocabulary,
      51200);
  EXPECT_EQ(plan(R"("runtime": "rehearse")").padded_vocabulary, 50257);
  EXPECT_EQ(plan(R"("tensor_parallel": 2, "pad_vocabulary_to": 1000)").padded_vocabulary, 52000);
}

TEST(PlanOverlap, HasDefaultsMemberByMember) {
  const Plan some = plan(R"("overlap": {"gradient_reduce": true})");
  EXPECT_TRUE(some.overlap_gradient_reduce);
  EXPECT_FALSE(some.overlap_parameter_gather);
  EXPECT_EQ(some.overlap_tensor_parallel, TensorOverlap::Default);
  const Plan sharded =
      plan(R"("zero_stage": 3, "overlap": {"parameter_gather": false, "tensor_parallel": false})");
  EXPECT_TRUE(sharded.overlap_gradient_reduce);
  EXPECT_FALSE(sharded.overlap_parameter_gather);
  EXPECT_EQ(sharded.overlap_tensor_parallel, TensorOverlap::Off);
  EXPECT_EQ(plan(R"("overlap": {"tensor_parallel": true})").overlap_tensor_parallel,
            TensorOverlap::Chunked);
}

// max(40 M, 1 M x d) gradients of 4 bytes where they overlap; one bucket where they do not.
TEST(PlanBuckets, AreMegatrons) {
  EXPECT_EQ(plan(R"("overlap": {"gradient_reduce": true})").bucket_bytes, 160'000'000);
  EXPECT_EQ(plan(R"("overlap": {"gradient_reduce": true})", "64").bucket_bytes, 256'000'000);
  EXPECT_EQ(plan(R"("overlap": {"gradient_reduce": true}, "precision": "fp16")").bucket_bytes,
            80'000'000);
  EXPECT_EQ(plan(R"("bucket_bytes": 1000)").bucket_bytes, 1000);
  EXPECT_EQ(plan("").bucket_bytes, 0);
}

TEST(PlanRankOrder, MayLeaveOutAxesOfOneRank) {
  EXPECT_EQ(plan(R"("rank_order": "pp-dp")").rank_order,
            (std::vector{Axis::Pipeline, Axis::Data, Axis::Tensor, Axis::Context, Axis::Expert}));
  EXPECT_EQ(plan(R"("rank_order": "tp-cp-ep-pp-dp")").rank_order.back(), Axis::Data);
  EXPECT_NE(error_of(R"("rank_order": "")"), "");
}

TEST(PlanNull, MeansLeftOut) {
  const Plan nulls = plan(R"("tensor_parallel": null, "schedule": null, "stage_layers": null,
      "micro_batch": null, "precision": null, "overlap": null, "rank_order": null, "memory_limit": null)");
  EXPECT_EQ(nulls, plan(""));
}

// What plan_json writes is read back as the same plan.
TEST(PlanJson, ReadsBackAsTheSamePlan) {
  for (
      const char* text :
      {"", R"("micro_batch": 2)",
       R"("pipeline_parallel": 4, "virtual_stages": 3, "micro_batch": 1, "global_batch": 16)",
       R"("pipeline_parallel": 2, "schedule": "zb_v", "micro_batch": 1, "global_batch": 16)",
       R"("zero_stage": 3, "prefetch": 2)", R"("zero_stage": 3, "shard_group": 4)",
       R"("zero_stage": 3, "secondary_shard_group": 4)",
       R"("zero_stage": 3, "quantized_gather": 8)",
       R"("zero_stage": 3, "offload": ["optimizer", "activations"])",
       R"("zero_stage": 3, "offload": ["optimizer", "parameters"])",
       R"("precision": {"parameters": 2, "gradients": 2, "optimizer": 12})",
       R"("tensor_parallel": 2, "sequence_parallel": true, "overlap": {"tensor_parallel": true}, "rank_order": "dp-tp")",
       R"("pipeline_parallel": 2, "schedule": "seq_1f1b", "micro_batch": 1, "global_batch": 8, "dropout": 0.25)"}) {
    const Plan first = plan(text, "8");
    for (const int indent : {0, 2}) {
      const std::string json = plan_json(first, indent);
      const Plan second = plan(json.substr(1, json.size() - 2), "8");
      EXPECT_EQ(first, second) << json;
    }
  }
}

TEST(PlanGrid, MakesTOfItsRowsAndColumns) {
  const std::string rest = R"("micro_batch": 4, "runtime": "rehearse")";
  const Plan p = plan(R"("tensor_parallel_2d": [2, 4], )" + rest);
  EXPECT_EQ(p.tensor_parallel_2d, (TensorGrid{2, 4}));
  EXPECT_EQ(p.tensor_parallel, 8);
  EXPECT_EQ(p.expert_tensor_parallel, 8);
  EXPECT_EQ(p.tensor_parallel_2d.panels(), 4);
  EXPECT_EQ(plan(R"("tensor_parallel": 4, "tensor_parallel_2d": [2, 2], )" + rest).data_parallel,
            2);
  EXPECT_FALSE(plan(R"("tensor_parallel_2d": [1, 1], )" + rest).tensor_parallel_2d.any());
}

TEST(PlanGrid, SaysInOneLineWhatDoesNotGoTogether) {
  struct Row {
    std::string keys, says;
  };
  const std::string grid = R"("runtime": "rehearse", "tensor_parallel_2d": [2, 2])";
  const std::string batch = R"(, "micro_batch": 2)";
  const Row rows[] = {
      {R"("runtime": "rehearse", "tensor_parallel_2d": [2])", "must be [rows, columns]"},
      {R"("runtime": "rehearse", "tensor_parallel_2d": [2, 2, 2])", "must be [rows, columns]"},
      {grid + R"(, "tensor_parallel": 2)", "rows x columns = 2 x 2 = 4, but tensor_parallel is 2"},
      {grid, "rows 2 do not divide the samples of a replica 1"},
      {grid + R"(, "micro_batch": 1)", "rows 2 do not divide the samples of a micro-batch 1"},
      {R"("runtime": "rehearse", "tensor_parallel_2d": [2, 16], "micro_batch": 2)",
       "columns 16 do not divide num_attention_heads 8"},
      {R"("runtime": "rehearse", "tensor_parallel_2d": [16, 8], "micro_batch": 16)",
       "rows x columns 128 do not divide hidden_size 64"},
      {R"("tensor_parallel_2d": [2, 2], "micro_batch": 2, "runtime": "megatron")",
       "is of runtime rehearse"},
      {grid + batch + R"(, "sequence_parallel": true)", "sequence_parallel"},
      {grid + batch + R"(, "context_parallel": 2)", "context_parallel"},
      {grid + batch + R"(, "overlap": {"tensor_parallel": true})", "overlap.tensor_parallel"},
      {grid + batch + R"(, "loss_chunks": 2)", "loss_chunks"},
      {grid + batch + R"(, "dropout": 0.1)", "dropout"},
      {grid + batch + R"(, "schedule": "seq_1f1b", "pipeline_parallel": 2, "sequence_slices": 2)",
       "sequence_slices"},
  };
  for (const Row& row : rows) {
    const std::string gpus = row.keys.find("16") == std::string::npos ? "8" : "128";
    const std::string error = error_of(row.keys, gpus);
    EXPECT_NE(error.find("plan.tensor_parallel_2d"), std::string::npos) << row.keys << error;
    EXPECT_NE(error.find(row.says), std::string::npos) << row.keys << '\n' << error;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  }
  const std::string models[][2] = {
      {R"({"model_type": "mixtral", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 8, "intermediate_size": 128, "vocab_size": 512, "num_local_experts": 4, "num_experts_per_tok": 2, "max_position_embeddings": 1024})",
       "experts are not cut on a grid"},
      {R"({"model_type": "qwen3", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 8, "intermediate_size": 128, "vocab_size": 512, "max_position_embeddings": 1024})",
       "norms of queries and keys are not cut on a grid"}};
  for (const auto& [model, says] : models) {
    const Result<Scenario> read =
        parse_scenario(scenario_text(grid + batch, "8", model), "x.json", 1, {});
    ASSERT_FALSE(read);
    EXPECT_NE(read.error().message.find(says), std::string::npos) << read.error().message;
  }
}

}  // namespace
}  // namespace rehearse
