// SPDX-License-Identifier: Apache-2.0
// Every kernel of every instruction set that this machine has, against plain loops in double.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "exec/cpu/kernels/table.h"

namespace rehearse::exec {
namespace {

using Floats = std::vector<float>;

Floats random(std::int64_t count, unsigned seed, float spread = 1) {
  std::mt19937 bits(seed);
  std::uniform_real_distribution<float> uniform(-spread, spread);
  Floats values(static_cast<std::size_t>(count));
  for (float& value : values) value = uniform(bits);
  return values;
}

double d(const Floats& x, std::int64_t i) {
  return static_cast<double>(x[static_cast<std::size_t>(i)]);
}

void expect_near(const Floats& is, const std::function<double(std::int64_t)>& should,
                 double bound) {
  double worst = 0;
  std::int64_t where = 0;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(is.size()); ++i) {
    const double error = std::abs(d(is, i) - should(i));
    if (error <= worst) continue;
    worst = error;
    where = i;
  }
  EXPECT_LE(worst, bound) << "element " << where;
}

// Shapes around the edges of tiles (6, 8 rows; 16, 48 columns), runs (64) and blocks (192, 256,
// 1536).
TEST(Kernels, ProductsOfAllFormsAndShapes) {
  const std::int64_t shapes[][3] = {{1, 1, 1},     {2, 3, 5},    {6, 16, 32},   {7, 17, 33},
                                    {13, 49, 70},  {64, 64, 64}, {5, 1600, 20}, {200, 47, 300},
                                    {33, 96, 513}, {8, 48, 256}, {12, 33, 1000}};
  for (const KernelTable& kernel : kernel_tables()) {
    for (const auto& [m, n, k] : shapes) {
      SCOPED_TRACE(std::string(kernel.instruction_set) + " " + std::to_string(m) + " " +
                   std::to_string(n) + " " + std::to_string(k));
      const Floats x = random(m * k, 1), w = random(n * k, 2), bias = random(n, 3),
                   dy = random(m * n, 4);
      // k products of numbers up to 1: the worst element, with and without fused multiply-add.
      // Eigen sums in one run, without FMA
      const double unit = kernel.instruction_set == "generic" ? 2e-6 : 5e-7;
      const auto bound = [unit](std::int64_t terms) {
        return unit * std::sqrt(static_cast<double>(terms)) + 2e-7;
      };
      Floats y(static_cast<std::size_t>(m * n), NAN);
      const auto forward = [&](std::int64_t i) {
        double sum = d(bias, i % n);
        for (std::int64_t p = 0; p < k; ++p) sum += d(x, i / n * k + p) * d(w, i % n * k + p);
        return sum;
      };
      kernel.linear(m, n, k, x.data(), w.data(), bias.data(), y.data());
      expect_near(y, forward, bound(k));
      kernel.linear(m, n, k, x.data(), w.data(), nullptr, y.data());
      expect_near(
          y, [&](std::int64_t i) { return forward(i) - d(bias, i % n); }, bound(k));
      Floats dx(static_cast<std::size_t>(m * k), NAN);
      kernel.linear_input(m, n, k, dy.data(), w.data(), dx.data());
      expect_near(
          dx,
          [&](std::int64_t i) {
            double sum = 0;
            for (std::int64_t j = 0; j < n; ++j) sum += d(dy, i / k * n + j) * d(w, j * k + i % k);
            return sum;
          },
          bound(n));
      Floats dw(static_cast<std::size_t>(n * k), 0.5F);
      kernel.linear_weight(m, n, k, dy.data(), x.data(), dw.data());
      expect_near(
          dw,
          [&](std::int64_t i) {
            double sum = 0.5;
            for (std::int64_t t = 0; t < m; ++t) sum += d(dy, t * n + i / k) * d(x, t * k + i % k);
            return sum;
          },
          bound(m));
    }
  }
}

// Long sums: rounding stays below one unit of the result's typical size.
TEST(Kernels, LongSumsAreMoreExactThanOneRun) {
  const std::int64_t m = 24, n = 48, k = 4096;
  const Floats x = random(m * k, 5), w = random(n * k, 6);
  for (const KernelTable& kernel : kernel_tables()) {
    if (kernel.instruction_set == "generic") continue;  // Eigen's
    Floats y(static_cast<std::size_t>(m * n));
    kernel.linear(m, n, k, x.data(), w.data(), nullptr, y.data());
    double error = 0, size = 0;
    for (std::int64_t i = 0; i < m * n; ++i) {
      double sum = 0;
      for (std::int64_t p = 0; p < k; ++p) sum += d(x, i / n * k + p) * d(w, i % n * k + p);
      error += (d(y, i) - sum) * (d(y, i) - sum);
      size += sum * sum;
    }
    EXPECT_LT(std::sqrt(error / size), 2.5e-7) << kernel.instruction_set;  // in one run: 7e-7
  }
}

TEST(Kernels, GeluAndItsSlopeToTheLastPlaces) {
  const std::int64_t count = 4003;
  Floats u, one(static_cast<std::size_t>(count), 1.0F);
  for (std::int64_t i = 0; i < count; ++i) u.push_back(static_cast<float>(i - 2001) * 0.01F);
  const auto tanh_of = [](double x) {
    return std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
  };
  for (const KernelTable& kernel : kernel_tables()) {
    SCOPED_TRACE(kernel.instruction_set);
    Floats g(u.size()), du(u.size());
    kernel.activation(ActivationKind::GeluTanh, count, u.data(), g.data());
    kernel.activation_backward(ActivationKind::GeluTanh, count, one.data(), u.data(), du.data());
    for (std::int64_t i = 0; i < count; ++i) {
      const double x = d(u, i), t = tanh_of(x);
      EXPECT_NEAR(d(g, i), 0.5 * x * (1 + t), 4e-7 * std::abs(x)) << x;
      const double slope = std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
      EXPECT_NEAR(d(du, i), 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * slope, 1e-6) << x;
    }
  }
}

TEST(Kernels, NotANumberAndInfinityStaySo) {
  for (const KernelTable& kernel : kernel_tables()) {
    SCOPED_TRACE(kernel.instruction_set);
    const Floats u{NAN, 1, INFINITY, -INFINITY, -1e30F, 1e30F, 0, 2, 3};
    Floats g(u.size());
    kernel.activation(ActivationKind::GeluTanh, static_cast<std::int64_t>(u.size()), u.data(),
                      g.data());
    EXPECT_TRUE(std::isnan(g[0]));
    EXPECT_EQ(g[2], INFINITY);
    EXPECT_EQ(g[4], 0);
    EXPECT_EQ(g[5], 1e30F);
    EXPECT_EQ(g[6], 0);
    // A loss over a logit that is no number is none: a diverged run is noticed.
    const VocabularyShape shape{.columns = 10, .valid = 10};
    const Floats logits{0, NAN, 1, 2, 3, 4, 5, 6, 7, 8};
    float maximum = 0, sums[2] = {0, 0};
    const std::int32_t target = 3;
    kernel.row_maxima(1, shape, logits.data(), &maximum);
    kernel.row_sums(1, shape, logits.data(), &maximum, &target, sums);
    EXPECT_TRUE(std::isnan(sums[0]));
  }
}

TEST(Kernels, SoftmaxOverFarLogits) {
  const std::int64_t columns = 1203, valid = 1200;
  const VocabularyShape shape{.columns = columns, .valid = valid};
  Floats logits = random(columns, 7, 30);
  logits[5] = -500;
  const std::int32_t target = 77;
  for (const KernelTable& kernel : kernel_tables()) {
    SCOPED_TRACE(kernel.instruction_set);
    float maximum = 0, sums[2], loss = 0;
    Floats gradient = logits;
    kernel.row_maxima(1, shape, logits.data(), &maximum);
    kernel.row_sums(1, shape, logits.data(), &maximum, &target, sums);
    kernel.loss_and_gradient(1, shape, &maximum, sums, &target, 0.5F, gradient.data(), &loss);
    double sum = 0;
    for (std::int64_t c = 0; c < valid; ++c)
      sum += std::exp(d(logits, c) - static_cast<double>(maximum));
    expect_near(
        gradient,
        [&](std::int64_t c) {
          if (c >= valid) return 0.0;
          return 0.5 * (std::exp(d(logits, c) - static_cast<double>(maximum)) / sum -
                        (c == target ? 1 : 0));
        },
        2e-7);
    EXPECT_NEAR(loss, 0.5 * (std::log(sum) + static_cast<double>(maximum) - d(logits, target)),
                1e-5);
  }
}

// Two heads of one sample share keys and values; lengths around a tile (64).
TEST(Kernels, AttentionAndItsGradientAgainstSumsInDouble) {
  for (const std::int64_t sequence : {1, 5, 63, 64, 65, 130}) {
    const AttentionShape s{
        .tokens = 2 * sequence, .sequence = sequence, .heads = 4, .kv_heads = 2, .head_dim = 12};
    const std::int64_t columns = s.columns(), width = s.heads * s.head_dim;
    const Floats qkv = random(s.tokens * columns, 8), d_o = random(s.tokens * width, 9);
    const double scale = 1 / std::sqrt(12.0);
    std::vector<double> o(static_cast<std::size_t>(s.tokens * width)), dqkv(qkv.size());
    const auto at = [](std::vector<double>& v, std::int64_t i) -> double& {
      return v[static_cast<std::size_t>(i)];
    };
    for (std::int64_t sample = 0; sample < 2; ++sample) {
      for (std::int64_t head = 0; head < s.heads; ++head) {
        for (std::int64_t i = 0; i < sequence; ++i) {
          const std::int64_t row = sample * sequence, q = (row + i) * columns + head * s.head_dim;
          const auto key = [&](std::int64_t j) {
            return (row + j) * columns + (s.heads + head / 2) * s.head_dim;
          };
          const auto value = [&](std::int64_t j) { return key(j) + s.kv_heads * s.head_dim; };
          std::vector<double> p(static_cast<std::size_t>(i + 1)), dp(p.size());
          double sum = 0, delta = 0;
          for (std::int64_t j = 0; j <= i; ++j) {
            double score = 0;
            for (std::int64_t e = 0; e < s.head_dim; ++e)
              score += d(qkv, q + e) * d(qkv, key(j) + e);
            sum += at(p, j) = std::exp(score * scale);
          }
          const std::int64_t out = (row + i) * width + head * s.head_dim;
          for (std::int64_t j = 0; j <= i; ++j) {
            at(p, j) /= sum;
            for (std::int64_t e = 0; e < s.head_dim; ++e) {
              at(o, out + e) += at(p, j) * d(qkv, value(j) + e);
              at(dqkv, value(j) + e) += at(p, j) * d(d_o, out + e);
              at(dp, j) += d(d_o, out + e) * d(qkv, value(j) + e);
            }
            delta += at(p, j) * at(dp, j);
          }
          for (std::int64_t j = 0; j <= i; ++j) {
            const double ds = at(p, j) * (at(dp, j) - delta) * scale;
            for (std::int64_t e = 0; e < s.head_dim; ++e) {
              at(dqkv, q + e) += ds * d(qkv, key(j) + e);
              at(dqkv, key(j) + e) += ds * d(qkv, q + e);
            }
          }
        }
      }
    }
    for (const KernelTable& kernel : kernel_tables()) {
      SCOPED_TRACE(std::string(kernel.instruction_set) + " sequence " + std::to_string(sequence));
      Floats mine(o.size(), NAN), gradient(qkv.size(), NAN);
      Floats lse(static_cast<std::size_t>(s.heads * s.tokens)), scratch(lse.size());
      kernel.attention(s, qkv.data(), mine.data(), lse.data());
      expect_near(
          mine, [&](std::int64_t i) { return at(o, i); }, 1e-6);
      kernel.attention_backward(s, d_o.data(), qkv.data(), mine.data(), lse.data(), gradient.data(),
                                scratch.data());
      expect_near(
          gradient, [&](std::int64_t i) { return at(dqkv, i); }, 3e-6);
    }
  }
}

}  // namespace
}  // namespace rehearse::exec
