// SPDX-License-Identifier: Apache-2.0
// The whole CUDA backend without a GPU: its host code on a double's streams, its kernels' own
// source in the emulation (tests/cuda/emulation.h), products by the CPU. What it cannot show:
// cuBLASLt, nvcc's code, a device's memory model, speed.
#include <mutex>

#include "tests/cuda/on_stream.h"
#include "tests/cuda_double/prepared.h"
#include "tests/exec/step/experts_case.h"

namespace rehearse::exec {
namespace {

// Launches go to their streams; the emulation runs one at a time.
void emulate_on_streams() {
  emulation::on_stream = [](void* stream, std::function<void()> launch) {
    cuda_double::enqueue(static_cast<cudaStream_t>(stream), [launch = std::move(launch)] {
      static std::mutex one;
      const std::scoped_lock lock(one);
      launch();
    });
  };
}

Trained train_emulated(Family family, Keys keys, const std::string& precision,
                       std::int64_t num_steps) {
  emulate_on_streams();
  keys.push_back("precision=\"" + precision + "\"");
  Prepared p = prepare(family, keys);
  p.scenario.train.steps = num_steps;
  return train_prepared(p, cuda_options(p, 120));
}

// fp32: the CPU's losses and norms within 1e-5. bf16: parameters and activations of 8 bits of
// mantissa (2^-9 relative each) move a loss near ln 61 by less than 1 %, norms by less than 5 %.
void compare_with_cpu(Family family, Keys keys) {
  keys.insert(keys.begin(), "global_batch=2");  // the emulation takes its time
  const std::int64_t steps = 2;
  const Trained here = train_layout(family, keys);
  for (const std::string precision : {"fp32", "bf16"}) {
    const Trained there = train_emulated(family, keys, precision, steps);
    ASSERT_EQ(there.error, "") << precision;
    ASSERT_EQ(there.losses.size(), static_cast<std::size_t>(steps));
    const bool exact = precision == "fp32";
    for (std::size_t i = 0; i < there.losses.size(); ++i) {
      EXPECT_NEAR(there.losses[i], here.losses[i], (exact ? 1e-5 : 1e-2) * here.losses[i])
          << precision << ' ' << i;
      EXPECT_NEAR(there.norms[i], here.norms[i], (exact ? 1e-5 : 5e-2) * here.norms[i])
          << precision << ' ' << i;
    }
    EXPECT_NE(there.losses[0], there.losses[1]) << "nothing was learnt";
  }
}

TEST(Emulated, TrainsGpt2AsTheCpu) {
  compare_with_cpu(Family::Gpt2, {});
}
TEST(Emulated, TrainsLlamaAsTheCpu) {
  compare_with_cpu(Family::Llama, {});
}
TEST(Emulated, RecomputesLayersAsTheCpu) {
  compare_with_cpu(Family::Gpt2, {"recompute=full"});
}
TEST(Emulated, TrainsATensorParallelPipelineAsTheCpu) {
  compare_with_cpu(Family::Gpt2,
                   {"tensor_parallel=2", "sequence_parallel=true", "pipeline_parallel=2"});
}
TEST(Emulated, TrainsARingOfTwoAsTheCpu) {
  compare_with_cpu(Family::Llama, {"context_parallel=2"});
}
TEST(Emulated, TrainsSlicesOverARingAsTheCpu) {
  compare_with_cpu(Family::Gpt2, {"schedule=seq_zb_h1", "sequence_slices=2", "context_parallel=2",
                                  "micro_batch=2"});
}
TEST(Emulated, TrainsZero1AsTheCpu) {
  compare_with_cpu(Family::Llama, {"data_parallel=2", "zero_stage=1"});
}
TEST(Emulated, TrainsZero3AsTheCpu) {
  compare_with_cpu(Family::Gpt2, {"data_parallel=2", "zero_stage=3"});
}
TEST(Emulated, TrainsWithASecondCopyOfShardsAsTheCpu) {
  compare_with_cpu(Family::Gpt2, {"data_parallel=4", "global_batch=4", "zero_stage=3",
                                  "secondary_shard_group=2"});
}
TEST(Emulated, TrainsWithShardsOverAPartOfTheReplicasAsTheCpu) {
  compare_with_cpu(Family::Llama,
                   {"data_parallel=4", "global_batch=4", "zero_stage=3", "shard_group=2"});
}
TEST(Emulated, TrainsWithActivationsOnTheHostAsTheCpu) {
  compare_with_cpu(Family::Gpt2, {"offload=activations"});
}
TEST(Emulated, TrainsWithOptimizerStateOnTheHostAsTheCpu) {
  compare_with_cpu(Family::Llama, {"data_parallel=2", "zero_stage=1", "offload=optimizer"});
}

// In bf16 a router's choice whose gap is below the rounding may fall otherwise.
void compare_tiny_with_cpu(const std::string& model, std::vector<std::string> keys,
                           const Json& changed = Json::object()) {
  emulate_on_streams();
  keys.emplace_back("train.steps=2");
  const TinyRun here = train_tiny(model, keys, {.changed = changed});
  ASSERT_EQ(here.error, "");
  for (const ElementType type : {ElementType::Float32, ElementType::BFloat16}) {
    const bool exact = type == ElementType::Float32;
    std::vector<std::string> there_keys = keys;
    if (!exact) there_keys.emplace_back("precision=bf16");
    const TinyRun there = train_tiny(
        model, there_keys,
        {.changed = changed, .backend = [type] {
           return cuda::make_backend(
                      {.type = type,
                       .timeout_s = 550,
                       .label = [](OpId op) { return "op " + std::to_string(op.value); }})
               .value();
         }});
    ASSERT_EQ(there.error, "") << exact;
    ASSERT_EQ(there.losses.size(), 2U);
    for (std::size_t i = 0; i < there.losses.size(); ++i) {
      EXPECT_NEAR(there.losses[i], here.losses[i], (exact ? 1e-5 : 1e-2) * here.losses[i]) << i;
      EXPECT_NEAR(there.norms[i], here.norms[i], (exact ? 1e-5 : 5e-2) * here.norms[i]) << i;
      if (exact) {
        EXPECT_EQ(there.rows[i], here.rows[i]) << i;
      }
    }
  }
}

// 16 tokens of a rank need four times the mean rows of a pair.
TEST(Emulated, TrainsExpertsOfTwoRanksAsTheCpu) {
  compare_tiny_with_cpu("mixtral", {"micro_batch=2", "data_parallel=2", "expert_parallel=2",
                                    "expert_slots=true", "expert_capacity=4"});
}

// Heads that the tensor cores take in bf16 (keys of 16 + 8 columns, values of 40), in dense layers:
// whole and in parts.
TEST(Emulated, TrainsLatentAttentionAsTheCpu) {
  const Json latent{{"first_k_dense_replace", 3},
                    {"qk_nope_head_dim", 16},
                    {"qk_rope_head_dim", 8},
                    {"v_head_dim", 40}};
  compare_tiny_with_cpu("deepseek_v3", {"micro_batch=4"}, latent);
  compare_tiny_with_cpu("deepseek_v3", {"micro_batch=4", "context_parallel=2"}, latent);
}

TEST(Emulated, TrainsExpertsThatTokensVisitAsTheCpu) {
  compare_tiny_with_cpu("mixtral", {"micro_batch=2", "data_parallel=2", "expert_parallel=2",
                                    "expert_slots=true", "expert_dispatch=deduplicated"});
}

}  // namespace
}  // namespace rehearse::exec
