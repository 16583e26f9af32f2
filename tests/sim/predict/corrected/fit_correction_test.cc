// SPDX-License-Identifier: Apache-2.0
// A step that was measured on a cluster corrects it. The truth here is a cluster with rates of its
// own: what was measured there, the described cluster learns.
#include "sim/predict/corrected/fit_correction.h"

#include <gtest/gtest.h>

#include <cmath>

#include "sim/predict/predict.h"
#include "sim/predict/predicted_trace.h"

namespace rehearse::sim {
namespace {

Scenario scenario_of(const std::string& plan) {
  const std::string text =
      R"({"model": "llama3-8b", "cluster": "dgx-h100", "gpus": 16, "plan": {"micro_batch": 1,
          "global_batch": 32, "sequence_length": 4096, )" +
      plan + "}}";
  Result<Scenario> read = parse_scenario(text, "test", 1, {});
  EXPECT_TRUE(read) << read.error().message;
  return std::move(read).value();
}

const char* const kSeen = R"("tensor_parallel": 4, "pipeline_parallel": 2, "schedule": "1f1b",
                             "overlap": {"pipeline": true})";
const char* const kUnseen[] = {
    R"("tensor_parallel": 8)",
    R"("tensor_parallel": 2, "pipeline_parallel": 4, "schedule": "1f1b")",
    R"("tensor_parallel": 2, "pipeline_parallel": 2, "schedule": "interleaved_1f1b",
       "virtual_stages": 2)",
};

Cluster described(const Scenario& scenario) {
  Result<Cluster> cluster = read_cluster(scenario.cluster);
  EXPECT_TRUE(cluster);
  return std::move(cluster).value();
}

double step_of(const Scenario& scenario, const Cluster& cluster) {
  const Result<Prediction> made = predict(scenario, cluster);
  EXPECT_TRUE(made) << made.error().message;
  return made.value().step_s;
}

Correction of_truth() {
  return {.products = 1.25, .attention = 1.25, .memory_bound = 1.25, .collectives = 2.5};
}

// Seconds alone: the step itself comes out as measured, and so does every factor where everything
// is as much slower.
TEST(FitCorrection, SecondsGiveOneFactor) {
  const Scenario scenario = scenario_of(kSeen);
  const Cluster cluster = described(scenario);
  const double step = step_of(scenario, cluster);
  const Result<CorrectionFit> fit = fit_correction(scenario, cluster, {.step_s = 1.3 * step});
  ASSERT_TRUE(fit) << fit.error().message;
  EXPECT_NEAR(fit.value().after_s, 1.3 * step, 1.3e-4 * step);
  for (const CorrectionRow& row : kCorrections) {
    EXPECT_NEAR(fit.value().correction.*row.field, 1.3, 0.03) << row.name;
  }
}

// A trace of ours, ops as a whole: compute and collectives are told apart, and other layouts are
// predicted nearer than with the one factor.
TEST(FitCorrection, ATraceTellsComputeFromCollectives) {
  const Scenario scenario = scenario_of(kSeen);
  const Cluster cluster = described(scenario);
  Cluster truth = cluster;
  truth.correction = of_truth();
  const Result<Prediction> made = predict(scenario, truth);
  ASSERT_TRUE(made);
  Trace trace = predicted_trace(made.value(), scenario, truth);
  trace.label = TraceLabel::Measured;
  const Result<CorrectionFit> whole =
      fit_correction(scenario, cluster, {.step_s = made.value().step_s});
  const Result<CorrectionFit> parts =
      fit_correction(scenario, cluster, {.step_s = made.value().step_s, .work = step_work(trace)});
  ASSERT_TRUE(whole && parts);
  EXPECT_NEAR(parts.value().correction.products, 1.25, 0.03);
  EXPECT_NEAR(parts.value().correction.collectives, 2.5, 0.15);
  double worst = 0, worst_whole = 0;
  for (const char* plan : kUnseen) {
    const Scenario other = scenario_of(plan);
    const double is = step_of(other, truth);
    Cluster corrected = cluster;
    corrected.correction = parts.value().correction;
    worst = std::max(worst, std::abs(step_of(other, corrected) / is - 1));
    corrected.correction = whole.value().correction;
    worst_whole = std::max(worst_whole, std::abs(step_of(other, corrected) / is - 1));
  }
  EXPECT_LT(worst, 0.03);
  EXPECT_LT(worst, worst_whole);
}

TEST(FitCorrection, AStepOfSomethingElseIsRefused) {
  const Scenario scenario = scenario_of(kSeen);
  const Cluster cluster = described(scenario);
  const double step = step_of(scenario, cluster);
  EXPECT_FALSE(fit_correction(scenario, cluster, {.step_s = 1000 * step}));
  EXPECT_FALSE(fit_correction(scenario, cluster, {.step_s = 0.001 * step}));
}

// Names as profiles of PyTorch on A100 and H100 hold them.
TEST(StepWork, KernelsAreToldByTheirNames) {
  for (const char* name :
       {"ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn", "nvjet_hsh_256x128_64x4_TNT",
        "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu>",
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute"}) {
    EXPECT_EQ(work_of_kernel(name), KernelWork::Product) << name;
  }
  for (const char* name :
       {"void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4>>",
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128",
        "fmha_cutlassF_bf16_aligned_64x128_rf_sm80"}) {
    EXPECT_EQ(work_of_kernel(name), KernelWork::Attention) << name;
  }
  for (const char* name :
       {"void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add>",
        "triton_poi_fused_mul_silu_0", "void at::native::(anonymous)::multi_tensor_apply_kernel"}) {
    EXPECT_EQ(work_of_kernel(name), KernelWork::MemoryBound) << name;
  }
}

}  // namespace
}  // namespace rehearse::sim
