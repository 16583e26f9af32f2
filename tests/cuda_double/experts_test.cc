// SPDX-License-Identifier: Apache-2.0
// Layers with experts through the CUDA backend's host code on the double: no host reads a count,
// and what is trained is what the CPU trains.
#include "exec/cuda/make.h"
#include "tests/cuda_double/device.h"
#include "tests/exec/step/experts_case.h"
#include "tests/exec/step/forwarding_kernels.h"

namespace rehearse::exec {
namespace {

Backend on_the_double() {
  return cuda::make_backend({.type = ElementType::Float32,
                             .timeout_s = 60,
                             .label = [](OpId op) { return "op " + std::to_string(op.value); }})
      .value();
}

void expect_as_the_cpu(const std::string& model, const std::vector<std::string>& keys,
                       const Json& changed = Json::object()) {
  SCOPED_TRACE(model + testing::PrintToString(keys) + changed.dump());
  const TinyRun here = train_tiny(model, keys, {.changed = changed});
  const TinyRun there = train_tiny(model, keys, {.changed = changed, .backend = on_the_double});
  ASSERT_EQ(here.error, "");
  ASSERT_EQ(there.error, "");
  EXPECT_EQ(cuda_double::unordered(), "");
  EXPECT_EQ(there.rows, here.rows);
  ASSERT_EQ(there.losses.size(), here.losses.size());
  for (std::size_t i = 0; i < here.losses.size(); ++i) {
    EXPECT_NEAR(there.losses[i], here.losses[i], 1e-6 * here.losses[i]) << i;
    EXPECT_NEAR(there.norms[i], here.norms[i], 1e-5 * here.norms[i]) << i;
  }
}

void expect_experts_as_the_cpu(const std::string& model, std::vector<std::string> keys) {
  if (!keys.back().starts_with("expert_capacity")) keys.emplace_back("expert_capacity=4");
  expect_as_the_cpu(model, keys);
}

TEST(CudaExperts, TrainAsOnTheCpuInEveryDispatch) {
  cuda_double::shake(1, 50);
  for (const std::vector<std::string>& keys : std::vector<std::vector<std::string>>{
           {"micro_batch=2"},
           {"micro_batch=1", "recompute=full"},
           {"micro_batch=1", "pipeline_parallel=2", "schedule=zb_h1"},
           {"micro_batch=2", "tensor_parallel=2"},
           {"micro_batch=2", "data_parallel=2", "expert_parallel=2", "expert_slots=true"},
           {"micro_batch=1", "data_parallel=4", "expert_parallel=4", "zero_stage=3",
            "recompute=full", "expert_slots=true"},
           {"micro_batch=1", "data_parallel=4", "expert_parallel=4", "expert_dispatch=all_gather"},
           {"micro_batch=1", "tensor_parallel=2", "sequence_parallel=true", "data_parallel=2",
            "expert_parallel=2", "expert_tensor_parallel=2", "expert_slots=true"},
           {"micro_batch=2", "data_parallel=2", "expert_parallel=2", "expert_slots=true",
            "expert_dispatch=deduplicated"},
           {"micro_batch=1", "data_parallel=4", "expert_parallel=4", "zero_stage=3",
            "recompute=full", "expert_slots=true", "expert_dispatch=deduplicated"},
           {"micro_batch=1", "tensor_parallel=2", "sequence_parallel=true", "data_parallel=2",
            "expert_parallel=4", "expert_tensor_parallel=1", "expert_slots=true",
            "expert_dispatch=deduplicated"},
           {"micro_batch=1", "data_parallel=2", "expert_parallel=2", "pipeline_parallel=2",
            "schedule=zb_h1", "expert_slots=true", "expert_dispatch=deduplicated"},
           {"micro_batch=1", "data_parallel=4", "expert_parallel=2", "zero_stage=1",
            "expert_slots=true", "expert_dispatch=deduplicated",
            R"(expert_capacity={"drop": 1.0})"},
           {"micro_batch=1", "data_parallel=4", "expert_parallel=2", "expert_slots=true",
            R"(expert_capacity={"drop": 1.0})"},
           {"micro_batch=1", "context_parallel=2", "expert_parallel=2", "pipeline_parallel=2",
            "schedule=dualpipe", "overlap.expert_parallel=\"pair\"", "expert_slots=true"},
           {"micro_batch=2", "tensor_parallel=2", "sequence_parallel=true"}}) {
    expect_experts_as_the_cpu("mixtral", keys);
  }
  // Counts of an auxiliary loss: in a graph, and summed over ranks.
  for (const std::vector<std::string>& keys : std::vector<std::vector<std::string>>{
           {"micro_batch=2"},
           {"micro_batch=2", "tensor_parallel=2", "sequence_parallel=true", "context_parallel=2"},
           {"micro_batch=2", "pipeline_parallel=2", "schedule=seq_1f1b", "sequence_slices=2"}}) {
    std::vector<std::string> all = keys;
    all.emplace_back("train.router_auxiliary_loss=0.5");
    expect_experts_as_the_cpu("mixtral", all);
  }
  expect_experts_as_the_cpu("qwen3_moe", {"micro_batch=2", "data_parallel=2", "expert_parallel=2",
                                          "zero_stage=1", "expert_slots=true"});
}

// Experts that are cut and not dealt: their ranks gather rows, whose counts lie on the device. Work
// is late, so that a host that reads them meets what fresh memory holds.
TEST(CudaExperts, CutExpertsTrainAsOnTheCpu) {
  cuda_double::shake(1, 800);
  for (const char* capacity : {"expert_capacity=4", R"(expert_capacity={"drop": 1.0})"}) {
    for (const std::vector<std::string>& keys : std::vector<std::vector<std::string>>{
             {"micro_batch=2", "tensor_parallel=2", "sequence_parallel=true", "data_parallel=2",
              "zero_stage=2"},
             {"micro_batch=1", "data_parallel=2", "expert_tensor_parallel=2", "zero_stage=2"}}) {
      std::vector<std::string> all = keys;
      all.emplace_back(capacity);
      expect_experts_as_the_cpu("mixtral", all);
    }
  }
}

// Latent attention, with experts behind a dense layer and in dense layers alone: whole, in parts,
// its heads over ranks, recomputed. 16 tokens of a rank are far from balanced.
TEST(CudaExperts, LatentAttentionTrainsAsOnTheCpu) {
  cuda_double::shake(1, 50);
  const Json dense{{"first_k_dense_replace", 3}};
  const Json version2{{"model_type", "deepseek_v2"}, {"topk_method", "greedy"},
                      {"norm_topk_prob", false},     {"routed_scaling_factor", 1.0},
                      {"q_lora_rank", nullptr},      {"v_head_dim", 16}};
  for (const std::vector<std::string>& keys : std::vector<std::vector<std::string>>{
           {"micro_batch=2"},
           {"micro_batch=2", "recompute=full"},
           {"micro_batch=1", "pipeline_parallel=3", "schedule=zb_h1"},
           {"micro_batch=2", "tensor_parallel=2", "sequence_parallel=true"},
           {"micro_batch=2", "context_parallel=2"},
           {"micro_batch=2", "schedule=seq_1f1b", "sequence_slices=2"}}) {
    expect_as_the_cpu("deepseek_v3", keys, dense);
    std::vector<std::string> all = keys;
    all.emplace_back("expert_capacity=16");
    expect_as_the_cpu("deepseek_v3", all);
    expect_as_the_cpu("deepseek_v3", all, version2);
  }
  expect_as_the_cpu("deepseek_v3", {"micro_batch=1", "data_parallel=4", "expert_parallel=2",
                                    "zero_stage=3", "expert_slots=true", "expert_capacity=16"});
}

// An op of experts that meets no other rank is one graph, from the third step on.
TEST(CudaExperts, AnOpWithoutAMeetingIsOneGraph) {
  cuda_double::shake(1, 0);
  const cuda_double::GraphCounts before = cuda_double::graphs();
  const TinyRun run = train_tiny("mixtral", {"micro_batch=2"}, {.backend = on_the_double});
  ASSERT_EQ(run.error, "");
  const cuda_double::GraphCounts after = cuda_double::graphs();
  // Two micro-batches, forward and backward, of one rank; eight steps, all but the first.
  EXPECT_EQ(after.captured - before.captured, 4);
  EXPECT_EQ(after.launched - before.launched, 7 * 4);
}

TEST(CudaExperts, TooFewRowsAreSaidAtTheEndOfTheStep) {
  for (const auto& [keys, words] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"expert_slots=true"}, "rows for the experts of one rank, slots of 4: "},
           {{"expert_slots=true", "expert_dispatch=deduplicated"},
            "tokens for one rank, slots of 4: "},
           {{"expert_dispatch=all_gather"}, "rows for the experts of one rank, room for 16: "}}) {
    std::vector<std::string> all{"micro_batch=1", "data_parallel=4", "expert_parallel=4",
                                 "expert_capacity=0.5"};
    all.insert(all.end(), keys.begin(), keys.end());
    const TinyRun run = train_tiny("mixtral", all, {.backend = on_the_double});
    EXPECT_TRUE(run.error.starts_with("rank ")) << run.error;
    EXPECT_NE(run.error.find(", layer "), std::string::npos) << run.error;
    EXPECT_NE(run.error.find(words), std::string::npos) << run.error;
    EXPECT_NE(run.error.find("plan.expert_capacity "), std::string::npos) << run.error;
    EXPECT_TRUE(run.losses.empty());
  }
}

// One layer, one step, one micro-batch: the factor holds what all ranks have seen, not the first.
TEST(CudaExperts, TheFactorThatIsNamedDoes) {
  for (const char* dispatch : {"all_to_all", "deduplicated"}) {
    SCOPED_TRACE(dispatch);
    std::vector<std::string> keys{"micro_batch=1",      "data_parallel=4",
                                  "expert_parallel=4",  "expert_slots=true",
                                  "train.steps=1",      std::string("expert_dispatch=") + dispatch,
                                  "expert_capacity=0.3"};
    const TinyOptions how{.changed = {{"num_hidden_layers", 1}}, .backend = on_the_double};
    const std::string said = train_tiny("mixtral", keys, how).error;
    constexpr std::string_view kKey = "plan.expert_capacity ";
    const std::size_t at = said.find(kKey);
    ASSERT_NE(at, std::string::npos) << said;
    keys.back() = "expert_capacity=" + std::to_string(std::stod(said.substr(at + kKey.size())));
    EXPECT_EQ(train_tiny("mixtral", keys, how).error, "") << said;
  }
}

// Whether there is room for all of them, which go to the same experts, or not.
TEST(CudaExperts, ScoresThatAreNoNumbersAreSaidAsSuch) {
  for (const char* capacity : {"expert_capacity=1.2", "expert_capacity=8"}) {
    for (const char* dispatch : {"expert_dispatch=all_to_all", "expert_dispatch=deduplicated"}) {
      const TinyRun run = train_tiny("mixtral",
                                     {"micro_batch=1", "data_parallel=4", "expert_parallel=4",
                                      capacity, "expert_slots=true", dispatch},
                                     {.backend = [] { return without_numbers(on_the_double()); }});
      EXPECT_EQ(run.error,
                "diverged at step 1: rank 0, layer 0: the router's scores are not numbers");
      EXPECT_TRUE(run.diverged);
    }
  }
}

TEST(CudaExperts, CountsThatTheHostWouldReadAreRefused) {
  for (const char* dispatch : {"expert_dispatch=all_to_all", "expert_dispatch=deduplicated"}) {
    const TinyRun run =
        train_tiny("mixtral", {"micro_batch=2", "data_parallel=2", "expert_parallel=2", dispatch},
                   {.backend = on_the_double});
    EXPECT_EQ(run.error.find("plan.expert_slots: must be true"), 0U) << run.error;
  }
}

}  // namespace
}  // namespace rehearse::exec
