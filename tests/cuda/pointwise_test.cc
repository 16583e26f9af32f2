// SPDX-License-Identifier: Apache-2.0
// Biases, residuals, activations, rotary positions and plain arrays against
// the CPU.
#include "exec/cpu/kernels/table.h"
#include "tests/cuda/memory.h"

namespace rehearse::exec::cuda::testing {
namespace {

class PointwiseTest : public KernelTest {
 protected:
  std::vector<float> random(std::int64_t count, unsigned seed, float spread = 1.0F) const {
    return rounded(random_values(count, seed, spread), type());
  }
};
const std::pair<std::int64_t, std::int64_t> kShapes[] = {{9, 264}, {5, 7}, {300, 8}};

TEST_P(PointwiseTest, AddsABias) {
  for (const auto& [rows, cols] : kShapes) {
    const auto bias = random(cols, 1), y = random(rows * cols, 2);
    auto expected = y;
    for (std::int64_t r = 0; r < rows; ++r) {
      float* row = expected.data() + r * cols;
      kernels().add_residual(1, cols, row, bias.data(), nullptr, {}, row);
    }
    Memory m(type());
    Array &b = m.values(bias), &out = m.values(y);
    m.run([&, rows = rows, cols = cols] {
      return add_bias(nullptr, type(), rows, cols, b.at(), out.at());
    });
    expect_close(out.values(), rounded(expected, type()), 0, "y");
  }
}

TEST_P(PointwiseTest, AddsAResidualInPlace) {
  for (const auto& [rows, cols] : kShapes) {
    for (const bool with_bias : {false, true}) {
      const auto x = random(rows * cols, 1), y = random(rows * cols, 2), bias = random(cols, 3);
      std::vector<float> expected(x.size());
      kernels().add_residual(rows, cols, x.data(), y.data(), with_bias ? bias.data() : nullptr, {},
                             expected.data());
      Memory m(type());
      Array &a = m.values(x), &out = m.values(y), &b = m.values(bias);
      m.run([&, rows = rows, cols = cols] {
        return add_residual(nullptr, type(), rows, cols, a.at(), out.at(),
                            with_bias ? b.at() : nullptr, {}, out.at());
      });
      expect_close(out.values(), rounded(expected, type()), 0, "out");
    }
  }
}

const ActivationKind kKinds[] = {ActivationKind::GeluTanh,  ActivationKind::GeluExact,
                                 ActivationKind::QuickGelu, ActivationKind::Relu,
                                 ActivationKind::Relu2,     ActivationKind::Silu,
                                 ActivationKind::Tanh};

TEST_P(PointwiseTest, Activations) {
  for (const ActivationKind kind : kKinds) {
    SCOPED_TRACE(static_cast<int>(kind));
    for (const std::int64_t count : {4096, 1001}) {
      const auto u = random(count, 1, 2.0F), dg = random(count, 2);
      std::vector<float> g(u.size()), du(u.size());
      kernels().activation(kind, count, u.data(), g.data());
      kernels().activation_backward(kind, count, dg.data(), u.data(), du.data());
      Memory m(type());
      Array &in = m.values(u), &out = m.empty(count), &d = m.values(dg);
      m.run([&] {
        const int status = activation(nullptr, type(), kind, count, in.at(), out.at());
        return status != 0
                   ? status
                   : activation_backward(nullptr, type(), kind, count, d.at(), in.at(), d.at());
      });
      expect_close(out.values(), g, tolerance(), "g");
      expect_close(d.values(), du, tolerance(), "du");
    }
  }
}

TEST_P(PointwiseTest, Gates) {
  for (const ActivationKind kind : kKinds) {
    SCOPED_TRACE(static_cast<int>(kind));
    for (const auto& [rows, f] : kShapes) {
      const auto u = random(rows * 2 * f, 1, 2.0F), dg = random(rows * f, 2);
      std::vector<float> g(dg.size()), du(u.size());
      kernels().gated(kind, rows, f, u.data(), g.data());
      kernels().gated_backward(kind, rows, f, dg.data(), u.data(), du.data());
      Memory m(type());
      Array &in = m.values(u), &out = m.empty(rows * f), &d = m.values(dg),
            &to = m.empty(rows * 2 * f);
      m.run([&, rows = rows, f = f] {
        const int status = gated(nullptr, type(), kind, rows, f, in.at(), out.at());
        return status != 0
                   ? status
                   : gated_backward(nullptr, type(), kind, rows, f, d.at(), in.at(), to.at());
      });
      expect_close(out.values(), g, tolerance(), "g");
      expect_close(to.values(), du, tolerance(), "du");
    }
  }
}

// The same elements as on the CPU, whatever the width of an access: 70 columns end inside of a run,
// 7 are read one by one.
TEST_P(PointwiseTest, Drops) {
  DropoutShape drop = dropout_of(0.4, 1, 2, 3, DropoutSite::MlpOutput);
  drop.first = 0xFFFFFFFDLL;
  for (const auto& [rows, cols] :
       {std::pair<std::int64_t, std::int64_t>{9, 264}, {5, 7}, {3, 72}, {4, 70}}) {
    const auto x = random(rows * cols, 1), y = random(rows * cols, 2), bias = random(cols, 3);
    std::vector<float> dropped(x.size()), sum(x.size());
    kernels().dropout(rows, cols, drop, y.data(), dropped.data());
    kernels().add_residual(rows, cols, x.data(), y.data(), bias.data(), drop, sum.data());
    Memory m(type());
    Array &a = m.values(x), &in = m.values(y), &b = m.values(bias), &out = m.empty(rows * cols);
    m.run([&, rows = rows, cols = cols] {
      const int status =
          add_residual(nullptr, type(), rows, cols, a.at(), in.at(), b.at(), drop, out.at());
      return status != 0 ? status : dropout(nullptr, type(), rows, cols, drop, in.at(), in.at());
    });
    expect_close(in.values(), rounded(dropped, type()), 0, "dropped");
    expect_close(out.values(), sum, tolerance(), "sum");
  }
}

TEST_P(PointwiseTest, CapsLogits) {
  for (const std::int64_t count : {1024, 77}) {
    const auto x = rounded(random_values(count, 1, 20.0F), type());
    auto expected = x;
    kernels().softcap(count, 15, expected.data());
    Memory m(type());
    Array& out = m.values(x);
    m.run([&] { return softcap(nullptr, type(), count, 15, out.at()); });
    expect_close(out.values(), expected, tolerance(), "capped");
  }
}

TEST_P(PointwiseTest, RotatesQueriesAndKeysAndBack) {
  // 3 rotated heads of 4; the last, the values, stays. Some columns of a head may stay too.
  const std::vector<double> frequencies = [] {
    std::vector<double> made;
    for (int i = 0; i < 64; ++i) made.push_back(std::pow(10000.0, -i / 32.0));
    return made;
  }();
  for (const auto& [head_dim, rotary_dim] :
       {std::pair<std::int64_t, std::int64_t>{64, 64}, {10, 10}, {128, 128}, {64, 32}, {80, 20}}) {
    for (const bool interleaved : {false, true}) {
      const std::int64_t tokens = 12, sequence = 6, columns = 4 * head_dim;
      SCOPED_TRACE(std::to_string(head_dim) + (interleaved ? " interleaved" : " halves"));
      const auto x = random(tokens * columns, 1);
      auto expected = x;
      const AttentionShape shape{.tokens = tokens,
                                 .sequence = sequence,
                                 .heads = 2,
                                 .kv_heads = 1,
                                 .head_dim = head_dim,
                                 .first = 4};
      const RotaryShape rotary{.inverse_frequency = frequencies.data(),
                               .rotary_dim = rotary_dim,
                               .interleaved = interleaved};
      kernels().rope(shape, rotary, false, expected.data());
      Memory m(type());
      Array &forth = m.values(x), &back = m.values(expected);
      m.run([&] {
        const int status = rope(nullptr, type(), shape, rotary, false, forth.at());
        return status != 0 ? status : rope(nullptr, type(), shape, rotary, true, back.at());
      });
      expect_close(forth.values(), expected, tolerance(), "rotated");
      expect_close(back.values(), x, tolerance(), "rotated back");
    }
  }
}

TEST_P(PointwiseTest, RotationCarriesItsFactorBothWays) {
  const std::int64_t columns = 3 * 16;
  const double frequency[8] = {1, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0};
  const AttentionShape shape{.tokens = 4, .sequence = 4, .heads = 1, .kv_heads = 1, .head_dim = 16};
  const RotaryShape rotary{frequency, 16, 1.25, false};
  const auto x = random(4 * columns, 1);
  for (const bool inverse : {false, true}) {
    auto expected = x;
    kernels().rope(shape, rotary, inverse, expected.data());
    Memory m(type());
    Array& out = m.values(x);
    m.run([&] { return rope(nullptr, type(), shape, rotary, inverse, out.at()); });
    expect_close(out.values(), expected, tolerance(), "rotated");
  }
}

TEST_P(PointwiseTest, Casts) {
  const auto values = random(2048 + 3, 1);
  for (const std::int64_t count : {2048, 2051}) {
    Memory m(type());
    Array& from = m.floats({values.begin(), values.begin() + count});
    Array &there = m.empty(count), &back = m.empty_floats(count);
    m.run([&] {
      const int status = cast(nullptr, Type::Float32, type(), count, from.at(), there.at());
      return status != 0 ? status
                         : cast(nullptr, type(), Type::Float32, count, there.at(), back.at());
    });
    const std::vector<float> expected(values.begin(), values.begin() + count);
    expect_close(there.values(), expected, 0, "there");
    expect_close(back.values(), expected, 0, "back");
  }
}

TEST_P(PointwiseTest, RoundsToNearestEvenInBf16) {
  // Halfway between two neighbours, just above, and what has no neighbour above.
  const std::vector<float> values = {1.00390625F, 1.01171875F, 1.00390637F, 3.4e38F, -0.0F, 1e-40F};
  Memory m(type());
  Array &from = m.floats(values), &to = m.empty(static_cast<std::int64_t>(values.size()));
  m.run([&] {
    return cast(nullptr, Type::Float32, type(), static_cast<std::int64_t>(values.size()), from.at(),
                to.at());
  });
  const auto actual = to.values(), expected = rounded(values, type());
  for (std::size_t k = 0; k < values.size(); ++k) EXPECT_EQ(actual[k], expected[k]) << values[k];
}

TEST_P(PointwiseTest, TempersQueriesByTheirPositions) {
  for (const std::int64_t head_dim : {16, 5}) {
    const AttentionShape shape{
        .tokens = 19, .sequence = 12, .heads = 3, .kv_heads = 1, .head_dim = head_dim, .first = 4};
    const Temperature temperature{.scale = 0.7, .floor = 3};
    const auto qkv = random(shape.tokens * shape.columns(), 1);
    auto expected = qkv;
    kernels().temper_queries(shape, temperature, expected.data());
    Memory m(type());
    Array& out = m.values(qkv);
    m.run([&] { return temper_queries(nullptr, type(), shape, temperature, out.at()); });
    expect_close(out.values(), rounded(expected, type()), tolerance(), "qkv");
  }
}

TEST_P(PointwiseTest, Fills) {
  for (const std::int64_t count : {1024, 7}) {
    Memory m(type());
    Array& out = m.empty_floats(count);
    m.run([&] { return fill(nullptr, count, 2.5F, out.at<float>()); });
    expect_close(out.values(), std::vector<float>(static_cast<std::size_t>(count), 2.5F), 0, "out");
  }
}

TEST_P(PointwiseTest, AddsMembersInTheirOrderInPlace) {
  for (const std::int64_t count : {1000, 13}) {
    std::vector<std::vector<float>> members;
    for (unsigned k = 0; k < 3; ++k) members.push_back(random(count, k));
    std::vector<float> sum(members[0]), top(members[0]);
    for (std::size_t k = 1; k < 3; ++k) {
      for (std::size_t i = 0; i < sum.size(); ++i) {
        sum[i] += members[k][i];
        top[i] = std::max(top[i], members[k][i]);
      }
    }
    for (const Reduction reduction : {Reduction::Sum, Reduction::Maximum}) {
      Memory m(type());
      Array &a = m.values(members[0]), &b = m.values(members[1]), &c = m.values(members[2]);
      m.run([&] {
        const void* const in[] = {a.at(), b.at(), c.at()};
        void* const out[] = {a.at(), b.at(), c.at()};
        return reduce_arrays(nullptr, type(), reduction, count, in, out);
      });
      const auto expected = rounded(reduction == Reduction::Sum ? sum : top, type());
      for (const Array* array : {&a, &b, &c}) expect_close(array->values(), expected, 0, "member");
    }
  }
}

TEST_P(PointwiseTest, AddsDoubles) {
  Memory m(type());
  Array &a = m.raw<double>({1, 1e300, 3}), &b = m.raw<double>({0.5, 1e300, -3});
  m.run([&] {
    const double* const in[] = {a.at<double>(), b.at<double>()};
    double* const out[] = {a.at<double>(), b.at<double>()};
    return reduce_doubles(nullptr, 3, in, out);
  });
  EXPECT_EQ(b.as<double>(), (std::vector<double>{1.5, 2e300, 0}));
}

TEST_P(PointwiseTest, FindsTheLargestDifferenceInSomeColumns) {
  const std::int64_t rows = 70, columns = 50, stride = 60;
  std::vector<float> a = random(rows * stride, 1), b = a;
  a[5] = b[5] = NAN;
  a[7] = b[7] = -8;
  b[69 * 60 + 49] += 0.5F;  // the last that counts
  b[69 * 60 + 50] = 1e6F;
  for (const float found : {0.5F, INFINITY}) {
    Memory m(type());
    Array &a_m = m.values(a), &b_m = m.values(b), &out = m.empty_floats(2);
    m.run([&] {
      return largest_difference(nullptr, type(), rows, columns, stride, a_m.at(), b_m.at(),
                                out.at<float>());
    });
    const auto numbers = out.as<float>();
    if (std::isinf(found)) {
      EXPECT_EQ(numbers[0], found);
    } else {
      EXPECT_NEAR(numbers[0], found, type() == Type::Float32 ? 1e-6 : 1.0 / 64);
    }
    EXPECT_EQ(numbers[1], 8);
    b[6] = NAN;
  }
}

REHEARSE_ALL_TYPES(PointwiseTest);

}  // namespace
}  // namespace rehearse::exec::cuda::testing
