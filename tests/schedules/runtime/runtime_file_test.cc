// SPDX-License-Identifier: Apache-2.0
// Profiles of runtimes: the shipped ones, and files of one's own upon them.
#include "schedules/runtime/runtime_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "schedules/scenario/scenario.h"
#include "tests/schedules/runtime/runtime_named.h"

namespace rehearse {
namespace {

namespace fs = std::filesystem;

class RuntimeFiles : public testing::Test {
 protected:
  RuntimeFiles()
      : folder_(fs::path(testing::TempDir()) / ("runtime_file_test." + std::to_string(getpid()))) {
    fs::create_directories(folder_);
  }
  ~RuntimeFiles() override { fs::remove_all(folder_); }

  // The members of a profile, without schema and braces. Gives the file's path.
  std::string file(const std::string& name, const std::string& members) {
    std::ofstream(folder_ / name) << "{\"schema\": \"runtime/1\"" << members << "\n}\n";
    return (folder_ / name).string();
  }
  std::string error_of(const std::string& members) {
    const Result<RuntimeTraits> read = read_runtime(file("wrong.json", members), "");
    return read ? "" : read.error().message;
  }

  fs::path folder_;
};

// A plan that a test makes by hand is Megatron's; the file says each trait, so that none is equal
// for being left out.
TEST_F(RuntimeFiles, MegatronsAreTheDefaults) {
  EXPECT_EQ(runtime_named("megatron"), RuntimeTraits{});
  const JsonValue document = *read_runtime_files("megatron", "").value().front().document;
  const KeyTable& traits = *find_key(runtime_key_table(), "traits")->members;
  EXPECT_GE(traits.keys.size(), 15u);
  for (const KeySpec& key : traits.keys) {
    EXPECT_NE(document.given("traits")->given(key.name), nullptr) << key.name;
  }
}

// What pretrain_gpt.py does without flags; a plan says what its launch script does.
TEST_F(RuntimeFiles, MegatronWithoutFlagsHasItsArgumentsDefaults) {
  const RuntimeTraits recipe = runtime_named("megatron"), plain = runtime_named("megatron_lm");
  EXPECT_EQ(plain.cross_entropy, CrossEntropy::Eager);
  EXPECT_FALSE(plain.grouped_experts);
  EXPECT_NE(recipe.cross_entropy, plain.cross_entropy);
  EXPECT_TRUE(recipe.grouped_experts);
}

// Of two values that a trait can have, at least one is not Megatron's.
TEST_F(RuntimeFiles, EveryTraitIsRead) {
  for (const KeySpec& key : find_key(runtime_key_table(), "traits")->members->keys) {
    std::vector<std::string> values{"true", "false"};
    if (key.types == kInteger) {
      const auto least = static_cast<int>(key.min);
      values = {std::to_string(least), std::to_string(least + 1)};
    }
    if (key.types == kArray) values = {R"(["norm"])", R"(["rope"])"};
    if (key.types == kString) values = {json_quoted(key.choices[0]), json_quoted(key.choices[1])};
    std::vector<RuntimeTraits> read;
    for (const std::string& value : values) {
      const std::string path =
          file("one.json", ", \"traits\": {" + json_quoted(key.name) + ": " + value + "}");
      read.push_back(read_runtime(path, "").value());
    }
    EXPECT_NE(read[0], read[1]) << key.name;
  }
}

// The stage from which units are gathered stands among the states of memory, and holds for the
// order of collectives too.
TEST_F(RuntimeFiles, OrderAndMemoryGatherFromTheSameStage) {
  EXPECT_EQ(runtime_named("megatron").gather_units_from, 3);
  EXPECT_EQ(runtime_named("fsdp").gather_units_from, 2);
  EXPECT_EQ(runtime_named("torchtitan").gather_units_from, 2);
  const std::string path = file("never.json", R"(, "base": "fsdp", "states": {
      "contiguous_gradients": true, "contiguous_parameters_from_zero_stage": 1,
      "gather_units_from_zero_stage": 9, "fp32_gradients_at_step": true,
      "moments_at_first_step": false, "default_dropout": 0})");
  EXPECT_EQ(read_runtime(path, "").value().gather_units_from, 9);
}

TEST_F(RuntimeFiles, SaysOverItsBaseAndKeepsTheRest) {
  file("base.json", R"(, "base": "fsdp", "title": "ours", "traits": {"pad_vocabulary_to": 64})");
  const std::string path =
      file("top.json",
           R"(, "base": "base.json", "traits": {"fp8_casts": {"value": "reused", "source": "s"}})");
  RuntimeTraits expected = runtime_named("fsdp");
  expected.name = path;
  expected.title = "ours";
  expected.pad_vocabulary_to = 64;
  expected.fp8_casts = Fp8Casts::Reused;
  EXPECT_EQ(read_runtime(path, "").value(), expected);
  EXPECT_EQ(read_runtime("top.json", (folder_ / "scenario.json").string()).value(), expected);
}

TEST_F(RuntimeFiles, IsNamedByAPlanBesideIt) {
  file("mine.json", R"(, "base": "megatron", "traits": {"pad_vocabulary_to": 7})");
  const std::string scenario = (folder_ / "s.json").string();
  std::ofstream(scenario) << R"({"model": "gpt2-124m", "cluster": "dgx-a100-80gb", "gpus": 1,
                                 "plan": {"runtime": "mine.json"}})";
  const Result<Scenario> read = read_scenario(scenario, {});
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read.value().plan.padded_vocabulary, 50260);  // 7180 x 7, the next above 50257
  // What a report prints is found again from anywhere.
  EXPECT_EQ(read_runtime(read.value().plan.runtime.name, "").value(), read.value().plan.runtime);
}

TEST_F(RuntimeFiles, ErrorsSayWhereAndWhat) {
  EXPECT_NE(
      error_of(",\n\"traits\": {\"fp8_cast\": \"reused\"}").find("wrong.json:2: traits.fp8_cast"),
      std::string::npos);
  EXPECT_NE(error_of(",\n\"traits\": {\"pad_vocabulary_to\": 0}").find("too small"),
            std::string::npos);
  EXPECT_NE(
      error_of(",\n\"base\": \"megatro\"")
          .find("wrong.json:2: base: \"megatro\" is no runtime, the nearest known one is megatron"),
      std::string::npos);
  EXPECT_NE(error_of(",\n\"base\": \"wrong.json\"").find("wrong.json:2: base: more than 8 files"),
            std::string::npos);
  EXPECT_NE(read_runtime("none.json", "").error().message.find("no such file"), std::string::npos);
}

}  // namespace
}  // namespace rehearse
