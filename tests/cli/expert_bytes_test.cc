// SPDX-License-Identifier: Apache-2.0
// What a run with experts dispatches is what was predicted: the report of a dry run, its trace and
// that of the run agree on the bytes of every rank, step and collective of the experts.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "schedules/trace/trace.h"

namespace rehearse {
namespace {

namespace fs = std::filesystem;
// Bytes by the collective's name, "dispatch; all_to_all ep".
using Sent = std::map<std::string, std::int64_t>;

// Two layers of eight experts on two ranks; two micro-batches.
constexpr const char* kScenario = R"({
  "name": "experts", "cluster": "clusters/dgx-a100-80gb.json", "gpus": 2,
  "model": {"model_type": "mixtral", "hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 256,
            "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48,
            "num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": null,
            "max_position_embeddings": 32},
  "plan": {"sequence_length": 32, "precision": "fp32", "data_parallel": 2, "expert_parallel": 2,
           "micro_batch": 1, "global_batch": 4, "expert_capacity": 2},
  "train": {"steps": 1}})";

class ExpertBytes : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / ("expert_bytes" + std::to_string(getpid()));
    fs::create_directories(folder_);
    std::ofstream(file("x.json")) << kScenario;
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string file(const std::string& name) const { return (folder_ / name).string(); }

  std::string run(const std::string& arguments) const {
    const std::string command = std::string(REHEARSE_COMMAND) + " run " + file("x.json") + ' ' +
                                arguments + " > " + file("out") + " 2>/dev/null";
    const int status = std::system(command.c_str());
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << arguments;
    std::ifstream in(file("out"), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  Trace trace_of(const std::string& arguments) const {
    run(arguments + " --trace " + file("trace"));
    Result<Trace> read = read_trace(file("trace"));
    EXPECT_TRUE(read) << (read ? "" : read.error().message);
    return std::move(read).value();
  }

  fs::path folder_;
};

// What the bodies of one row's ops send.
Sent sent_by(const Trace& trace, std::int32_t row) {
  Sent sent;
  const auto r = static_cast<std::size_t>(row);
  for (std::int64_t i = trace.row_begin[r]; i < trace.row_begin[r + 1]; ++i) {
    const auto c = static_cast<std::size_t>(trace.op_class[static_cast<std::size_t>(i)]);
    for (std::int32_t j = trace.run_begin[c]; j < trace.run_begin[c + 1]; ++j) {
      const TraceBodyRun& run = trace.runs[static_cast<std::size_t>(j)];
      const TraceBody& body = trace.bodies[static_cast<std::size_t>(run.body)];
      for (std::int32_t n = body.node_begin; n < body.node_end; ++n) {
        const TraceNode& node = trace.nodes[static_cast<std::size_t>(n)];
        if (node.collective != 0)
          sent[std::string(trace.text(node.name))] += run.count * node.bytes;
      }
    }
  }
  return sent;
}

TEST_F(ExpertBytes, OfDispatchAreEqualInReportTraceAndRun) {
  const Trace predicted = trace_of("--dry-run"), measured = trace_of("");
  const Sent planned = sent_by(predicted, 0);
  ASSERT_EQ(measured.num_rows(), 2);
  for (std::int32_t rank = 0; rank < 2; ++rank) EXPECT_EQ(sent_by(measured, rank), planned);
  // Every token's two copies of 32 floats, to and fro, forward and backward, in two layers of two
  // micro-batches of 32 tokens.
  std::int64_t copies = 0;
  for (const auto& [name, bytes] : planned) {
    if (name.find("all_to_all ep") != std::string::npos) copies += bytes;
  }
  EXPECT_EQ(copies, 32 * 2 * 32 * 4 * 4 * 2 * 2);
  const nlohmann::json report = nlohmann::json::parse(run("--dry-run --json"));
  for (const nlohmann::json& row : report["communication"]) {
    if (row["group"] != "ep" || row["op"] != "ALL_TO_ALL") continue;
    EXPECT_EQ(row["bytes"], copies);
  }
}

}  // namespace
}  // namespace rehearse
