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
      kernels().add_residual(1, cols, row, bias.data(), nullptr, row);
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
      kernels().add_residual(rows, cols, x.data(), y.data(), with_bias ? bias.data() : nullptr,
                             expected.data());
      Memory m(type());
      Array &a = m.values(x), &out = m.values(y), &b = m.values(bias);
      m.run([&, rows = rows, cols = cols] {
        return add_residual(nullptr, type(), rows, cols, a.at(), out.at(),
                            with_bias ? b.at() : nullptr, out.at());
      });
      expect_close(out.values(), rounded(expected, type()), 0, "out");
    }
  }
}

TEST_P(PointwiseTest, Gelu) {
  for (const std::int64_t count : {4096, 1001}) {
    const auto u = random(count, 1, 2.0F), dg = random(count, 2);
    std::vector<float> g(u.size()), du(u.size());
    kernels().gelu(count, u.data(), g.data());
    kernels().gelu_backward(count, dg.data(), u.data(), du.data());
    Memory m(type());
    Array &in = m.values(u), &out = m.empty(count), &d = m.values(dg);
    m.run([&] {
      const int status = gelu(nullptr, type(), count, in.at(), out.at());
      return status != 0 ? status : gelu_backward(nullptr, type(), count, d.at(), in.at(), d.at());
    });
    expect_close(out.values(), g, tolerance(), "g");
    expect_close(d.values(), du, tolerance(), "du");
  }
}

TEST_P(PointwiseTest, Swiglu) {
  for (const auto& [rows, f] : kShapes) {
    const auto u = random(rows * 2 * f, 1, 2.0F), dg = random(rows * f, 2);
    std::vector<float> g(dg.size()), du(u.size());
    kernels().swiglu(rows, f, u.data(), g.data());
    kernels().swiglu_backward(rows, f, dg.data(), u.data(), du.data());
    Memory m(type());
    Array &in = m.values(u), &out = m.empty(rows * f), &d = m.values(dg),
          &to = m.empty(rows * 2 * f);
    m.run([&, rows = rows, f = f] {
      const int status = swiglu(nullptr, type(), rows, f, in.at(), out.at());
      return status != 0 ? status
                         : swiglu_backward(nullptr, type(), rows, f, d.at(), in.at(), to.at());
    });
    expect_close(out.values(), g, tolerance(), "g");
    expect_close(to.values(), du, tolerance(), "du");
  }
}

TEST_P(PointwiseTest, RotatesQueriesAndKeysAndBack) {
  // 3 rotated heads of 4; the last, the values, stays.
  for (const std::int64_t head_dim : {64, 10, 128}) {
    const std::int64_t tokens = 12, sequence = 6, columns = 4 * head_dim;
    const auto x = random(tokens * columns, 1);
    auto expected = x;
    const AttentionShape shape{.tokens = tokens,
                               .sequence = sequence,
                               .heads = 2,
                               .kv_heads = 1,
                               .head_dim = head_dim,
                               .first = 4};
    kernels().rope(shape, 10000.0, false, expected.data());
    Memory m(type());
    Array &forth = m.values(x), &back = m.values(expected);
    m.run([&] {
      const int status = rope(nullptr, type(), shape, 10000.0, false, forth.at());
      return status != 0 ? status : rope(nullptr, type(), shape, 10000.0, true, back.at());
    });
    expect_close(forth.values(), expected, tolerance(), "rotated");
    expect_close(back.values(), x, tolerance(), "rotated back");
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

REHEARSE_BOTH_TYPES(PointwiseTest);

}  // namespace
}  // namespace rehearse::exec::cuda::testing
