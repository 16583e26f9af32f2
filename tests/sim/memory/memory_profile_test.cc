// SPDX-License-Identifier: Apache-2.0
// What a file of a runtime says of its memory: over its base, by compute capability, and what is
// refused.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "schedules/scenario/scenario.h"
#include "sim/memory/memory.h"
#include "sim/predict/predict.h"

namespace rehearse::sim {
namespace {

MemoryProfile profile_of(const std::string& runtime) {
  return read_memory_profile(runtime).value();
}

// DeepSpeed's limit is read; who has none gathers whole units. What is no number of elements is
// refused with its key.
TEST(MemoryProfile, AProfileSaysHowManyElementsAreGathered) {
  EXPECT_EQ(profile_of("megatron_deepspeed").gathered_elements, 1'000'000'000);
  EXPECT_EQ(profile_of("fsdp").gathered_elements, 0);
  const std::string path = ::testing::TempDir() + "gathered_" + std::to_string(getpid()) + ".json";
  std::ofstream(path) << R"({"base": "fsdp", "states": {"contiguous_gradients": false,
      "contiguous_parameters_from_zero_stage": 9, "gather_units_from_zero_stage": 2,
      "gathered_elements": 0, "fp32_gradients_at_step": false, "moments_at_first_step": true,
      "default_dropout": 0}})";
  const Result<MemoryProfile> none = read_memory_profile(path);
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find("states.gathered_elements"), std::string::npos)
      << none.error().message;
  std::filesystem::remove(path);
}

// One flat buffer made on the device lies there beside the tensors that it is made of, and beside
// the gradients' buffer: 6 bytes a parameter before the first op. Made on the host it needs 4, and
// the peak is that of a step.
TEST(MemoryProfile, AFrameworkMayFlattenItsParametersOnTheHost) {
  EXPECT_FALSE(profile_of("megatron").flattened_on_host);
  EXPECT_TRUE(profile_of("aa_scaling").flattened_on_host);
  EXPECT_FALSE(profile_of("aa_scaling").contiguous_gradients);
  const auto peak = [](const std::string& on_host) {
    const std::string path = ::testing::TempDir() + "flat_" + std::to_string(getpid()) + ".json";
    std::ofstream(path) << R"({"base": "aa_scaling", "states": {"contiguous_gradients": true,
      "contiguous_parameters_from_zero_stage": 1, "gather_units_from_zero_stage": 3,
      "fp32_gradients_at_step": false, "moments_at_first_step": true, "default_dropout": 0,
      "flattened_on_host": )" + on_host +
                               "}}";
    const std::string text =
        R"({"model": "gpt2-124m", "cluster": "dgx-a100-80gb", "gpus": 64, "plan": {"zero_stage": 1,
        "micro_batch": 1, "global_batch": 64, "sequence_length": 64, "precision": {"parameters": 2,
        "gradients": 2, "optimizer": 12}, "runtime": ")" +
        path + R"("}})";
    const Scenario scenario = parse_scenario(text, "flat.json", 1, {}).value();
    const Cluster cluster = read_cluster(scenario.cluster).value();
    const Prediction p = predict(scenario, cluster, {.lifetimes = false}).value();
    std::filesystem::remove(path);
    return p.memory;
  };
  const MemoryReport twice = peak("false"), once = peak("true");
  EXPECT_TRUE(twice.at_building());
  EXPECT_NEAR(static_cast<double>(twice.peak_allocated), 6 * 124.8e6, 0.02 * 6 * 124.8e6);
  EXPECT_FALSE(once.at_building());
  EXPECT_EQ(once.peak_allocated, twice.ranks.front().peak_in_steps);
}

TEST(MemoryProfile, NamesWhatIsWrongInAProfile) {
  const Result<MemoryProfile> missing = read_memory_profile("tests/data/no_such_profile.json");
  EXPECT_FALSE(missing);
  const Result<MemoryProfile> wrong = read_memory_profile("scenarios/models/gpt2-124m.json");
  ASSERT_FALSE(wrong);
  EXPECT_NE(wrong.error().message.find("scenarios/models/gpt2-124m.json"), std::string::npos);
}

// A part that a file has is its own, the others are the base's; a value by compute capability is
// that of the last row that begins at the GPU's or below.
TEST(MemoryProfile, AProfileSaysOverItsBase) {
  const std::string path = ::testing::TempDir() + "runtime_" + std::to_string(getpid()) + ".json";
  const auto read = [&](const std::string& bytes) {
    std::ofstream(path) << R"({"base": "fsdp", "constants": {"workspaces": [{"bytes": 5}],
      "context_bytes": )"
                        << bytes << R"(, "communicator_bytes": 7, "transfer_buffers": 1,
      "stale_transfers_per_chunk": 0}})";
    return read_memory_profile(path);
  };
  const MemoryProfile base = profile_of("fsdp");
  const MemoryProfile own = read(R"([{"from_compute_capability": 0, "bytes": 3},
      {"from_compute_capability": 80, "bytes": 8}, {"from_compute_capability": 90, "bytes": 9}])")
                                .value();
  EXPECT_EQ(own.layer.backward.size(), base.layer.backward.size());
  EXPECT_EQ(own.moments_at_first_step, base.moments_at_first_step);
  EXPECT_EQ(own.communicator, 7);
  EXPECT_EQ(own.workspaces.at(0).bytes.of(120), 5);
  for (const auto& [capability, bytes] :
       {std::pair{0, 3}, {70, 3}, {80, 8}, {89, 8}, {90, 9}, {120, 9}}) {
    EXPECT_EQ(own.context.of(capability), bytes) << capability;
  }
  const Result<MemoryProfile> late = read(R"([{"from_compute_capability": 80, "bytes": 3}])");
  ASSERT_FALSE(late);
  EXPECT_NE(late.error().message.find("context_bytes: compute capabilities ascend from 0"),
            std::string::npos);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace rehearse::sim
