// SPDX-License-Identifier: Apache-2.0
// exec/cuda/calls/gemm.cc against the CPU: on a GPU with cuBLASLt, else with a double of it.
#include "exec/cuda/calls/gemm.h"

#include "exec/cpu/kernels/table.h"
#include "tests/cuda/memory.h"

namespace rehearse::exec::cuda::testing {
namespace {

std::size_t size(std::int64_t count) {
  return static_cast<std::size_t>(count);
}

class GemmTest : public KernelTest {
 protected:
  void SetUp() override {
    KernelTest::SetUp();
    if (!IsSkipped()) gemm_ = std::make_unique<Gemm>();
  }
  std::vector<float> random(std::int64_t count, unsigned seed) const {
    return rounded(random_values(count, seed), type());
  }
  // The three products of a linear layer (m tokens, k inputs, n outputs); w and bias lie `shift`
  // elements off an aligned address.
  void check(std::int64_t m, std::int64_t n, std::int64_t k, std::size_t shift = 0) {
    SCOPED_TRACE(std::to_string(m) + " x " + std::to_string(n) + " x " + std::to_string(k));
    const auto x = random(m * k, 1), w = random(n * k, 2), bias = random(n, 3),
               dy = random(m * n, 4);
    const auto before = random_values(n * k, 5);
    std::vector<float> plain(size(m * n)), dx(size(m * k)), dw = before;
    kernels().linear(m, n, k, x.data(), w.data(), nullptr, plain.data());
    std::vector<float> y = plain;
    kernels().linear(m, n, k, x.data(), w.data(), bias.data(), y.data());
    kernels().linear_input(m, n, k, dy.data(), w.data(), dx.data());
    kernels().linear_weight(m, n, k, dy.data(), x.data(), dw.data());

    Memory d(type());
    Array &x_at = d.values(x), &w_at = d.values(w, shift), &b_at = d.values(bias, shift);
    Array &dy_at = d.values(dy), &y_at = d.empty(m * n), &plain_at = d.empty(m * n);
    Array &exact = d.empty_floats(m * n), &dx_at = d.empty(m * k), &dw_at = d.floats(before);
    Array& room = d.scratch(1 << 20);
    d.run([&] {
      const GemmWorkspace workspace{room.at(), 1 << 20};
      int status = gemm_->linear(nullptr, type(), m, n, k, x_at.at(), w_at.at(), b_at.at(),
                                 y_at.at(), workspace);
      if (status == 0) {
        status = gemm_->linear(nullptr, type(), m, n, k, x_at.at(), w_at.at(), nullptr,
                               plain_at.at(), workspace);
      }
      if (status == 0) {
        status = gemm_->linear_fp32(nullptr, type(), m, n, k, x_at.at(), w_at.at(),
                                    exact.at<float>(), workspace);
      }
      if (status == 0) {
        status = gemm_->linear_input(nullptr, type(), m, n, k, dy_at.at(), w_at.at(), dx_at.at(),
                                     workspace);
      }
      if (status == 0) {
        status = gemm_->linear_weight(nullptr, type(), m, n, k, dy_at.at(), x_at.at(),
                                      dw_at.at<float>(), workspace);
      }
      return status;
    });
    // A bias that is added by its own kernel meets a product that was rounded before.
    expect_close(y_at.values(), y, 2 * tolerance(), "y");
    expect_close(plain_at.values(), plain, tolerance(), "y without bias");
    expect_close(exact.values(), plain, 3e-6, "y in fp32");
    expect_close(dx_at.values(), dx, tolerance(), "dx");
    expect_close(dw_at.values(), dw, 3e-6, "dw");
  }
  std::unique_ptr<Gemm> gemm_;
};

TEST_P(GemmTest, OfAWholeLayer) {
  check(24, 40, 16);
}
TEST_P(GemmTest, OfParametersThatAreNotAligned) {
  check(16, 8, 32, 2);
}

TEST_P(GemmTest, KeepsOnePlanPerShapeAndAlignment) {
  gemm_->tune(false);
  check(8, 16, 32);
  const std::int64_t plans = gemm_->plans();
  EXPECT_EQ(plans, 5);  // with bias, without, in fp32, input, weight
  check(8, 16, 32);
  EXPECT_EQ(gemm_->plans(), plans);
  check(8, 16, 32, 2);  // own plans for what reads w; a bias off 16 bytes leaves one product
  EXPECT_EQ(gemm_->plans(), plans + 3);
  EXPECT_EQ(gemm_->timed(), 0);
}

// The products of a vocabulary that no vector divides, whose logits have room behind every row.
TEST_P(GemmTest, OfLogitsWhoseRowsAreLonger) {
  const std::int64_t m = 12, n = 19, k = 16, stride = 24;
  const auto x = random(m * k, 1), w = random(n * k, 2), before = random_values(n * k, 3);
  std::vector<float> dy = random(m * stride, 4);
  for (std::int64_t r = 0; r < m; ++r) {
    std::fill(dy.begin() + r * stride + n, dy.begin() + (r + 1) * stride, NAN);
  }
  std::vector<float> y(size(m * stride), 7), dx(size(m * k)), dw = before;
  kernels().logits(m, n, k, stride, x.data(), w.data(), y.data());
  kernels().logits_input(m, n, k, stride, dy.data(), w.data(), dx.data());
  kernels().logits_weight(m, n, k, stride, dy.data(), x.data(), dw.data());
  EXPECT_EQ(y[size(n)], 7);  // what lies behind a row stays
  std::vector<float> packed(size(m * n));
  kernels().linear(m, n, k, x.data(), w.data(), nullptr, packed.data());
  for (std::int64_t i = 0; i < m * n; ++i) {
    EXPECT_EQ(y[size(i / n * stride + i % n)], packed[size(i)]);
  }

  Memory d(type());
  Array &x_at = d.values(x), &w_at = d.values(w), &dy_at = d.values(dy);
  Array &y_at = d.values(std::vector<float>(y.size(), 7)), &dx_at = d.empty(m * k);
  Array &dw_at = d.floats(before), &room = d.scratch(1 << 20);
  d.run([&] {
    const GemmWorkspace workspace{room.at(), 1 << 20};
    int status =
        gemm_->logits(nullptr, type(), m, n, k, stride, x_at.at(), w_at.at(), y_at.at(), workspace);
    if (status == 0) {
      status = gemm_->logits_input(nullptr, type(), m, n, k, stride, dy_at.at(), w_at.at(),
                                   dx_at.at(), workspace);
    }
    if (status == 0) {
      status = gemm_->logits_weight(nullptr, type(), m, n, k, stride, dy_at.at(), x_at.at(),
                                    dw_at.at<float>(), workspace);
    }
    return status;
  });
  expect_close(y_at.values(), y, tolerance(), "logits");
  expect_close(dx_at.values(), dx, tolerance(), "dx");
  expect_close(dw_at.values(), dw, 3e-6, "dw");
}

TEST_P(GemmTest, GeluInTheEpilogue) {
  const std::int64_t m = 16, n = 24, k = 32;
  const auto x = random(m * k, 1), w = random(n * k, 2), bias = random(n, 3);
  const auto dz = random(m * k, 4), w2 = random(k * n, 5);
  std::vector<float> u(size(m * n)), y(size(m * n)), dy(size(m * n)), du(size(m * n));
  kernels().linear(m, n, k, x.data(), w.data(), bias.data(), u.data());
  kernels().activation(ActivationKind::GeluTanh, m * n, u.data(), y.data());
  // The product after it: z(m, k) = y w2(k, n)^T.
  const auto u_rounded = rounded(u, type());
  kernels().linear_input(m, k, n, dz.data(), w2.data(), dy.data());
  kernels().activation_backward(ActivationKind::GeluTanh, m * n, dy.data(), u_rounded.data(),
                                du.data());

  Memory d(type());
  Array &x_at = d.values(x), &w_at = d.values(w), &b_at = d.values(bias), &u_at = d.empty(m * n);
  Array &y_at = d.empty(m * n), &dz_at = d.values(dz), &w2_at = d.values(w2),
        &du_at = d.empty(m * n);
  Array &u_in = d.values(u), &room = d.scratch(1 << 20);
  d.run([&] {
    const GemmWorkspace workspace{room.at(), 1 << 20};
    const int status = gemm_->linear_gelu(nullptr, type(), m, n, k, x_at.at(), w_at.at(), b_at.at(),
                                          u_at.at(), y_at.at(), workspace);
    const int back = gemm_->linear_input_gelu(nullptr, type(), m, k, n, dz_at.at(), w2_at.at(),
                                              u_in.at(), du_at.at(), workspace);
    if (type() == Type::Float32) return status == 801 && back == 801 ? 0 : 1;  // not supported
    return status != 0 ? status : back;
  });
  if (type() == Type::Float32) return;
  expect_close(u_at.values(), u, tolerance(), "u");
  expect_close(y_at.values(), y, tolerance(), "y");
  expect_close(du_at.values(), du, 2 * tolerance(), "du");
}

// Rows of two parts that lie apart, in one launch: what is between them stays.
TEST_P(GemmTest, PiecesOfRowsThatLieApart) {
  const PieceShape p{.parts = 2, .rows = 8, .apart = 24, .n = 24, .k = 32};
  const std::int64_t rows = p.apart + p.rows;
  const auto x = random(rows * p.k, 1), w = random(p.n * p.k, 2), bias = random(p.n, 3);
  const auto dy = random(rows * p.n, 4), u = random(rows * p.k, 5);
  std::vector<float> y(size(rows * p.n), 7), plain = y, g = y, sum = y;
  std::vector<float> dx(size(rows * p.k), 7), du = dx;
  kernels().linear_piece(p, x.data(), w.data(), bias.data(), y.data());
  kernels().linear_piece(p, x.data(), w.data(), nullptr, plain.data());
  kernels().linear_gelu_piece(p, x.data(), w.data(), bias.data(), sum.data(), g.data());
  kernels().linear_input_piece(p, dy.data(), w.data(), dx.data());
  kernels().linear_input_gelu_piece(p, dy.data(), w.data(), u.data(), du.data());
  EXPECT_EQ(y[size(p.rows * p.n)], 7);
  for (const std::size_t shift : {std::size_t{0}, std::size_t{1}}) {  // of the bias
    Memory d(type());
    const auto sevens = [&](std::int64_t columns) -> Array& {
      return d.values(std::vector<float>(size(rows * columns), 7));
    };
    Array &x_at = d.values(x), &w_at = d.values(w), &b_at = d.values(bias, shift);
    Array &dy_at = d.values(dy), &u_at = d.values(u), &y_at = sevens(p.n), &plain_at = sevens(p.n);
    Array &sum_at = sevens(p.n), &g_at = sevens(p.n), &dx_at = sevens(p.k), &du_at = sevens(p.k);
    Array& room = d.scratch(1 << 20);
    const bool fuses = type() != Type::Float32 && shift == 0;
    d.run([&] {
      const GemmWorkspace workspace{room.at(), 1 << 20};
      int status = gemm_->linear_piece(nullptr, type(), p, x_at.at(), w_at.at(), b_at.at(),
                                       y_at.at(), workspace);
      if (status == 0) {
        status = gemm_->linear_piece(nullptr, type(), p, x_at.at(), w_at.at(), nullptr,
                                     plain_at.at(), workspace);
      }
      if (status == 0) {
        status = gemm_->linear_input_piece(nullptr, type(), p, dy_at.at(), w_at.at(), dx_at.at(),
                                           workspace);
      }
      const int forward = gemm_->linear_gelu_piece(nullptr, type(), p, x_at.at(), w_at.at(),
                                                   b_at.at(), sum_at.at(), g_at.at(), workspace);
      if (status == 0 && forward != (fuses ? 0 : 801)) return 1;
      if (status != 0 || type() == Type::Float32) return status;
      return gemm_->linear_input_gelu_piece(nullptr, type(), p, dy_at.at(), w_at.at(), u_at.at(),
                                            du_at.at(), workspace);
    });
    expect_close(y_at.values(), y, 2 * tolerance(), "y");
    expect_close(plain_at.values(), plain, tolerance(), "y without bias");
    expect_close(dx_at.values(), dx, tolerance(), "dx");
    if (type() != Type::Float32) expect_close(du_at.values(), du, 2 * tolerance(), "du");
    if (!fuses) continue;
    expect_close(sum_at.values(), sum, tolerance(), "u");
    expect_close(g_at.values(), g, 2 * tolerance(), "gelu");
  }
}

TEST_P(GemmTest, WeightAndBiasGradientsAtOnce) {
  const std::int64_t m = 16, n = 24, k = 32;
  const auto x = random(m * k, 1), dy = random(m * n, 2);
  const auto before = random_values(n * k, 3), sums_before = random_values(n, 4);
  std::vector<float> dw = before, sums = sums_before;
  kernels().linear_weight_bias(m, n, k, dy.data(), x.data(), dw.data(), sums.data());
  Memory d(type());
  Array &x_at = d.values(x), &dy_at = d.values(dy), &dw_at = d.floats(before);
  Array &sums_at = d.floats(sums_before), &room = d.scratch(1 << 20);
  Array& scratch = d.scratch(Gemm::bias_scratch(m, n));
  d.run([&] {
    return gemm_->linear_weight_bias(nullptr, type(), m, n, k, dy_at.at(), x_at.at(),
                                     dw_at.at<float>(), sums_at.at<float>(), {room.at(), 1 << 20},
                                     scratch.at());
  });
  expect_close(dw_at.values(), dw, 3e-6, "dw");
  expect_close(sums_at.values(), sums, 3e-6, "bias");
}

// Timing runs a product several times, which must not show in a gradient that it adds to.
TEST_P(GemmTest, TunesOncePerShapeAndLeavesGradientsAlone) {
  const std::int64_t m = 16, n = 24, k = 32;
  const auto x = random(m * k, 1), dy = random(m * n, 2);
  const auto before = random_values(n * k, 3);
  std::vector<float> expected = before;
  kernels().linear_weight(m, n, k, dy.data(), x.data(), expected.data());
  Memory d(type());
  Array &x_at = d.values(x), &dy_at = d.values(dy), &dw = d.floats(before),
        &room = d.scratch(1 << 20);
  const auto launch = [&] {
    return gemm_->linear_weight(nullptr, type(), m, n, k, dy_at.at(), x_at.at(), dw.at<float>(),
                                {room.at(), 1 << 20});
  };
  d.run(launch);
  expect_close(dw.values(), expected, 3e-6, "dw");
  EXPECT_EQ(gemm_->plans(), 1);
  const std::int64_t timed = gemm_->timed();
  EXPECT_EQ(timed > 1, type() != Type::Float32);  // fp32 is for exact tests: no choice by time
  d.run(launch);
  EXPECT_EQ(gemm_->timed(), timed);
}

REHEARSE_ALL_TYPES(GemmTest);

}  // namespace
}  // namespace rehearse::exec::cuda::testing
