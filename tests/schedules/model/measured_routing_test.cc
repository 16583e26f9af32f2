// SPDX-License-Identifier: Apache-2.0
// The rows that a run's experts had, as factors: what a file of metrics says, and what it may not.
#include "schedules/model/measured_routing.h"

#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <string>

namespace rehearse {
namespace {

// Three layers, the first without experts, four experts each.
Transformer model() {
  Transformer model{.layers = 3};
  model.experts.count = 4;
  model.experts.layers = {false, true, true};
  return model;
}

Result<MeasuredRouting> read(const std::string& text) {
  const std::string path = testing::TempDir() + "measured_routing.jsonl";
  std::ofstream(path) << text;
  return read_routing(path, model());
}
std::string error(const std::string& text) {
  const Result<MeasuredRouting> routing = read(text);
  return routing ? "" : routing.error().message;
}

// 6 + 2 against 3 + 5 of 16: 1 each; 6 of 16 over 4 experts: 1.5.
TEST(MeasuredRouting, TheBusiestBlockIsHeldAgainstTheMean) {
  const std::array<std::int64_t, 4> rows{6, 2, 3, 5};
  EXPECT_EQ(busiest_over_mean(rows, 1), 1);
  EXPECT_EQ(busiest_over_mean(rows, 2), 1);
  EXPECT_EQ(busiest_over_mean(rows, 4), 1.5);
  EXPECT_EQ(busiest_over_mean(std::array<std::int64_t, 2>{}, 2), 1);
}

// Each step by itself: (8, 0, 4, 4) and (0, 8, 4, 4) are even over the two together, and each has
// an expert with twice the mean.
TEST(MeasuredRouting, StepsAreAveragedAsFactorsOfEveryNumberOfRanks) {
  const Result<MeasuredRouting> routing = read(
      "{\"step\":0,\"expert_rows\":[[0,0,0,0],[8,0,4,4],[4,4,4,4]]}\n"
      "{\"step\":1,\"expert_rows\":[[0,0,0,0],[0,8,4,4],[8,4,2,2]]}\n");
  ASSERT_TRUE(routing) << routing.error().message;
  const auto of = [&](std::int32_t ranks) {
    const auto layers = routing.value().layers(ranks);
    return std::vector<double>(layers.begin(), layers.end());
  };
  EXPECT_EQ(of(1), (std::vector<double>{1, 1, 1}));
  EXPECT_EQ(of(2), (std::vector<double>{1, 1, (1 + 1.5) / 2}));
  EXPECT_EQ(of(4), (std::vector<double>{1, 2, (1 + 2.0) / 2}));
}

TEST(MeasuredRouting, AFileOfAnotherModelIsNamedByItsLine) {
  const std::string good = "{\"expert_rows\":[[0,0,0,0],[1,1,1,1],[1,1,1,1]]}\n";
  EXPECT_EQ(error(good), "");
  const auto says = [&](const std::string& second, const std::string& words) {
    const std::string message = error(good + second);
    EXPECT_NE(message.find("measured_routing.jsonl:2: " + words), std::string::npos) << message;
  };
  says("{\"expert_rows\":[[0,0,0,0],[1,1,1,1]]}\n", "expert_rows: has 2 layers, the model 3");
  says("{\"expert_rows\":[[0,0,0,0],[1,1,1],[1,1,1,1]]}\n",
       "expert_rows: layer 1 has 3 experts, the model 4");
  says("{\"expert_rows\":[[1,0,0,0],[1,1,1,1],[1,1,1,1]]}\n",
       "expert_rows: layer 0 has rows, but no experts in the model");
  says("{\"expert_rows\":[[0,0,0,0],[0,0,0,0],[1,1,1,1]]}\n", "expert_rows: layer 1 has no rows");
  says("{\"expert_rows\":[[0,0,0,0],[1,1,1,-1],[1,1,1,1]]}\n",
       "expert_rows: layer 1 has what is no number of rows");
  says("{\"loss\":1}\n", "expert_rows: is missing");
  says(" \r\n" + good, "a blank line");
  says("{\"expert_rows\":[[0,0\n", "");  // a line that was cut
  EXPECT_NE(error("").find("no step in it"), std::string::npos);
  EXPECT_NE(read_routing("/no/such.jsonl", model()).error().message.find("no such file"),
            std::string::npos);
}

}  // namespace
}  // namespace rehearse
