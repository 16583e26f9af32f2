// SPDX-License-Identifier: Apache-2.0
// One prediction, said by many: the report, its trace, the trace as text, CSV and Chrome JSON, and
// the comparison of the trace with itself agree on bytes per group, bubbles by cause and peaks of
// memory, for every shipped scenario.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "schedules/trace/trace.h"

namespace rehearse {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
// (group, kind) to bytes.
using Carriage = std::map<std::pair<std::string, std::string>, std::int64_t>;

std::vector<std::string> shipped() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator("scenarios")) {
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem());
  }
  std::ranges::sort(names);
  return names;
}

class Consistency : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / ("consistency" + std::to_string(getpid()));
    fs::create_directories(folder_);
    const std::string said = run("simulate " + GetParam() + " --json --trace " + file("trace"));
    report_ = Json::parse(said);
    Result<Trace> read = read_trace(file("trace"));
    ASSERT_TRUE(read) << read.error().message;
    trace_ = std::move(read).value();
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string file(const std::string& name) const { return (folder_ / name).string(); }
  std::string run(const std::string& arguments) const {
    const std::string command =
        std::string(REHEARSE_COMMAND) + ' ' + arguments + " > " + file("out") + " 2>/dev/null";
    const int status = std::system(command.c_str());
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << arguments;
    std::ifstream in(file("out"), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  // The report's words for what an op of the trace does.
  static std::string kind_of(OpKind kind) {
    if (kind == OpKind::Send) return "SEND_RECV";
    if (kind == OpKind::Unshard) return "ALL_GATHER";
    return std::string(traits(kind).name);
  }
  // Groups of a file's own are one row of the report.
  static std::string group_of(std::string_view name) {
    return group_kind(name) == GroupKind::Other ? "own" : std::string(name);
  }
  // Whether bodies have collectives along this axis too, which the report counts with the ops.
  static bool inside_bodies(const std::string& group) {
    constexpr std::array kInside{"tp",      "tpr", "tpc", "cp",    "cp_heads",
                                 "cp_ring", "ep",  "etp", "ep_etp"};
    return std::ranges::find(kInside, group) != kInside.end();
  }

  // The row that carries most: of one (group, kind) all that carry any at all carry in
  // proportion to what they do in time, and so does the report choose.
  template <class Each>
  static Carriage most_of_rows(std::int32_t rows, Each each) {
    Carriage most;
    for (std::int32_t r = 0; r < rows; ++r) {
      Carriage mine;
      each(r, mine);
      for (const auto& [key, bytes] : mine) most[key] = std::max(most[key], bytes);
    }
    return most;
  }
  Carriage carried_in_trace() const {
    return most_of_rows(trace_.num_rows(), [&](std::int32_t r, Carriage& mine) {
      const auto row = static_cast<std::size_t>(r);
      for (std::int64_t i = trace_.row_begin[row]; i < trace_.row_begin[row + 1]; ++i) {
        const TraceClass& c = trace_.class_of({static_cast<std::int32_t>(i)});
        if (c.group >= 0 && c.kind != OpKind::Recv)
          mine[{group_of(trace_.text(c.group)), kind_of(c.kind)}] += c.bytes;
      }
    });
  }

  fs::path folder_;
  Json report_;
  Trace trace_;
};

TEST_P(Consistency, BytesPerGroup) {
  const Carriage in_trace = carried_in_trace();
  Carriage in_report;
  for (const Json& row : report_["communication"]) {
    in_report[{row["group"], row["op"]}] += row["bytes"].get<std::int64_t>();
  }
  for (const auto& [key, bytes] : in_trace) {
    const auto said = in_report.find(key);
    // A reduction of nothing takes no time and is no row of the report.
    ASSERT_TRUE(said != in_report.end() || bytes == 0) << key.first << ' ' << key.second;
    if (said == in_report.end()) continue;
    if (inside_bodies(key.first)) continue;  // which rank has most may be another
    EXPECT_EQ(bytes, said->second) << key.first << ' ' << key.second;
  }
  for (const auto& [key, bytes] : in_report) {
    if (inside_bodies(key.first)) continue;
    EXPECT_TRUE(in_trace.contains(key)) << key.first << ' ' << key.second;
  }
}

TEST_P(Consistency, BubblesByCause) {
  std::array<std::int64_t, kNumIdleCauses> idle{};
  for (std::size_t r = 0; r < trace_.rows.size(); ++r) {
    for (std::int64_t i = trace_.idle_begin[r]; i < trace_.idle_begin[r + 1]; ++i) {
      const IdleSpan& span = trace_.idle[static_cast<std::size_t>(i)];
      idle[static_cast<std::size_t>(span.cause)] +=
          (span.end - span.begin) * trace_.rows[r].multiplicity;
    }
  }
  // What bodies wait for their own collectives is no span of the trace but a number of each op.
  for (std::int32_t i = 0; i < trace_.num_ops(); ++i) {
    if (!trace_.communicating_ns.empty())
      idle[static_cast<std::size_t>(IdleCause::Communication)] +=
          trace_.communicating_ns[static_cast<std::size_t>(i)] *
          trace_.rows[trace_.row_of({i}).index()].multiplicity;
  }
  // Of a body with experts it is one number for three causes, which the report tells apart.
  std::int64_t all = 0, inside = 0;
  const bool experts = report_["bubble_causes_ns"].contains("imbalance");
  for (std::size_t c = 0; c < kNumIdleCauses; ++c) {
    const std::string name(kIdleCauseNames[c]);
    const std::int64_t said = report_["bubble_causes_ns"].value(name, std::int64_t{0});
    all += idle[c];
    if (experts && (name == "communication" || name == "contention" || name == "imbalance")) {
      inside += said - idle[c];
    } else {
      EXPECT_EQ(said, idle[c]) << name;
    }
  }
  EXPECT_EQ(inside, 0);
  EXPECT_EQ(report_["idle_ns"].get<std::int64_t>(), all);

  const double ratio = report_["bubble_ratio"];
  const Json comparison =
      Json::parse(run("compare " + file("trace") + ' ' + file("trace") + " --json"));
  EXPECT_NEAR(comparison["a"]["bubble_ratio"].get<double>(), ratio, 1e-12);
  EXPECT_EQ(comparison["differing_ops"], 0);
  EXPECT_DOUBLE_EQ(comparison["a"]["step_time_s"].get<double>(),
                   report_["step_time_s"].get<double>());

  char percent[64];
  std::snprintf(percent, sizeof percent, "bubbles: %.1f %%", 100 * ratio);
  const std::string text = run("render " + file("trace") + " --text");
  EXPECT_NE(text.find(percent), std::string::npos) << percent << '\n' << text;
  // Waits inside ops have a share of their own in a picture, whatever their cause.
  const auto printed = [&](const std::string& name) {
    const std::size_t at = text.find(", " + name + " ");
    return at == std::string::npos ? 0.0
                                   : std::strtod(text.c_str() + at + name.size() + 3, nullptr);
  };
  double shares = 0, pictured = printed("inside ops: waits for own collectives");
  for (std::size_t c = 0; c < kNumIdleCauses; ++c) {
    const std::string name(kIdleCauseNames[c]);
    const double share = 100 * ratio * static_cast<double>(idle[c]) / static_cast<double>(all);
    const double bubble = printed("bubble: " + name);
    if (name == "communication" || name == "contention" || name == "imbalance") {
      EXPECT_LE(bubble, share + 0.05 + 1e-9) << name << '\n' << text;
      shares += share;
      pictured += bubble;
    } else {
      EXPECT_NEAR(bubble, share, 0.05 + 1e-9) << name << '\n' << text;
    }
  }
  EXPECT_NEAR(pictured, shares, 4 * 0.05 + 1e-9) << text;
}

TEST_P(Consistency, PeaksOfMemory) {
  ASSERT_FALSE(trace_.memory_begin.empty());
  const std::size_t parts = trace_.memory_parts.size();
  std::int64_t most = 0;
  for (std::size_t s = 0; s < trace_.memory_time.size(); ++s) {
    std::int64_t alive = 0;
    for (std::size_t part = 0; part < parts; ++part) alive += trace_.memory_bytes[s * parts + part];
    most = std::max(most, alive);
  }
  std::int64_t in_steps = 0;  // a trace is of a step: it has not what building the model took
  for (const Json& rank : report_["memory"]["ranks"]) {
    const char* key =
        rank["at_building"].get<bool>() ? "peak_in_steps_bytes" : "peak_allocated_bytes";
    in_steps = std::max(in_steps, rank[key].get<std::int64_t>());
  }
  EXPECT_EQ(most, in_steps);
}

TEST_P(Consistency, Exports) {
  run("export " + file("trace") + " --to chrome " + file("chrome.json"));
  run("export " + file("trace") + " --to csv " + file("a.csv"));
  run("export " + file("chrome.json") + " --to csv " + file("b.csv"));
  EXPECT_EQ(run("render " + file("trace") + " --text"),
            run("render " + file("chrome.json") + " --text"));
  const auto lines_of = [&](const std::string& name) {
    std::ifstream in(file(name));
    std::vector<std::string> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
  };
  const std::vector<std::string> table = lines_of("a.csv");
  EXPECT_EQ(table, lines_of("b.csv"));
  ASSERT_EQ(table.size(), static_cast<std::size_t>(trace_.num_ops()) + 1);
  for (std::int32_t i = 0; i < trace_.num_ops(); ++i) {
    std::istringstream line(table[static_cast<std::size_t>(i) + 1]);
    std::vector<std::string> cells;
    for (std::string cell; std::getline(line, cell, ',');) cells.push_back(cell);
    ASSERT_EQ(cells.size(), 15U);
    const std::int64_t bytes = trace_.class_of({i}).bytes;
    EXPECT_EQ(cells[11], bytes > 0 ? std::to_string(bytes) : "")
        << table[static_cast<std::size_t>(i) + 1];
  }
}

std::string name_of(const testing::TestParamInfo<std::string>& scenario) {
  std::string name = scenario.param;
  std::ranges::replace(name, '-', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Scenarios, Consistency, testing::ValuesIn(shipped()), name_of);

}  // namespace
}  // namespace rehearse
