// SPDX-License-Identifier: Apache-2.0
// Muon orthogonalizes the matrices that a model has, whole, however they are cut.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "schedules/body/sizes.h"
#include "schedules/scenario/scenario.h"
#include "sim/predict/predict.h"
#include "sim/predict/pricing/muon_cost.h"

namespace rehearse::sim {
namespace {

Scenario read(const std::string& model, const std::string& plan, std::int32_t gpus) {
  const Result<Scenario> scenario = parse_scenario(
      R"({"model": )" + model + R"(, "cluster": "dgx-h100", "gpus": )" + std::to_string(gpus) +
          R"(, "plan": {"micro_batch": 1, "global_batch": 64, "sequence_length": 1024, )" + plan +
          "}}",
      "test", 1, {});
  EXPECT_TRUE(scenario) << (scenario ? "" : scenario.error().message);
  return scenario.value();
}

using Shape = std::pair<std::int64_t, std::int64_t>;

std::vector<Shape> shapes_of(const Scenario& scenario, std::int64_t layer) {
  const Layout layout(scenario.model, scenario.plan);
  std::vector<Shape> shapes;
  for (const ModelPart& part : segment_parts(scenario.model, SegmentKind::Layer, layer)) {
    for (const MuonMatrix& matrix : muon_matrices(layout, part)) {
      shapes.emplace_back(matrix.rows, matrix.columns);
    }
  }
  std::ranges::sort(shapes);
  return shapes;
}

// DeepSeek-V3's latent attention and dense MLP (arXiv 2412.19437, section 4.2), with tp 1 and 8.
TEST(Muon, MultipliesTheMatricesOfLatentAttention) {
  const std::vector<Shape> wanted{{576, 7168},   {1536, 7168}, {7168, 16384}, {7168, 18432},
                                  {24576, 1536}, {32768, 512}, {36864, 7168}};
  for (const char* t : {"1", "8"}) {
    const Scenario scenario =
        read(R"("deepseek-v3")",
             R"("optimizer": "muon", "expert_parallel": 8, "tensor_parallel": )" + std::string(t) +
                 (t[0] == '8' ? R"(, "sequence_parallel": true)" : ""),
             64);
    EXPECT_EQ(shapes_of(scenario, 0), wanted) << "tp " << t;
  }
}

// Queries, keys and values apart; an expert's matrices are its own, and a rank has its share.
TEST(Muon, MultipliesTheMatricesOfExperts) {
  const std::vector<Shape> wanted{{8, 4096},    {1024, 4096},  {1024, 4096}, {4096, 4096},
                                  {4096, 4096}, {4096, 14336}, {28672, 4096}};
  for (const std::int32_t e : {1, 8}) {
    const Scenario scenario = read(
        R"("mixtral-8x7b")", R"("optimizer": "muon", "expert_parallel": )" + std::to_string(e), 8);
    EXPECT_EQ(shapes_of(scenario, 0), wanted);
    const Layout layout(scenario.model, scenario.plan);
    std::int64_t copies = 0;
    for (const ModelPart& part : segment_parts(scenario.model, SegmentKind::Layer, 0)) {
      for (const MuonMatrix& matrix : muon_matrices(layout, part)) {
        if (matrix.expert) copies += matrix.count;
      }
    }
    EXPECT_EQ(copies, 2 * 8 / e);
  }
}

// Newton-Schulz of m x n, m <= n, takes 5 (4 m^2 n + 2 m^3) FLOPs: the time that Muon adds on one
// rank without ZeRO is at least that of these products at the GPU's peak, and not many times more.
TEST(Muon, AddsTheProductsOfItsMatrices) {
  const auto step = [](const std::string& keys) {
    const Scenario scenario = read(R"("mixtral-8x7b")", keys, 8);
    const Result<Cluster> cluster = read_cluster(scenario.cluster);
    EXPECT_TRUE(cluster);
    const Result<Prediction> made = predict(scenario, cluster.value());
    EXPECT_TRUE(made) << (made ? "" : made.error().message);
    return made.value().step_s;
  };
  const std::string plan = R"("expert_parallel": 8, "zero_stage": 0)";
  const double added = step(plan + R"(, "optimizer": "muon")") - step(plan);
  double flops = 0;
  for (const auto& [rows, columns] :
       shapes_of(read(R"("mixtral-8x7b")", plan + R"(, "optimizer": "muon")", 8), 0)) {
    const double m = static_cast<double>(std::min(rows, columns));
    const double n = static_cast<double>(std::max(rows, columns));
    flops += 5 * (4 * m * m * n + 2 * m * m * m);  // one expert of each rank's layer
  }
  const double least = 32 * flops / 989e12;
  EXPECT_GT(added, least);
  EXPECT_LT(added, 3 * least);
}

}  // namespace
}  // namespace rehearse::sim
