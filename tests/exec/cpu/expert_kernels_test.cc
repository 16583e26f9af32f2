// SPDX-License-Identifier: Apache-2.0
// Kernels of experts, of every instruction set, against plain loops in double.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "exec/cpu/kernels/table.h"
#include "tests/exec/cpu/exact_attention.h"

namespace rehearse::exec {
namespace {

double d(const Floats& x, std::int64_t i) {
  return static_cast<double>(x[at(i)]);
}

// Three experts, the second without rows: y = x w_e^T + b_e, and db_e = the sums of its rows.
TEST(ExpertKernels, ProductsOfExpertsHaveTheirOwnBiases) {
  const std::int64_t n = 6, k = 5, rows = 9;
  const std::array<std::int32_t, 4> begin{0, 4, 4, 9};
  const GroupedShape shape{.experts = 3, .rows = rows, .begin = begin.data()};
  const Floats x = noise(rows * k, 1), w = noise(3 * n * k, 2), bias = noise(3 * n, 3);
  Doubles y(at(rows * n)), none(at(rows * n)), sums(at(3 * n));
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t e = r < 4 ? 0 : 2;
    for (std::int64_t c = 0; c < n; ++c) {
      double& to = none[at(r * n + c)];
      for (std::int64_t i = 0; i < k; ++i) to += d(x, r * k + i) * d(w, (e * n + c) * k + i);
      y[at(r * n + c)] = to + d(bias, e * n + c);
    }
    for (std::int64_t i = 0; i < k; ++i) sums[at(e * k + i)] += d(x, r * k + i);
  }
  for (const KernelTable& kernel : kernel_tables()) {
    SCOPED_TRACE(kernel.instruction_set);
    Floats made(y.size()), plain(y.size()), of_columns(sums.size(), 0.0F);
    kernel.grouped_linear(shape, n, k, x.data(), w.data(), bias.data(), made.data());
    kernel.grouped_linear(shape, n, k, x.data(), w.data(), nullptr, plain.data());
    kernel.grouped_column_sums(shape, k, x.data(), of_columns.data());
    EXPECT_LE(distance(made, y), 1e-6);
    EXPECT_LE(distance(plain, none), 1e-6);
    EXPECT_LE(distance(of_columns, sums), 1e-6);
  }
}

// g = (up + 1) gate / (1 + exp(-alpha gate)) of clamped values; slopes by differences, and none
// beyond a clamp.
TEST(ExpertKernels, TheClampedGatedUnitAndItsSlopes) {
  const ClampedGlu shape{.rows = 7, .f = 13, .alpha = 1.702F, .limit = 0.6F};
  const auto value = [&](double gate, double up) {
    const auto limit = static_cast<double>(shape.limit), alpha = static_cast<double>(shape.alpha);
    gate = std::min(gate, limit);
    return (std::clamp(up, -limit, limit) + 1) * gate / (1 + std::exp(-alpha * gate));
  };
  const std::int64_t count = shape.rows * shape.f;
  const Floats u = noise(2 * count, 1), dg = noise(count, 2);
  Doubles g(at(count)), du(at(2 * count));
  std::int64_t held = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t gate = 2 * i, up = gate + 1;
    g[at(i)] = value(d(u, gate), d(u, up));
    const double by = d(dg, i) / 2e-6;
    du[at(gate)] = by * (value(d(u, gate) + 1e-6, d(u, up)) - value(d(u, gate) - 1e-6, d(u, up)));
    du[at(up)] = by * (value(d(u, gate), d(u, up) + 1e-6) - value(d(u, gate), d(u, up) - 1e-6));
    held += du[at(gate)] == 0 || du[at(up)] == 0 ? 1 : 0;
  }
  EXPECT_GT(held, 5);
  for (const KernelTable& kernel : kernel_tables()) {
    SCOPED_TRACE(kernel.instruction_set);
    Floats made(g.size()), slopes(du.size());
    kernel.clamped_glu(shape, u.data(), made.data());
    kernel.clamped_glu_backward(shape, dg.data(), u.data(), slopes.data());
    EXPECT_LE(distance(made, g), 1e-6);
    EXPECT_LE(distance(slopes, du), 1e-6);
  }
}

// Two tokens, two copies each, one of which lies elsewhere: what is not wanted is not written, and
// what is has the bits of both at once.
TEST(ExpertKernels, CopiesAndWeightsHaveGradientsEachAlone) {
  const std::int64_t tokens = 2, k = 2, cols = 40;
  const std::array<std::int32_t, 4> row{2, 0, -1, 1};
  const Floats weights = noise(tokens * k, 1), rows = noise(3 * cols, 2), dy = noise(80, 3);
  for (const KernelTable& kernel : kernel_tables()) {
    SCOPED_TRACE(kernel.instruction_set);
    Floats both(rows.size()), of_weights(4), copies(rows.size()), alone(4);
    kernel.weigh_backward(tokens, k, cols, row.data(), weights.data(), rows.data(), dy.data(),
                          both.data(), of_weights.data());
    kernel.weigh_backward(tokens, k, cols, row.data(), weights.data(), nullptr, dy.data(),
                          copies.data(), nullptr);
    kernel.weigh_backward(tokens, k, cols, row.data(), weights.data(), rows.data(), dy.data(),
                          nullptr, alone.data());
    EXPECT_EQ(copies, both);
    EXPECT_EQ(alone, of_weights);
    EXPECT_EQ(of_weights[2], 0.0F);
    EXPECT_NE(of_weights[1], 0.0F);
  }
}

}  // namespace
}  // namespace rehearse::exec
