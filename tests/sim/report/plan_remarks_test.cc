// SPDX-License-Identifier: Apache-2.0
// What a report says of a plan beside its numbers: the same lines in text and JSON.
#include "sim/report/plan_remarks.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "schedules/trace/trace.h"
#include "sim/report/report.h"

namespace rehearse::sim {
namespace {

struct Predicted {
  Scenario scenario;
  Cluster cluster;
  Prediction prediction;

  std::vector<std::string> remarks() const { return plan_remarks(prediction, scenario, cluster); }
  double seconds(IdleCause cause) const {
    return static_cast<double>(prediction.bubbles.causes[static_cast<std::size_t>(cause)]) * 1e-9 /
           static_cast<double>(prediction.bubbles.ranks);
  }
};

Predicted predicted(const std::string& name, const std::vector<std::string>& set) {
  const Result<Scenario> read = read_scenario("scenarios/" + name + ".json", {.overrides = set});
  EXPECT_TRUE(read) << read.error().message;
  const Cluster cluster = read_cluster(read.value().cluster).value();
  Result<Prediction> made = predict(read.value(), cluster);
  EXPECT_TRUE(made) << made.error().message;
  return {read.value(), cluster, std::move(made).value()};
}

constexpr const char* kAlone = "plan.data_parallel=1";

TEST(PlanRemarks, TheHostsUpdateIsTheHosts) {
  const Predicted plain =
      predicted("dp-ddp", {"gpus=1", kAlone, "plan.global_batch=8", "plan.offload=none"});
  EXPECT_TRUE(plain.remarks().empty()) << plain.remarks().front();
  const Predicted one =
      predicted("dp-ddp", {"gpus=1", kAlone, "plan.global_batch=8", "plan.offload=optimizer"});
  // No other GPU computes.
  EXPECT_EQ(one.seconds(IdleCause::Dependency), 0);
  EXPECT_GT(one.seconds(IdleCause::Host), 0.3 * one.prediction.step_s);
  ASSERT_EQ(one.remarks().size(), 1u);
  EXPECT_EQ(one.remarks().front(),
            "plan.offload: the hosts update the parameters, 1.56 billion for each rank and 1.56 "
            "billion on each host of 1; their time is idle time of the cause host");
  const std::string text = report_text(one.prediction, one.scenario, one.cluster);
  EXPECT_NE(text.find("note: " + one.remarks().front()), std::string::npos);
  EXPECT_NE(report_json(one.prediction, one.scenario, one.cluster).find(one.remarks().front()),
            std::string::npos);
}

// 1,557,611,200 parameters on eight replicas of one node.
TEST(PlanRemarks, ReplicasThatAllUpdateEverythingAreNamed) {
  const std::string whole =
      predicted("dp-ddp", {"plan.offload=optimizer", "plan.zero_stage=0"}).remarks().front();
  EXPECT_NE(whole.find("1.56 billion for each rank and 12.46 billion on each host of 8"),
            std::string::npos)
      << whole;
  EXPECT_NE(whole.find("With zero_stage 0 each of the 8 replicas updates all"), std::string::npos);
  const std::string shared =
      predicted("dp-ddp", {"plan.offload=optimizer", "plan.zero_stage=1"}).remarks().front();
  EXPECT_NE(shared.find("194.7 million for each rank and 1.56 billion on each host of 8"),
            std::string::npos)
      << shared;
  EXPECT_EQ(shared.find("With zero_stage 0"), std::string::npos);
}

TEST(PlanRemarks, AParallelResidualThatNoProfileSumsAtOnceIsSaid) {
  const auto remarks = [](const char* parallel, const char* ranks) {
    return predicted(
               "tiny-gpt-4-ranks",
               {R"(model={"model_type": "gpt_neox", "num_hidden_layers": 4, "hidden_size": 64, )"
                R"("num_attention_heads": 4, "intermediate_size": 256, "vocab_size": 256, )"
                R"("max_position_embeddings": 64, "use_parallel_residual": )" +
                    std::string(parallel) + "}",
                "plan.data_parallel=null", "plan.tensor_parallel=" + std::string(ranks)})
        .remarks();
  };
  ASSERT_EQ(remarks("true", "2").size(), 1u);
  EXPECT_TRUE(remarks("true", "2").front().starts_with("model.use_parallel_residual: "));
  EXPECT_TRUE(remarks("true", "1").empty());
  EXPECT_TRUE(remarks("false", "2").empty());
}

TEST(PlanRemarks, AMicroBatchThatIsChosenIsSaid) {
  const Predicted open = predicted("microbatch-sweep", {"plan.global_batch=8"});
  ASSERT_EQ(open.remarks().size(), 1u);
  const std::string taken = std::to_string(open.prediction.plan.micro_batch);
  EXPECT_TRUE(open.remarks().front().starts_with("plan.micro_batch: " + taken +
                                                 ", the fastest that fits of 1, 2, 4, 8: "))
      << open.remarks().front();
  EXPECT_TRUE(predicted("microbatch-sweep", {"plan.global_batch=8", "plan.micro_batch=2"})
                  .remarks()
                  .empty());
}

}  // namespace
}  // namespace rehearse::sim
