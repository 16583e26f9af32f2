// SPDX-License-Identifier: Apache-2.0
// Broken files, and what each must be told: expected.txt has one line per file, "FILE: ..." as the
// command prints it after "rehearse: ". Files in models/ and clusters/ are named by base.json
// through --set model=FILE and --cluster FILE. UPDATE_GOLDEN=1 rewrites; the difference is
// reviewed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "schedules/base/json_reader.h"
#include "schedules/scenario/scenario.h"
#include "sim/cluster/cluster.h"

namespace rehearse {
namespace {

const std::string kFolder = "tests/error/";

std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder + folder)) {
    paths.push_back(kFolder + folder + "/" + entry.path().filename().string());
  }
  std::ranges::sort(paths);
  return paths;
}

// What `rehearse simulate` reads before it computes anything.
std::string error_of(const std::string& scenario, const ScenarioOptions& options) {
  const Result<Scenario> read = read_scenario(scenario, options);
  if (!read) return read.error().message;
  const Result<sim::Cluster> cluster = sim::read_cluster(read.value().cluster);
  return cluster ? "no error" : cluster.error().message;
}

std::vector<std::string> all_errors() {
  std::vector<std::string> errors;
  for (const std::string& path : files_in("scenarios")) errors.push_back(error_of(path, {}));
  for (const std::string& path : files_in("models")) {
    errors.push_back(
        error_of(kFolder + "base.json",
                 {.overrides = {"model=" + std::filesystem::absolute(path).string()}}));
  }
  for (const std::string& path : files_in("clusters")) {
    errors.push_back(error_of(kFolder + "base.json", {.cluster = path}));
  }
  const std::string here = std::filesystem::current_path().string() + "/";
  for (std::string& error : errors) {  // models are named by absolute paths
    if (error.starts_with(here)) error.erase(0, here.size());
  }
  return errors;
}

TEST(BrokenFile, IsAnsweredWithItsOneLine) {
  const std::vector<std::string> errors = all_errors();
  if (std::getenv("UPDATE_GOLDEN") != nullptr) {
    std::ofstream out(kFolder + "expected.txt");
    for (const std::string& error : errors) out << error << '\n';
  }
  std::ifstream in(kFolder + "expected.txt");
  std::vector<std::string> expected;
  for (std::string line; std::getline(in, line);) expected.push_back(line);
  EXPECT_GE(expected.size(), 40u);
  EXPECT_EQ(errors, expected);
}

TEST(BrokenFile, IsAnsweredWithoutTheWordsOfALibrary) {
  for (const std::string& error : all_errors()) {
    EXPECT_EQ(error.find("exception"), std::string::npos) << error;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
    EXPECT_TRUE(error.starts_with(kFolder)) << error;
  }
}

TEST(BrokenFile, BaseItselfIsSound) {
  EXPECT_EQ(error_of(kFolder + "base.json", {}), "no error");
}

std::string error_with(std::vector<std::string> overrides) {
  return error_of(kFolder + "base.json", {.overrides = std::move(overrides)});
}

TEST(BrokenOverride, IsAnsweredWithoutALine) {
  const std::string file = kFolder + "base.json: ";
  EXPECT_EQ(error_with({"plan.tensor_parallel=3"}),
            file + "plan.tensor_parallel: 3 does not divide num_attention_heads 4");
  EXPECT_EQ(error_with({"plan.tensr_parallel=2"}),
            file + "plan.tensr_parallel: unknown key, the nearest known one is tensor_parallel");
  EXPECT_EQ(error_with({"plan.overlap.gradient_reduce=maybe"}),
            file + "plan.overlap.gradient_reduce: must be true or false, not a string");
  EXPECT_EQ(error_with({"micro_batch"}), file + "--set \"micro_batch\": must be KEY=VALUE");
  EXPECT_EQ(error_with({"gpus=3"}),  // what contradicts it stands on line 4
            "tests/error/base.json:4: plan.data_parallel: tensor x pipeline x context x data "
            "parallel = 1 x 2 x 1 x 2 = 4, but there are 3 gpus");
  EXPECT_EQ(error_with({"plan.micro_batch.size=1"}),
            file + "plan.micro_batch.size: --set goes into a value that is not an object");
}

// Every prefix of a sound file, and every file with one byte changed, ends in a value or an error.
TEST(BrokenFile, CutOrChangedAnywhereIsReadToTheEnd) {
  std::ifstream in(kFolder + "base.json");
  std::stringstream buffer;
  buffer << in.rdbuf();
  const std::string text = buffer.str();
  int errors = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    errors += parse_scenario(text.substr(0, i), "x.json", 1, {}) ? 0 : 1;
    for (const char c : {'\0', '"', '{', '9', '-', ',', '\xff'}) {
      std::string changed = text;
      changed[i] = c;
      errors += parse_scenario(changed, "x.json", 1, {}) ? 0 : 1;
    }
  }
  EXPECT_GT(errors, static_cast<int>(text.size()));
}

// All values of a document, in order.
void collect(JsonValue& value, std::vector<JsonValue*>& to) {
  to.push_back(&value);
  for (JsonValue& item : value.items) collect(item, to);
  for (JsonMember& member : value.members) collect(member.value, to);
}

// Any value of a sound document replaced by a wrong, odd or extreme one: a result or an error,
// never a crash, and an error is one line. (xorshift64, fixed seed: the same values on each run.)
TEST(BrokenFile, WithAnyValueReplacedIsReadToTheEnd) {
  const std::vector<std::string> odd{
      "0",        "-1",      "1",    "3",    "1e18",    "1e300",
      "0.5",      "null",    "true", "[]",   "[1,2]",   "{}",
      "\"\"",     "\"x\"",   "7",    "4096", "1048576", "9223372036854775807",
      "\"auto\"", "\"1f1b\""};
  const Result<JsonValue> scenario = read_json("scenarios/gpt3-175b-1024.json");
  const Result<JsonValue> model = read_json("scenarios/models/mixtral-8x7b.json");
  const Result<JsonValue> cluster = read_json("scenarios/clusters/two-data-centres-h100.json");
  ASSERT_TRUE(scenario && model && cluster);
  std::uint64_t state = 88172645463325252ULL;
  const auto below = [&](std::size_t n) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return static_cast<std::size_t>(state % n);
  };
  for (int i = 0; i < 3000; ++i) {
    JsonValue root = scenario.value();
    for (JsonMember& member : root.members) {
      if (member.key == "model" && i % 2 == 0) member.value = model.value();
      if (member.key == "cluster" && i % 3 == 0) member.value = cluster.value();
    }
    for (std::size_t edits = 1 + below(3); edits > 0; --edits) {
      std::vector<JsonValue*> values;
      collect(root, values);
      *values[below(values.size())] = parse_json(odd[below(odd.size())], "").value();
    }
    const Result<Scenario> read = parse_scenario(to_json_text(root), "x.json", 1, {});
    if (!read) {
      EXPECT_EQ(read.error().message.find('\n'), std::string::npos) << read.error().message;
      continue;
    }
    EXPECT_EQ(read.value().gpus, read.value().plan.gpus());
    const Result<sim::Cluster> described = sim::read_cluster(read.value().cluster);
    EXPECT_TRUE(!described || described.value().capacity().value >= 0);
  }
}

}  // namespace
}  // namespace rehearse
