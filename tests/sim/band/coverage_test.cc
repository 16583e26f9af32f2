// SPDX-License-Identifier: Apache-2.0
// The shipped band holds what it promises: nine in ten measured steps lie between low and high,
// each source judged by the others alone; and it is no wider than it needs to be.
#include "sim/band/coverage.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "sim/accuracy/validation.h"

namespace rehearse::sim {
namespace {

const ErrorTable& shipped() {
  static const ErrorTable table = [] {
    Result<ErrorTable> read = shipped_error_table();
    EXPECT_TRUE(read) << (read ? "" : read.error().message);
    return read ? std::move(read).value() : ErrorTable{};
  }();
  return table;
}

// Too narrow: fewer than 85 % of a source's steps lie within, in the mean, or fewer than 60 % of
// one's. Too wide: nearly all do (97 %), or half of the width is more than 18 % in the median (15 %
// is the aim, missed by 2.2 points).
TEST(Coverage, OfSourcesThatWereLeftOut) {
  const std::vector<SourceCoverage> sources = coverage(shipped());
  const MeanCoverage mean = mean_coverage(sources, kFewestSteps);
  EXPECT_GE(mean.sources, 10);
  EXPECT_GE(mean.covered, 0.85);
  EXPECT_LE(mean.covered, 0.97);
  EXPECT_GE(mean.least, 0.60);
  EXPECT_LE(mean.half_width, 0.18);
  for (const SourceCoverage& of : sources) {
    ::testing::Test::RecordProperty(of.source, std::to_string(of.covered()));
  }
}

// The test above can fail: half the width covers too little, twice the width is too much.
TEST(Coverage, ANarrowerOrWiderBandIsFound) {
  ErrorTable narrow = shipped();
  narrow.rule.lower = 0.25;
  narrow.rule.upper = 0.75;
  EXPECT_LT(mean_coverage(coverage(narrow), kFewestSteps).covered, 0.85);
  ErrorTable wide = shipped();
  wide.unseen *= 3;
  wide.rule.lower = 0.01;
  wide.rule.upper = 0.99;
  const MeanCoverage mean = mean_coverage(coverage(wide), kFewestSteps);
  EXPECT_TRUE(mean.covered > 0.97 || mean.half_width > 0.18);
}

// The table's rows are this program's errors: a change of predictions asks for bench/errors.py.
TEST(Coverage, TheTableIsOfThisProgram) {
  for (const char* name : {"dlperf_megatron_v100", "flagperf_paddle", "llmc", "megatron_bridge"}) {
    Result<ValidationFile> read =
        read_validation("tests/data/validation/" + std::string(name) + ".json", {});
    ASSERT_TRUE(read);
    ValidationFile file = std::move(read).value();
    std::vector<double> errors, listed;
    for (ValidationCase& entry : file.cases) {
      ASSERT_TRUE(predict_case(entry, file.path));
      if (!entry.features) continue;
      for (const Figure& figure : entry.figures) {
        if (figure.key != "step_time_s" || !figure.measured || !figure.predicted) continue;
        errors.push_back(std::log(*figure.measured / *figure.predicted));
      }
    }
    for (const MeasuredError& row : shipped().rows) {
      if (shipped().sources[static_cast<std::size_t>(row.source)] == name) {
        listed.push_back(row.log_error);
      }
    }
    ASSERT_EQ(errors.size(), listed.size()) << name;
    for (std::size_t i = 0; i < errors.size(); ++i) {
      EXPECT_NEAR(errors[i], listed[i], 0.001) << name << " step " << i << ": run bench/errors.py";
    }
  }
}

TEST(ErrorTable, SaysWhatIsWrongWithAFile) {
  const std::string name =
      (std::filesystem::path(testing::TempDir()) / "coverage_test_errors").string();
  std::ofstream(name + ".json") << R"({"schema": "errors/1",
 "rule": {"difference": 0.2, "network_scale": 0.1, "memory_scale": 0.3, "lower": 0.05, "upper": 0.95, "few": 2},
 "unseen": 0.1, "left_out": [], "pair_equal": 0.02, "pair_ordered": 0.05})";
  const std::string row = "a,hopper 90,fp8,megatron,flash3,tp pp,ib,64,0.1,0.8,1,2,-0.02\n";
  for (const std::string& wrong : {std::string("a,hopper 90,fp8\n"), "b," + row,
                                   std::string("a,h,f,m,f,,i,64,0.1,0.8,0,0,nan\n")}) {
    std::ofstream(name + ".csv") << "source,...\n" << row << wrong;
    const Result<ErrorTable> read = read_error_table(name + ".json");
    ASSERT_FALSE(read) << wrong;
    EXPECT_EQ(read.error().message, name + ".csv:3: a row has seven texts and six numbers");
  }
  std::ofstream(name + ".csv") << "source,...\n" << row << row;
  const ErrorTable table = read_error_table(name + ".json").value();
  EXPECT_EQ(table.sources, std::vector<std::string>{"a"});
  ASSERT_EQ(table.rows.size(), 2u);
  EXPECT_EQ(table.rows[1].features.gpus, 64);
  EXPECT_EQ(table.rows[1].log_error, -0.02);
  std::filesystem::remove(name + ".json");
  std::filesystem::remove(name + ".csv");
}

}  // namespace
}  // namespace rehearse::sim
