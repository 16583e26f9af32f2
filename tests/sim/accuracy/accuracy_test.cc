// SPDX-License-Identifier: Apache-2.0
// Predictions against published measurements, group by group: the errors that docs/accuracy.md
// reports may not grow beyond the floors that the project set itself.
#include <gtest/gtest.h>

#include "tests/sim/accuracy/predicted_cases.h"

namespace rehearse::sim {
namespace {

void expect_step_time(const std::string& file, const Select& select, std::int32_t cases,
                      double mean, double max = 1e9) {
  const FileScore result = score_group(file, select);
  ASSERT_TRUE(result.step_time.has_value());
  EXPECT_EQ(result.step_time->cases, cases);
  EXPECT_LE(result.step_time->mean_abs_error, mean);
  EXPECT_LE(result.step_time->max_abs_error, max);
  ::testing::Test::RecordProperty("mean", std::to_string(result.step_time->mean_abs_error));
  ::testing::Test::RecordProperty("bias", std::to_string(result.step_time->bias));
}

TEST(Accuracy, StepsOfKorthikantiTable5) {
  expect_step_time("korthikanti_seqsel", all, 9, 0.036, 0.08);
}

double mean_of_layers(const FileScore& result) {
  for (const auto& [key, stats] : result.other) {
    if (key != "forward_backward_s") continue;
    EXPECT_EQ(stats.cases, 5);
    return stats.mean_abs_error;
  }
  return 1;
}

// Kernels and collectives of a layer are within 2 %: the backward's all-reduce runs beside the
// weight gradients. Where it does not, as in Megatron-LM until August 2021, they are 7 % too slow.
TEST(Accuracy, LayersOfKorthikantiTable4) {
  EXPECT_LE(mean_of_layers(score_group("korthikanti_seqsel", all)), 0.02);
  EXPECT_GE(mean_of_layers(
                score_group("korthikanti_seqsel", all, {"plan.overlap.tensor_parallel=false"})),
            0.06);
}

TEST(Accuracy, TensorAndPipelineRowsOfMegatronSc21) {
  expect_step_time(
      "megatron_sc21", [](const std::string& id) { return !has(id, "zero3"); }, 16, 0.05);
}

TEST(Accuracy, A100RowsOfLlmFoundry) {
  expect_step_time(
      "llm_foundry", [](const std::string& id) { return has(id, "a100"); }, 61, 0.05);
}

TEST(Accuracy, H100RowsOfLlmFoundry) {
  expect_step_time(
      "llm_foundry", [](const std::string& id) { return has(id, "h100"); }, 52, 0.06);
}

TEST(Accuracy, OneNodeRowsOfVtrain) {
  expect_step_time("vtrain_single", all, 144, 0.10);
}

// 8B and 70B with FSDP and tensor parallelism; rowwise fp8 has scaling kernels that no plan names.
TEST(Accuracy, FsdpAndTensorParallelRowsOfTorchtitan) {
  expect_step_time(
      "torchtitan",
      [](const std::string& id) {
        return !has(id, "405B") && !has(id, "-cp") && !has(id, "rowwise");
      },
      18, 0.08);
}

TEST(Accuracy, ContextParallelAnd405BRowsOfTorchtitan) {
  expect_step_time(
      "torchtitan", [](const std::string& id) { return has(id, "405B") || has(id, "-cp"); }, 10,
      0.18);
}

// NVIDIA's own runs; Grok has experts.
// The largest is GPT-3 175B's on 512 GPUs with 12 chunks a rank: 8.05 % too fast, where it is 0.9 %
// above the source's own row of 1,024 GPUs; with 6 chunks a rank the same model is within 3.2 %. An
// assumed share of hidden collectives had it at 6.6 %, and the mean at 2.5 % where it is 2.1 %. The
// five rows and what is known of them: docs/accuracy.md, cases that miss.
TEST(Accuracy, Bf16RowsOfDgxcOnH100) {
  expect_step_time(
      "dgxc_benchmarking",
      [](const std::string& id) { return has(id, "h100") && has(id, "bf16") && !has(id, "grok"); },
      84, 0.025, 0.081);
}

TEST(Accuracy, Fp8RowsOfDgxcOnH100) {
  expect_step_time(
      "dgxc_benchmarking",
      [](const std::string& id) { return has(id, "h100") && has(id, "fp8") && !has(id, "grok"); },
      85, 0.06, 0.20);
}

TEST(Accuracy, RowsOfDgxcOnGb200) {
  expect_step_time(
      "dgxc_benchmarking",
      [](const std::string& id) { return has(id, "gb200") && !has(id, "grok1"); }, 18, 0.03);
}

// Models with experts. Their routing is learned where nothing is said, and learned routing costs 4
// to 20 % against the random one that is the plan's default (docs/experts.md).
TEST(Accuracy, RowsOfModelsWithExperts) {
  expect_step_time(
      "dgxc_benchmarking", [](const std::string& id) { return has(id, "grok1"); }, 44, 0.15);
  expect_step_time("experts/megatron_moe_release", all, 9, 0.11);
  expect_step_time("experts/moe_parallel_folding", all, 32, 0.12);
  expect_step_time("experts/deepseek_v3", all, 3, 0.10);
  expect_step_time(
      "nemo_automodel", [](const std::string& id) { return !has(id, "llama"); }, 6, 0.13);
}

// Models of layers that differ: Mamba-2 and compressed attention, latent experts, residual streams.
// docs/accuracy.md has every miss beyond 15 % with its reason.
TEST(Accuracy, RowsOfModelsOfLayersThatDiffer) {
  const auto h100 = [](const std::string& id) { return has(id, "H100"); };
  expect_step_time(
      "layers/hybrid_megatron_bridge", [&](const std::string& id) { return !h100(id); }, 26, 0.07,
      0.15);
  expect_step_time("layers/hybrid_megatron_bridge", all, 30, 0.10, 0.26);
  // As the recipe of the same layout in 16 bits computes them: experts and norms again.
  const FileScore again =
      score_group("layers/hybrid_megatron_bridge", h100, {R"(plan.recompute=["experts", "norm"])"});
  ASSERT_TRUE(again.step_time.has_value());
  EXPECT_LE(again.step_time->mean_abs_error, 0.08);
  expect_step_time("layers/hybrid_model_cards", all, 1, 0.08);
  expect_step_time("layers/deepseek_v4_megatron_bridge", all, 4, 0.06, 0.08);
}

// Allocated bytes of 32 tiny models: every mix of t, p, c, e and q, two GPUs, two kernels of
// attention.
TEST(Accuracy, PeaksOfTinyModelsWithExperts) {
  const FileScore result = score_group("experts/megatron_moe_tiny", all);
  ASSERT_TRUE(result.memory.has_value());
  EXPECT_EQ(result.memory->cases, 32);
  EXPECT_LE(result.memory->mean_abs_error, 0.025);
  EXPECT_LE(result.memory->max_abs_error, 0.082);
}

// Aleph-Alpha/scaling: its own profile. `fa2rms` is the best test of absolute time, since its
// kernels are known.
TEST(Accuracy, RowsOfAlephAlpha) {
  expect_step_time("aleph_alpha_13b", all, 165, 0.08);
  expect_step_time(
      "aleph_alpha_13b", [](const std::string& id) { return has(id, "fa2rms"); }, 51, 0.05);
}

TEST(Accuracy, RowsOfOtherFrameworks) {
  expect_step_time("megatron_bridge", all, 13, 0.08);
  expect_step_time("llmc", all, 4, 0.05);
  const auto hybrid = [](const std::string& id) { return has(id, "7b"); };
  expect_step_time(
      "fms_fsdp", [&](const std::string& id) { return !hybrid(id); }, 6, 0.05);
  expect_step_time("fms_fsdp", hybrid, 2, 0.09);  // shard_group 8
  expect_step_time(
      "nemo_automodel", [](const std::string& id) { return has(id, "llama"); }, 1, 0.05);
  expect_step_time("flagperf_paddle", all, 20, 0.10);
}

// Software of 2024 and later, on H100s and B200s.
TEST(Accuracy, RowsOfCurrentSoftware) {
  expect_step_time("mlperf_gpt3_175b", all, 22, 0.08);
  expect_step_time("megatron_core_h100_scaling", all, 9, 0.135);
  expect_step_time("olmo_core", all, 8, 0.105);
}

// What people pay for: 257 of the 422 rows ran out of memory.
TEST(Accuracy, FitDecisionsOfAlephAlpha) {
  const FileScore result = score_group("aleph_alpha_13b", all);
  EXPECT_LE(result.fit.false_fits, 34);
  EXPECT_LE(result.fit.false_fits + result.fit.tight_broke, 34);
  EXPECT_GT(result.fit.tight_broke, result.fit.false_fits / 3);  // tight means something
  EXPECT_EQ(result.fit.false_refusals, 0);
}

// Plans of other sources, which all ran: how many are refused (docs/memory.md says why; of
// megatron_golden the one with experts, whose activations are predicted half as large again).
TEST(Accuracy, FitDecisionsOfOtherFiles) {
  struct Bound {
    const char* file;
    std::int32_t refused;
  };
  for (const auto& [file, refused] :
       {Bound{"megatron_bridge", 0}, Bound{"megatron_sc21", 0}, Bound{"fms_fsdp", 2},
        Bound{"dgxc_benchmarking", 2}, Bound{"nemo_long_sequence", 0},
        Bound{"dlperf_megatron_v100", 0}, Bound{"flagperf_paddle", 0}, Bound{"llmc", 0},
        Bound{"megatron_golden", 1}, Bound{"torchtitan", 0}}) {
    const FileScore result = score_group(file, all);
    EXPECT_LE(result.fit.false_refusals, refused) << file;
    EXPECT_EQ(result.fit.false_fits, 0) << file;
    EXPECT_GT(result.fit.right, 0) << file;
  }
}

// Figure 1 prints bytes of the formulas; Figure 7 was read off a plot.
TEST(Accuracy, FormulasOfKorthikanti) {
  const FileScore result = score_group("korthikanti_seqsel", all);
  EXPECT_EQ(result.skipped, 0);
  for (const auto& [key, stats] : result.other) {
    if (key == "activation_bytes" || key == "parameter_gradient_optimizer_bytes") {
      EXPECT_EQ(stats.cases, 8) << key;
      EXPECT_LE(stats.max_abs_error, 0.001) << key;
    } else if (key == "activation_fraction_of_tp_baseline") {
      EXPECT_EQ(stats.cases, 20);
      EXPECT_LE(stats.max_abs_error, 0.015);
    }
  }
}

TEST(Accuracy, ModelStatesOfZero) {
  const FileScore result = score_group("zero_model_states", all);
  EXPECT_EQ(result.cases, 4);
  EXPECT_EQ(result.skipped, 0);
  EXPECT_EQ(result.missed_tolerances, 0);
}

// Faster and slower plans are told apart: ranks within a file, ties and noise included.
TEST(Accuracy, PlansAreRankedAsMeasured) {
  for (const char* file : {"korthikanti_seqsel", "llm_foundry", "vtrain_single", "torchtitan"}) {
    EXPECT_GE(score_group(file, all).step_time->spearman.value_or(0), 0.95) << file;
  }
}

TEST(Accuracy, BubblesOfTheZeroBubblePaper) {
  const FileScore result =
      score_group("zero_bubble_bubbles", [](const std::string& id) { return has(id, "1F1B"); });
  EXPECT_EQ(result.skipped, 0);
  EXPECT_EQ(result.missed_tolerances, 0);
}

}  // namespace
}  // namespace rehearse::sim
