// SPDX-License-Identifier: Apache-2.0
// Kernels of an expert layer: grouped products by hand and against DeepGEMM's tables.
#include "sim/compute/expert_kernels.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/sim/compute/compute_fixture.h"

namespace rehearse::sim {
namespace {

using fixture::h100_node;
using fixture::kKernels;

ComputeCosts h100_bursts() {
  return burst_costs(h100_node(), read_kernel_scalars(h100_node(), kKernels).value());
}

double tflops(const GroupedProduct& p) {
  const double flops = 2e-12 * static_cast<double>(p.experts) * static_cast<double>(p.m) *
                       static_cast<double>(p.n) * static_cast<double>(p.k);
  return flops / (grouped_product_cost(h100_bursts(), p).ns * 1e-9);
}

// 4 experts of 264 rows, 128 columns: tiles of 256 x 128 are 4 x 2 = 8 on 132 SMs, as those of one
// product with 8 x 256 rows are: the wave is that of the sum.
TEST(GroupedProduct, DealsTheTilesOfAllExpertsTogether) {
  ComputeCosts costs = h100_bursts();
  costs.scalars.tiles = {{.m = 256, .n = 128, .rate = 1}};
  costs.scalars.kernel_us = 0;
  const double grouped =
      grouped_product_cost(costs, {.experts = 4, .m = 264, .n = 128, .k = 1 << 20}).ns;
  const double whole =
      grouped_product_cost(costs, {.experts = 1, .m = 8 * 256, .n = 128, .k = 1 << 20}).ns;
  EXPECT_NEAR(grouped / whole, 1, 1e-6);
}

// Few rows: all weights are read for them. 8 experts of 4096 x 4096 in 16 bit are 268 MB, 0.85 of
// 3.35 TB/s.
TEST(GroupedProduct, OfFewRowsIsBoundByItsWeights) {
  const double ns =
      grouped_product_cost(h100_bursts(), {.experts = 8, .m = 1, .n = 4096, .k = 4096}).ns;
  EXPECT_NEAR(ns, 8 * 2 * 4096 * 4096.0 / (0.85 * 3350e9) * 1e9 + 3e3, 200);
}

// The four figures that the rates were taken from, and the weight gradients' (DeepGEMM README of
// 2025-03; pull request 95).
TEST(GroupedProduct, InBlocksOf8BitsHasDeepGemmsRates) {
  EXPECT_NEAR(tflops({.experts = 4, .m = 8192, .n = 4096, .k = 7168, .block_fp8 = true}), 1346, 20);
  EXPECT_NEAR(tflops({.experts = 4, .m = 8192, .n = 7168, .k = 2048, .block_fp8 = true}), 1214, 20);
  const auto weight = [](std::int64_t m, std::int64_t n, std::int64_t k) {
    return tflops({.experts = 4,
                   .m = m,
                   .n = n,
                   .k = k,
                   .role = GemmRole::WeightGradient,
                   .block_fp8 = true});
  };
  EXPECT_NEAR(weight(7168, 4096, 8192), 1044, 25);
  EXPECT_NEAR(weight(2048, 7168, 8192), 1033, 25);
  EXPECT_NEAR(weight(7168, 4096, 4096), 939, 25);
  EXPECT_NEAR(weight(2048, 7168, 4096), 900, 25);
}

// Smaller groups of the same README (masked layout), which nothing was taken from: tiles, waves and
// weights alone make them slower.
TEST(GroupedProduct, OfFewRowsIsSlowerAsMeasured) {
  struct Point {
    std::int64_t experts, rows;
    double wide, narrow;  // n, k = 4096, 7168; 7168, 2048 [TFLOP/s]
  };
  double sum = 0;
  for (const Point& p :
       {Point{1, 1024, 1233, 925}, Point{2, 512, 1040, 916}, Point{4, 256, 932, 815}}) {
    const double wide =
        tflops({.experts = p.experts, .m = p.rows, .n = 4096, .k = 7168, .block_fp8 = true});
    const double narrow =
        tflops({.experts = p.experts, .m = p.rows, .n = 7168, .k = 2048, .block_fp8 = true});
    sum += std::abs(wide / p.wide - 1) + std::abs(narrow / p.narrow - 1);
  }
  EXPECT_LE(sum / 6, 0.13);
}

// A weight gradient that overwrites is a product like any other; one that adds in fp32 is slower.
TEST(GroupedProduct, ThatAccumulatesTakesLonger) {
  const ComputeCosts costs = h100_bursts();
  GroupedProduct p{.experts = 4, .m = 4096, .n = 7168, .k = 8192, .role = GemmRole::WeightGradient};
  const double adds = grouped_product_cost(costs, p).ns;
  p.accumulates = false;
  const double writes = grouped_product_cost(costs, p).ns;
  p.role = GemmRole::Forward;
  EXPECT_EQ(writes, grouped_product_cost(costs, p).ns);
  EXPECT_NEAR((adds - 3e3) / (writes - 3e3), costs.scalars.weight_gradient, 1e-9);
}

// 1,000 rows of 512 values to 3,000: 4,000 x 1,024 B at 0.92 of 3.35 TB/s, and a launch.
TEST(ExpertKernels, MoveTheirBytes) {
  const ComputeCosts costs = h100_bursts();
  EXPECT_NEAR(permutation_cost(costs, 1000, 3000, 512).ns, 4000 * 1024 / (0.92 * 3.35e3) + 3e3, 1);
  EXPECT_NEAR(quantisation_cost(costs, 1e6).ns, 4e6 / (0.70 * 3.35e3) + 3e3, 1);
  EXPECT_NEAR(expert_activation_cost(costs, 1000, 512, true, false).ns,
              3 * 1000 * 512 * 2 / (0.70 * 3.35e3) + 3e3, 1);
  EXPECT_GT(router_cost(costs, 4096, 7168, 256, true).ns,
            router_cost(costs, 4096, 7168, 256, false).ns);
}

}  // namespace
}  // namespace rehearse::sim
