// SPDX-License-Identifier: Apache-2.0
// What `run --dry-run` says that a run will hold in memory, beside what the system counts of it:
// within 5 % for models of 200 MB and more, in a few layouts, and in every one of the matrix where
// REHEARSE_TEST_LONG=1. bench/memory_accuracy.py makes a table of the lines that begin with "row".
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/exec/step/layouts.h"

namespace rehearse::exec {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

// At least 50 million parameters, 200 MB in fp32, in the shapes of layout_case.h.
std::string large_model(Family family) {
  const std::string sizes = R"("num_hidden_layers": 8, "hidden_size": 704,
      "num_attention_heads": 8, "vocab_size": 4001, "max_position_embeddings": 16)";
  if (family == Llama || family == Qwen2 || family == LlamaOneHead) {
    const std::string heads = family == LlamaOneHead ? "1, \"attention_bias\": true" : "2";
    return std::string(R"({"model_type": ")") + (family == Qwen2 ? "qwen2" : "llama") +
           R"(", "intermediate_size": 2112, "num_key_value_heads": )" + heads + ", " + sizes + "}";
  }
  return R"({"model_type": "gpt2", "resid_pdrop": 0, "attn_pdrop": 0, "embd_pdrop": 0, )" + sizes +
         (family == Gpt2Untied ? R"(, "tie_word_embeddings": false})" : "}");
}

struct Case {
  std::string name;
  Family family = Gpt2;
  std::vector<std::string> plan;
  int processes = 1;
  std::string options = {};  // of the run alone
};
void PrintTo(const Case& one, std::ostream* out) {
  *out << one.name;
}

class ResidentMemory : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / ("resident" + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  // What a command prints, read as JSON. REHEARSE_BINARY: of another build than this test's.
  Json report(const std::string& arguments) const {
    const fs::path out = folder_ / "out", said = folder_ / "said";
    const char* other = std::getenv("REHEARSE_BINARY");
    const int status = std::system((std::string(other != nullptr ? other : REHEARSE_COMMAND) + ' ' +
                                    arguments + " --json >" + out.string() + " 2>" + said.string())
                                       .c_str());
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << arguments << '\n' << text(said);
    return Json::parse(text(out), nullptr, false);
  }
  static std::string text(const fs::path& path) {
    std::ifstream in(path);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  fs::path folder_;
};

TEST_P(ResidentMemory, IsWhatTheDryRunSays) {
  const Case& one = GetParam();
  int gpus = 1;
  std::string keys;
  for (const std::string& key : one.plan) {
    keys += " --set 'plan." + key + "'";
    const std::size_t equal = key.find('=');
    if (key.substr(0, equal).ends_with("_parallel") && std::isdigit(key[equal + 1]) != 0)
      gpus *= std::stoi(key.substr(equal + 1));
  }
  const fs::path scenario = folder_ / "scenario.json";
  std::ofstream(scenario)
      << R"({"name": "memory", "cluster": "clusters/dgx-a100-80gb.json", "gpus": )" << gpus
      << R"(, "model": )" << large_model(one.family) << R"(,
    "plan": {"micro_batch": 1, "global_batch": 8, "sequence_length": 16, "precision": "fp32"},
    "train": {"data": "synthetic", "steps": 1, "seed": 7}})";
  std::string run = "run " + scenario.string() + keys;
  if (one.processes > 1) run += " --processes " + std::to_string(one.processes);
  if (!one.options.empty()) run += ' ' + one.options + ' ' + (folder_ / "kept").string();
  const std::string traces = (folder_ / "a.trace").string() + ' ' + (folder_ / "b.trace").string();
  const auto with_trace = [&](const char* name) { return " --trace " + (folder_ / name).string(); };
  const Json planned = report(run + " --dry-run" + with_trace("a.trace")),
             measured = report(run + with_trace("b.trace"));
  ASSERT_TRUE(planned.is_object() && measured.is_object());
  EXPECT_GE(measured["parameters"].get<std::int64_t>() * 4, 200'000'000);
  const Json &memory = planned["memory"], &items = memory["outside_arenas"];
  std::int64_t sum = memory["arenas_bytes"];
  for (const auto& [name, bytes] : items.items()) {
    EXPECT_GE(bytes.get<std::int64_t>(), 0) << name;
    sum += bytes.get<std::int64_t>();
  }
  EXPECT_EQ(memory["planned_resident_bytes"], sum);
  EXPECT_EQ(measured["memory"]["arenas_bytes"], memory["arenas_bytes"]);
  EXPECT_EQ(measured["memory"]["processes"].size(),
            static_cast<std::size_t>(one.processes > 1 ? one.processes + 1 : 1));
  // Traces carry both; compare lays one beside the other.
  const Json compared = report("compare " + traces);
  EXPECT_EQ(compared["a"]["planned_resident_bytes"], sum);
  EXPECT_TRUE(compared["a"]["peak_measured_bytes"].is_null());
  EXPECT_EQ(compared["b"]["peak_measured_bytes"], measured["peak_measured_bytes"]);
  EXPECT_EQ(compared["resident_memory"]["bytes_a"], sum);
  EXPECT_EQ(compared["resident_memory"]["bytes_b"], measured["peak_measured_bytes"]);
  const auto peak = measured["peak_measured_bytes"].get<double>();
  const double error = peak / static_cast<double>(sum) - 1;
  std::printf("row %s ranks %d processes %d arenas %.1f outside %.1f measured %.1f error %+.2f\n",
              one.name.c_str(), gpus, one.processes, memory["arenas_bytes"].get<double>() * 1e-6,
              static_cast<double>(sum - memory["arenas_bytes"].get<std::int64_t>()) * 1e-6,
              peak * 1e-6, 100 * error);
  std::fflush(stdout);
  EXPECT_LE(std::abs(error), 0.05) << "planned " << sum << ", measured " << peak << '\n'
                                   << items.dump(1);
}

std::vector<Case> cases() {
  const char* value = std::getenv("REHEARSE_TEST_LONG");
  const bool all = value != nullptr && std::string_view(value) == "1";
  // Pipelines held a second copy of the weights, most of all the one over two ranks.
  const std::vector<std::string> few{"one_f_one_b_pp2", "tp4_sp", "zero3_dp4"};
  std::vector<Case> cases;
  for (const Cell& cell : kLayouts) {
    if (all || std::ranges::find(few, cell.name) != few.end())
      cases.push_back({cell.name, cell.family, cell.plan});
  }
  const std::vector<std::string> sharded{"data_parallel=2", "zero_stage=3"},
      replicas{"data_parallel=2"};
  const std::vector<std::string> pipeline{"pipeline_parallel=2", "schedule=1f1b"};
  cases.push_back({"two_processes_pp2", Gpt2, pipeline, 2});
  if (!all) return cases;
  cases.push_back({"one_rank", Gpt2, {}});
  cases.push_back({"two_processes_zero3", Gpt2, sharded, 2});
  cases.push_back({"two_processes_ddp2", Gpt2, replicas, 2});
  cases.push_back({"two_processes_tp4", Gpt2, {"tensor_parallel=4"}, 2});
  cases.push_back({"checkpoint_pp2", Gpt2, pipeline, 1, "--checkpoint"});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Layouts, ResidentMemory, testing::ValuesIn(cases()),
                         [](const auto& made) { return made.param.name; });

}  // namespace
}  // namespace rehearse::exec
