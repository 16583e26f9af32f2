// overlap.gradient_reduce and .parameter_gather: what may run beside data-parallel collectives.
#include <gtest/gtest.h>

#include <algorithm>

#include "schedules/scenario.h"
#include "sim/predict.h"

namespace rehearse::sim {
namespace {

Prediction predicted(int zero, bool overlap, const std::string& more = {}) {
  const std::string flag = overlap ? "true" : "false";
  const Result<Scenario> scenario = parse_scenario(
      R"({"model": "models/gpt2-124m.json", "cluster": "clusters/dgx-a100-80gb.json", "plan":
{"data_parallel": 16, "global_batch": 64, "micro_batch": 2, "bucket_bytes": 30000000,
"zero_stage": )" +
          std::to_string(zero) + R"(, "overlap": {"gradient_reduce": )" + flag +
          R"(, "parameter_gather": )" + flag + "}" + more + "}}",
      "test.json", 1, {});
  EXPECT_TRUE(scenario) << scenario.error().message;
  const Result<Cluster> cluster = read_cluster(scenario.value().cluster);
  Result<Prediction> made = predict(scenario.value(), cluster.value());
  EXPECT_TRUE(made) << made.error().message;
  return std::move(made).value();
}

// Nanoseconds of row 0 in which forwards or backwards run while a collective of dp does.
std::int64_t beside(const Prediction& p) {
  const Schedule& s = p.schedule;
  std::int64_t sum = 0;
  for (std::size_t c = s.first_op(Row{0}); c < s.first_op(Row{1}); ++c) {
    if (traits(s.ops[c].kind).op_class != OpClass::Collective || s.ops[c].stream != Stream::Dp) {
      continue;
    }
    for (std::size_t k = s.first_op(Row{0}); k < s.first_op(Row{1}); ++k) {
      if (!is_compute(s.ops[k].kind)) continue;
      const std::int64_t begin = std::max(p.timeline.start[c], p.timeline.start[k]).value;
      const std::int64_t end = std::min(p.timeline.end[c], p.timeline.end[k]).value;
      sum += std::max<std::int64_t>(0, end - begin);
    }
  }
  return sum;
}

class Overlap : public testing::TestWithParam<int> {};

TEST_P(Overlap, IsThereWhereThePlanAsksForItAndNowhereElse) {
  for (const char* runtime : {R"(, "runtime": "rehearse")", ""}) {
    const Prediction hidden = predicted(GetParam(), true, runtime);
    const Prediction plain = predicted(GetParam(), false, runtime);
    EXPECT_GT(beside(hidden), 0) << runtime;
    EXPECT_EQ(beside(plain), 0) << runtime;
    EXPECT_GT(plain.step_s, hidden.step_s) << runtime;
  }
}
INSTANTIATE_TEST_SUITE_P(Zero, Overlap, testing::Values(0, 1, 2, 3));

}  // namespace
}  // namespace rehearse::sim
