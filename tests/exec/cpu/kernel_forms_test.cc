// SPDX-License-Identifier: Apache-2.0
// The forms of kernels beside attention: activations, rotary positions, norms, dropout, soft cap
// and scaled embeddings, of every instruction set, against plain loops in double.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>

#include "exec/cpu/kernels/table.h"
#include "tests/exec/cpu/exact_attention.h"

namespace rehearse::exec {
namespace {

double d(const Floats& x, std::int64_t i) {
  return static_cast<double>(x[at(i)]);
}

struct Function {
  ActivationKind kind;
  std::string name;
  std::function<double(double)> value;
};
double logistic(double x) {
  return 1 / (1 + std::exp(-x));
}
const Function kFunctions[] = {
    {ActivationKind::GeluTanh, "gelu by tanh",
     [](double x) {
       return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
     }},
    {ActivationKind::GeluExact, "gelu",
     [](double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); }},
    {ActivationKind::QuickGelu, "quick gelu", [](double x) { return x * logistic(1.702 * x); }},
    {ActivationKind::Relu, "relu", [](double x) { return std::max(x, 0.0); }},
    {ActivationKind::Relu2, "relu squared",
     [](double x) { return std::max(x, 0.0) * std::max(x, 0.0); }},
    {ActivationKind::Silu, "silu", [](double x) { return x * logistic(x); }},
    {ActivationKind::Tanh, "tanh", [](double x) { return std::tanh(x); }},
};

TEST(KernelForms, ActivationsAndTheirSlopesToTheLastPlaces) {
  // Zero is left out: relu has no slope there.
  const std::int64_t count = 4003;
  Floats u;
  for (std::int64_t i = 0; i < count; ++i) u.push_back(static_cast<float>(2 * i - count) * 0.005F);
  const Floats one(u.size(), 1.0F);
  for (const KernelTable& kernel : kernel_tables()) {
    for (const Function& f : kFunctions) {
      SCOPED_TRACE(std::string(kernel.instruction_set) + " " + f.name);
      Floats g(u.size()), du(u.size());
      kernel.activation(f.kind, count, u.data(), g.data());
      kernel.activation_backward(f.kind, count, one.data(), u.data(), du.data());
      for (std::int64_t i = 0; i < count; ++i) {
        const double x = d(u, i), slope = (f.value(x + 1e-5) - f.value(x - 1e-5)) / 2e-5;
        ASSERT_NEAR(d(g, i), f.value(x), 4e-7 * std::max(1.0, std::abs(f.value(x)))) << x;
        ASSERT_NEAR(d(du, i), slope, 1.5e-6 * std::max(1.0, std::abs(slope))) << x;
      }
    }
  }
}

TEST(KernelForms, GatesAreActivationsTimesUp) {
  const std::int64_t rows = 3, f = 37;
  const Floats u = noise(rows * 2 * f, 1), dg = noise(rows * f, 2);
  for (const KernelTable& kernel : kernel_tables()) {
    for (const Function& function : kFunctions) {
      SCOPED_TRACE(std::string(kernel.instruction_set) + " " + function.name);
      Floats g(dg.size()), du(u.size());
      kernel.gated(function.kind, rows, f, u.data(), g.data());
      kernel.gated_backward(function.kind, rows, f, dg.data(), u.data(), du.data());
      for (std::int64_t i = 0; i < rows * f; ++i) {
        const std::int64_t gate = i / f * 2 * f + i % f, up = gate + f;
        const double x = d(u, gate), value = function.value(x);
        const double slope = (function.value(x + 1e-5) - function.value(x - 1e-5)) / 2e-5;
        ASSERT_NEAR(d(g, i), value * d(u, up), 3e-6) << i;
        ASSERT_NEAR(d(du, up), d(dg, i) * value, 3e-6) << i;
        ASSERT_NEAR(d(du, gate), d(dg, i) * d(u, up) * slope, 1e-5) << i;
      }
    }
  }
}

TEST(KernelForms, ActivationsOfNumbersThatAreNone) {
  const Floats u{NAN, INFINITY, -1e4F, 1e30F, 0, 1, 2, 3, 4};
  const auto count = static_cast<std::int64_t>(u.size());
  for (const KernelTable& kernel : kernel_tables()) {
    for (const Function& f : kFunctions) {
      SCOPED_TRACE(std::string(kernel.instruction_set) + " " + f.name);
      Floats g(u.size()), slope(u.size());
      kernel.activation(f.kind, count, u.data(), g.data());
      kernel.activation_backward(f.kind, count, Floats(u.size(), 1.0F).data(), u.data(),
                                 slope.data());
      EXPECT_TRUE(std::isnan(g[0]));
      const bool bounded = f.kind == ActivationKind::Tanh;
      EXPECT_EQ(g[1], bounded ? 1 : INFINITY);
      EXPECT_EQ(g[2], bounded ? -1 : 0);
      EXPECT_EQ(g[4], 0);
      EXPECT_NEAR(slope[2], 0, 1e-20F);
      EXPECT_FALSE(std::isnan(slope[3]));
    }
  }
}

// A pair of one head at one position is a complex number times attention_factor e^(i angle); the
// backward multiplies by the conjugate.
TEST(KernelForms, RotaryPositionsOfPartsInPairsOrHalves) {
  const std::int64_t head_dim = 10, rotary_dim = 6;
  const AttentionShape shape{
      .tokens = 8, .sequence = 6, .heads = 2, .kv_heads = 1, .head_dim = head_dim, .first = 3};
  const std::vector<double> frequencies{1, 0.3, 0.01};
  const Floats x = noise(shape.tokens * shape.columns(), 1);
  for (const KernelTable& kernel : kernel_tables()) {
    for (const bool interleaved : {false, true}) {
      for (const bool inverse : {false, true}) {
        const RotaryShape rotary{frequencies.data(), rotary_dim, 1.3, interleaved};
        Floats y = x;
        kernel.rope(shape, rotary, inverse, y.data());
        Doubles expected(x.begin(), x.end());
        for (std::int64_t t = 0; t < shape.tokens; ++t) {
          for (std::int64_t head = 0; head < 3; ++head) {
            for (std::int64_t i = 0; i < 3; ++i) {
              const std::int64_t begin = t * shape.columns() + head * head_dim;
              const std::int64_t a = begin + (interleaved ? 2 * i : i),
                                 b = interleaved ? a + 1 : a + 3;
              const double angle =
                  static_cast<double>((3 + t) % 6) * frequencies[at(i)] * (inverse ? -1 : 1);
              expected[at(a)] = 1.3 * (d(x, a) * std::cos(angle) - d(x, b) * std::sin(angle));
              expected[at(b)] = 1.3 * (d(x, b) * std::cos(angle) + d(x, a) * std::sin(angle));
            }
          }
        }
        EXPECT_LE(distance(y, expected), 3e-7) << kernel.instruction_set << interleaved << inverse;
      }
    }
  }
}

// Queries alone, by the logarithm of how many spans of 3 positions are behind them.
TEST(KernelForms, QueriesAreTemperedByTheirPositions) {
  const AttentionShape shape{
      .tokens = 8, .sequence = 6, .heads = 2, .kv_heads = 1, .head_dim = 5, .first = 3};
  const Floats x = noise(shape.tokens * shape.columns(), 1);
  for (const KernelTable& kernel : kernel_tables()) {
    Floats y = x;
    kernel.temper_queries(shape, {.scale = 0.7, .floor = 3}, y.data());
    Doubles expected(x.begin(), x.end());
    for (std::int64_t t = 0; t < shape.tokens; ++t) {
      const auto position = (3 + t) % 6;
      const double by = 1 + 0.7 * std::log(1.0 + static_cast<double>((position + 1) / 3));
      for (std::int64_t c = 0; c < 10; ++c) expected[at(t * shape.columns() + c)] *= by;
    }
    EXPECT_LE(distance(y, expected), 3e-7) << kernel.instruction_set;
  }
}

// Each element of qkv by the definition; the gradients are the transposed map: an element goes back
// where it came from, and a rotary key's is the sum over the heads that read it.
TEST(KernelForms, HeadsOfLatentAttentionAreJoinedAndSplit) {
  const LatentShape s{.tokens = 3, .heads = 2, .plain = 5, .rotary = 4, .values = 3};
  const std::int64_t columns = s.heads * (2 * s.key() + s.values), pair = s.plain + s.values;
  const Floats q = noise(s.tokens * s.heads * s.key(), 1), kv = noise(s.tokens * s.heads * pair, 2),
               key = noise(s.tokens * s.rotary, 3), dqkv = noise(s.tokens * columns, 4);
  Doubles joined(dqkv.size()), dq(q.size()), dkv(kv.size()), d_key(key.size());
  for (std::int64_t t = 0; t < s.tokens; ++t) {
    std::int64_t column = t * columns;
    const auto take = [&](const Floats& from, Doubles& gradient, std::int64_t begin,
                          std::int64_t count) {
      for (std::int64_t x = begin; x < begin + count; ++x, ++column) {
        joined[at(column)] = d(from, x);
        gradient[at(x)] += d(dqkv, column);
      }
    };
    take(q, dq, t * s.heads * s.key(), s.heads * s.key());
    for (std::int64_t head = 0; head < s.heads; ++head) {
      take(kv, dkv, (t * s.heads + head) * pair, s.plain);
      take(key, d_key, t * s.rotary, s.rotary);
    }
    for (std::int64_t head = 0; head < s.heads; ++head) {
      take(kv, dkv, (t * s.heads + head) * pair + s.plain, s.values);
    }
  }
  for (const KernelTable& kernel : kernel_tables()) {
    Floats qkv(joined.size(), NAN), got_dq(dq.size(), NAN), got_dkv(dkv.size(), NAN),
        got_key(d_key.size(), NAN);
    kernel.join_heads(s, q.data(), kv.data(), key.data(), qkv.data());
    EXPECT_EQ(distance(qkv, joined), 0);
    kernel.split_heads(s, dqkv.data(), got_dq.data(), got_dkv.data(), got_key.data());
    EXPECT_EQ(distance(got_dq, dq), 0);
    EXPECT_EQ(distance(got_dkv, dkv), 0);
    EXPECT_LE(distance(got_key, d_key), 1e-7);
  }
}

// y = x r (w + 1), r = 1 / sqrt(mean(x^2) + e): with g = dy (w + 1),
// dx = r (g - x r^2 mean(g x)), dw = sum over rows of dy x r.
struct ExactNorm {
  ExactNorm(std::int64_t width, const Doubles& x, const Doubles& dy, const Doubles& weight,
            double offset)
      : y(x.size()), dx(x.size()), dw(weight.size()) {
    for (std::size_t begin = 0; begin < x.size(); begin += at(width)) {
      double squares = 0, products = 0;
      for (std::size_t i = 0; i < at(width); ++i) {
        squares += x[begin + i] * x[begin + i];
        products += dy[begin + i] * (weight[i] + offset) * x[begin + i];
      }
      const auto n = static_cast<double>(width);
      const double r = 1 / std::sqrt(squares / n + 1e-5);
      for (std::size_t i = 0; i < at(width); ++i) {
        const double in = x[begin + i];
        y[begin + i] = in * r * (weight[i] + offset);
        dx[begin + i] = r * (dy[begin + i] * (weight[i] + offset) - in * r * r * products / n);
        dw[i] += dy[begin + i] * in * r;
      }
    }
  }
  Doubles y, dx, dw;
};
Doubles doubles(const Floats& x) {
  return {x.begin(), x.end()};
}

// A norm of heads that has no weights: as one whose weights are all 1.
TEST(KernelForms, NormsOfHeadsWithoutWeights) {
  const std::int64_t rows = 4, heads = 3, width = 20;
  const Floats x = noise(rows * heads * width, 1), dy = noise(rows * heads * width, 2);
  const ExactNorm exact(width, doubles(x), doubles(dy), Doubles(at(width), 1.0), 0);
  const StridedNorm shape{.rows = rows,
                          .groups = heads,
                          .width = width,
                          .stride = heads * width,
                          .total = width,
                          .epsilon = 1e-5};
  for (const KernelTable& kernel : kernel_tables()) {
    SCOPED_TRACE(kernel.instruction_set);
    Floats y(x.size()), statistics(at(rows * heads)), sums(at(rows * heads)), dx(x.size());
    kernel.row_squares(shape, x.data(), statistics.data());
    kernel.strided_norm(shape, x.data(), nullptr, statistics.data(), y.data());
    kernel.row_products(shape, dy.data(), x.data(), nullptr, sums.data());
    kernel.strided_norm_backward(shape, dy.data(), x.data(), statistics.data(), sums.data(),
                                 nullptr, dx.data(), nullptr);
    EXPECT_LE(distance(y, exact.y), 5e-7);
    EXPECT_LE(distance(dx, exact.dx), 1e-6);
  }
}

TEST(KernelForms, RmsNormByOnePlusItsWeight) {
  const std::int64_t rows = 5, h = 70;
  const Floats x = noise(rows * h, 1), dy = noise(rows * h, 2), weight = noise(h, 3);
  const ExactNorm exact(h, doubles(x), doubles(dy), doubles(weight), 1);
  for (const KernelTable& kernel : kernel_tables()) {
    SCOPED_TRACE(kernel.instruction_set);
    Floats y(x.size()), statistics(at(rows)), dx(x.size()), dw(at(h), 0.0F);
    kernel.rms_norm(rows, h, x.data(), weight.data(), 1, 1e-5, y.data(), statistics.data());
    kernel.rms_norm_backward(rows, h, dy.data(), x.data(), statistics.data(), weight.data(), 1,
                             nullptr, dx.data(), dw.data());
    EXPECT_LE(distance(y, exact.y), 5e-7);
    EXPECT_LE(distance(dx, exact.dx), 1e-6);
    EXPECT_LE(distance(dw, exact.dw), 1e-6);
  }
}

// Three ranks with 14 columns each of rows of 42, against one norm of whole rows in fp64.
TEST(KernelForms, NormsOfColumnsThatRanksShare) {
  const std::int64_t rows = 7, ranks = 3, h = 14, total = ranks * h;
  const Floats x = noise(rows * total, 1), dy = noise(rows * total, 2), weight = noise(total, 3),
               bias = noise(total, 4), residual = noise(rows * total, 5);
  const auto columns = [&](const Floats& of, std::int64_t rank) {
    Floats some;
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(of.size()) / total * h; ++i) {
      some.push_back(of[at(i / h * total + rank * h + i % h)]);
    }
    return some;
  };
  for (const bool centred : {true, false}) {
    Doubles y(x.size()), dx(x.size()), dw(at(total)), db(at(total));
    const double offset = centred ? 0 : 1;
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::size_t begin = at(r * total);
      double sum = 0, squares = 0, gradients = 0, products = 0;
      for (std::size_t i = 0; i < at(total); ++i) sum += centred ? x[begin + i] : 0;
      const double mean = sum / static_cast<double>(total);
      const auto n = static_cast<double>(total);
      for (std::size_t i = 0; i < at(total); ++i) {
        squares += (x[begin + i] - mean) * (x[begin + i] - mean);
      }
      const double rstd = 1 / std::sqrt(squares / n + 1e-5);
      const auto hat = [&](std::size_t i) { return (x[begin + i] - mean) * rstd; };
      for (std::size_t i = 0; i < at(total); ++i) {
        const double g = dy[begin + i] * (weight[i] + offset);
        gradients += centred ? g : 0;
        products += g * hat(i);
        y[begin + i] = hat(i) * (weight[i] + offset) + (centred ? bias[i] : 0);
        dw[i] += dy[begin + i] * hat(i);
        db[i] += dy[begin + i];
      }
      for (std::size_t i = 0; i < at(total); ++i) {
        dx[begin + i] =
            rstd * (dy[begin + i] * (weight[i] + offset) - gradients / n - hat(i) * products / n) +
            residual[begin + i];
      }
    }
    const SharedNorm shape{.rows = rows,
                           .h = h,
                           .total = total,
                           .centred = centred,
                           .epsilon = 1e-5,
                           .weight_offset = offset};
    for (const KernelTable& kernel : kernel_tables()) {
      SCOPED_TRACE(kernel.instruction_set);
      const std::size_t count = at(rows * shape.sums());
      Floats sums(count, 0.0F), gradients(count, 0.0F), part(count);
      const auto add = [&](Floats& to) {
        for (std::size_t i = 0; i < count; ++i) to[i] += part[i];
      };
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        kernel.row_moments(shape, columns(x, rank).data(), part.data());
        add(sums);
      }
      Floats statistics;
      const auto pick = [&](const Doubles& of, std::int64_t rank) {
        const Floats some = columns(Floats(of.begin(), of.end()), rank);
        return doubles(some);
      };
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        statistics = sums;
        Floats own(at(rows * h));
        kernel.shared_norm(shape, columns(x, rank).data(), columns(weight, rank).data(),
                           centred ? columns(bias, rank).data() : nullptr, statistics.data(),
                           own.data());
        EXPECT_LE(distance(own, pick(y, rank)), 1e-6);
        kernel.row_gradients(shape, columns(dy, rank).data(), columns(x, rank).data(),
                             statistics.data(), columns(weight, rank).data(), part.data());
        add(gradients);
      }
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        Floats own = columns(dy, rank), d_weight(at(h), 0.0F), d_bias(at(h), 0.0F);
        kernel.shared_norm_backward(shape, own.data(), columns(x, rank).data(), statistics.data(),
                                    gradients.data(), columns(weight, rank).data(),
                                    columns(residual, rank).data(), own.data(), d_weight.data(),
                                    centred ? d_bias.data() : nullptr);
        EXPECT_LE(distance(own, pick(dx, rank)), 2e-6);
        EXPECT_LE(distance(d_weight, pick(dw, rank)), 2e-6);
        if (centred) {
          EXPECT_LE(distance(d_bias, pick(db, rank)), 2e-6);
        }
      }
    }
  }
}

// Heads of queries inside of rows of qkv; in place. Then one norm of the whole width, whose columns
// two ranks share: each has half of them, and both the sums of all.
TEST(KernelForms, NormsOfHeadsAndOfAWidthThatRanksShare) {
  const std::int64_t rows = 6, heads = 3, width = 20, stride = 100;
  const Floats array = noise(rows * stride, 1), gradient = noise(rows * stride, 2),
               weight = noise(heads * width, 3);
  const auto columns_of = [&](const Floats& of, std::int64_t from, std::int64_t cols) {
    Floats some;
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < cols; ++c) some.push_back(of[at(r * stride + from + c)]);
    return some;
  };
  const Floats x = columns_of(array, 0, heads * width), dy = columns_of(gradient, 0, heads * width);
  const Floats of_head(weight.begin(), weight.begin() + width);
  const ExactNorm by_head(width, doubles(x), doubles(dy), doubles(of_head), 0);
  const ExactNorm whole(heads * width, doubles(x), doubles(dy), doubles(weight), 0);
  for (const KernelTable& kernel : kernel_tables()) {
    SCOPED_TRACE(kernel.instruction_set);
    const StridedNorm shape{.rows = rows,
                            .groups = heads,
                            .width = width,
                            .stride = stride,
                            .total = width,
                            .epsilon = 1e-5};
    for (const bool alone : {false, true}) {
      StridedNorm of_heads = shape;
      of_heads.alone = alone;
      Floats y = array, dx = gradient, statistics(at(rows * heads), NAN), sums = statistics,
             dw(at(width), 0.0F);
      if (!alone) kernel.row_squares(of_heads, y.data(), statistics.data());
      kernel.strided_norm(of_heads, y.data(), of_head.data(), statistics.data(), y.data());
      if (!alone)
        kernel.row_products(of_heads, dx.data(), array.data(), of_head.data(), sums.data());
      kernel.strided_norm_backward(of_heads, dx.data(), array.data(), statistics.data(),
                                   sums.data(), of_head.data(), dx.data(), dw.data());
      EXPECT_LE(distance(columns_of(y, 0, 60), by_head.y), 5e-7);
      EXPECT_LE(distance(columns_of(dx, 0, 60), by_head.dx), 1e-6);
      EXPECT_LE(distance(dw, by_head.dw), 1e-6);
      EXPECT_EQ(columns_of(y, 60, 40), columns_of(array, 60, 40));  // what lies beside
    }

    // Ranks 0 and 1 have columns 0 to 29 and 30 to 59.
    StridedNorm half = shape;
    half.groups = 1;
    half.width = 30;
    half.total = 60;
    Floats both(at(rows), 0.0F), products = both;
    for (const std::int64_t rank : {0, 1}) {
      Floats own(at(rows));
      kernel.row_squares(half, array.data() + 30 * rank, own.data());
      for (std::int64_t r = 0; r < rows; ++r) both[at(r)] += own[at(r)];
      kernel.row_products(half, gradient.data() + 30 * rank, array.data() + 30 * rank,
                          weight.data() + 30 * rank, own.data());
      for (std::int64_t r = 0; r < rows; ++r) products[at(r)] += own[at(r)];
    }
    Floats out = array, d_in = gradient, d_weight(at(60), 0.0F);
    for (const std::int64_t rank : {0, 1}) {
      Floats own = both;
      const std::int64_t from = 30 * rank;
      kernel.strided_norm(half, array.data() + from, weight.data() + from, own.data(),
                          out.data() + from);
      kernel.strided_norm_backward(half, gradient.data() + from, array.data() + from, own.data(),
                                   products.data(), weight.data() + from, d_in.data() + from,
                                   d_weight.data() + from);
    }
    EXPECT_LE(distance(columns_of(out, 0, 60), whole.y), 5e-7);
    EXPECT_LE(distance(columns_of(d_in, 0, 60), whole.dx), 1e-6);
    EXPECT_LE(distance(d_weight, whole.dw), 1e-6);
  }
}

// Random123's known answers for philox4x32, 7 rounds and 10.
TEST(KernelForms, PhiloxIsThatOfItsAuthors) {
  const Words zeros{}, digits{0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344};
  EXPECT_EQ(exact_philox(7, zeros, {0, 0}),
            (Words{0x5F6FB709, 0x0D893F64, 0x4F121F81, 0x4F730A48}));
  EXPECT_EQ(exact_philox(7, digits, {0xA4093822, 0x299F31D0}),
            (Words{0x4DFCCABA, 0x190A87F0, 0xC47362BA, 0xB6B5242A}));
  EXPECT_EQ(exact_philox(10, zeros, {0, 0}),
            (Words{0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8}));
  EXPECT_EQ(exact_philox(10, digits, {0xA4093822, 0x299F31D0}),
            (Words{0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1}));
}

TEST(KernelForms, DropoutKeepsByTheElementsPlaceAlone) {
  const std::int64_t rows = 9, cols = 203;
  DropoutShape drop = dropout_of(0.25, 7, 11, 3, DropoutSite::MlpOutput);
  drop.first = 0xFFFFFFFCLL;  // rows cross 2^32
  const Floats x = noise(rows * cols, 1), z = noise(rows * cols, 2), bias = noise(cols, 3);
  for (const KernelTable& kernel : kernel_tables()) {
    SCOPED_TRACE(kernel.instruction_set);
    Floats y(x.size()), sum(x.size());
    kernel.dropout(rows, cols, drop, x.data(), y.data());
    kernel.add_residual(rows, cols, z.data(), x.data(), bias.data(), drop, sum.data());
    for (std::int64_t i = 0; i < rows * cols; ++i) {
      const double factor = kept(drop, i / cols, i % cols);
      ASSERT_FLOAT_EQ(y[at(i)], static_cast<float>(d(x, i) * factor)) << i;
      ASSERT_NEAR(d(sum, i), d(z, i) + (d(x, i) + d(bias, i % cols)) * factor, 1e-6) << i;
    }
    // Rows of a later rank, or of another cut of the batch, are dropped alike.
    Floats later(at(2 * cols));
    DropoutShape from_fifth = drop;
    from_fifth.first += 5;
    kernel.dropout(2, cols, from_fifth, x.data() + 5 * cols, later.data());
    EXPECT_TRUE(std::equal(later.begin(), later.end(), y.begin() + 5 * cols));
  }
}

// Of n elements about p n are dropped; the deviation is sqrt(n p (1 - p)). Another step, layer or
// site drops others: two masks agree where both keep or both drop, p^2 + (1 - p)^2 of all.
TEST(KernelForms, DropoutDropsItsRateAndOthersElsewhere) {
  const std::int64_t rows = 200, cols = 500;
  const double n = static_cast<double>(rows * cols);
  const Floats ones(at(rows * cols), 1.0F);
  const auto mask = [&](double rate, std::int64_t step, std::int64_t layer, DropoutSite site) {
    Floats y(ones.size());
    kernels().dropout(rows, cols, dropout_of(rate, 1, step, layer, site), ones.data(), y.data());
    return y;
  };
  for (const double rate : {0.1, 0.5, 0.9}) {
    const Floats y = mask(rate, 0, 0, DropoutSite::Embedding);
    const auto zeros = static_cast<double>(std::count(y.begin(), y.end(), 0.0F));
    EXPECT_NEAR(zeros, rate * n, 5 * std::sqrt(n * rate * (1 - rate)));
    // A rate is a multiple of 2^-16: the scale's error is as much, times its square.
    const double scale = 1 / (1 - rate);
    for (const float value : y) {
      if (value == 0) continue;
      ASSERT_NEAR(static_cast<double>(value), scale, scale * scale * 0x1p-16);
    }
    for (const Floats& other :
         {mask(rate, 1, 0, DropoutSite::Embedding), mask(rate, 0, 1, DropoutSite::Embedding),
          mask(rate, 0, 0, DropoutSite::MlpOutput)}) {
      double alike = 0;
      for (std::size_t i = 0; i < y.size(); ++i) alike += y[i] == other[i] ? 1 : 0;
      const double share = rate * rate + (1 - rate) * (1 - rate);
      EXPECT_NEAR(alike, share * n, 5 * std::sqrt(n * share * (1 - share)));
    }
  }
}

// l = c tanh(z / c) and its gradient by z, in place of the logits.
TEST(KernelForms, LossOverCappedLogits) {
  const std::int64_t columns = 70, valid = 67, target = 5;
  const double cap = 3;
  const VocabularyShape shape{.columns = columns, .valid = valid, .softcap = 3};
  Floats z = noise(columns, 1);
  for (float& each : z) each *= 4;
  const auto loss_of = [&](const Doubles& at_z) {
    double sum = 0;
    for (std::int64_t c = 0; c < valid; ++c) sum += std::exp(cap * std::tanh(at_z[at(c)] / cap));
    return std::log(sum) - cap * std::tanh(at_z[at(target)] / cap);
  };
  const std::int32_t targets[] = {target};
  for (const KernelTable& kernel : kernel_tables()) {
    SCOPED_TRACE(kernel.instruction_set);
    Floats logits = z;
    float maximum = 0, sums[2], loss = 0;
    kernel.softcap(columns, cap, logits.data());
    kernel.cross_entropy(1, shape, targets, 0.5F, &maximum, sums, logits.data(), &loss);
    EXPECT_NEAR(static_cast<double>(loss), 0.5 * loss_of(doubles(z)), 1e-6);
    for (std::int64_t c = 0; c < columns; ++c) {
      Doubles more = doubles(z), less = more;
      more[at(c)] += 1e-5;
      less[at(c)] -= 1e-5;
      EXPECT_NEAR(d(logits, c), 0.5 * (loss_of(more) - loss_of(less)) / 2e-5, 3e-7) << c;
    }
  }
}

TEST(KernelForms, ScaledEmbeddingAndItsGradient) {
  const std::int64_t h = 5;
  const VocabularyShape shape{.columns = 4, .valid = 4, .scale = 3};
  const Floats table = noise(4 * h, 1), dy = noise(3 * h, 2);
  const std::int32_t ids[] = {2, 0, 2};
  for (const KernelTable& kernel : kernel_tables()) {
    Floats out(dy.size()), d_table(table.size(), 0.0F);
    std::int32_t order[3];
    kernel.embed(3, h, ids, table.data(), shape, out.data());
    kernel.embed_backward(3, h, ids, dy.data(), shape, order, d_table.data());
    for (std::int64_t i = 0; i < h; ++i) {
      EXPECT_FLOAT_EQ(out[at(i)], 3 * table[at(2 * h + i)]);
      EXPECT_FLOAT_EQ(d_table[at(2 * h + i)], 3 * dy[at(i)] + 3 * dy[at(2 * h + i)]);
      EXPECT_FLOAT_EQ(d_table[at(i)], 3 * dy[at(h + i)]);
    }
  }
}

}  // namespace
}  // namespace rehearse::exec
