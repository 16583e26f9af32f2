// SPDX-License-Identifier: Apache-2.0
// Norms and column sums against the CPU.
#include "exec/cpu/kernels/table.h"
#include "tests/cuda/memory.h"

namespace rehearse::exec::cuda::testing {
namespace {

std::size_t size(std::int64_t count) {
  return static_cast<std::size_t>(count);
}

class NormTest : public KernelTest {
 protected:
  // shift: by how many elements x misses an aligned address
  void check(std::int64_t rows, std::int64_t h, bool centred, bool with_bias,
             std::size_t shift = 0) {
    SCOPED_TRACE(std::to_string(rows) + " rows of " + std::to_string(h));
    const auto x = rounded(random_values(rows * h, 1), type());
    const auto weight = rounded(random_values(h, 2), type());
    const auto bias = rounded(random_values(h, 3), type());
    const auto dy = rounded(random_values(rows * h, 4), type());
    const auto residual = rounded(random_values(rows * h, 5), type());
    const auto before = random_values(h, 6);
    std::vector<float> y(x.size()), statistics(size(rows * (centred ? 2 : 1))), dx(x.size());
    std::vector<float> d_weight = before, d_bias = before;
    if (centred) {
      kernels().layer_norm(rows, h, x.data(), weight.data(), with_bias ? bias.data() : nullptr,
                           1e-5, y.data(), statistics.data());
      kernels().layer_norm_backward(rows, h, dy.data(), x.data(), statistics.data(), weight.data(),
                                    residual.data(), dx.data(), d_weight.data(),
                                    with_bias ? d_bias.data() : nullptr);
    } else {
      kernels().rms_norm(rows, h, x.data(), weight.data(), 1, 1e-5, y.data(), statistics.data());
      kernels().rms_norm_backward(rows, h, dy.data(), x.data(), statistics.data(), weight.data(), 1,
                                  residual.data(), dx.data(), d_weight.data());
    }

    Memory m(type());
    Array &x_at = m.values(x, shift), &w = m.values(weight), &b = m.values(bias),
          &out = m.empty(rows * h);
    Array& st = m.empty_floats(static_cast<std::int64_t>(statistics.size()));
    m.run([&] {
      return centred ? layer_norm(nullptr, type(), rows, h, x_at.at(), w.at(),
                                  with_bias ? b.at() : nullptr, 1e-5, out.at(), st.at<float>())
                     : rms_norm(nullptr, type(), rows, h, x_at.at(), w.at(), 1, 1e-5, out.at(),
                                st.at<float>());
    });
    expect_close(out.values(), y, tolerance(), "y");
    expect_close(st.values(), statistics, 3e-6, "statistics");

    // dx in place of dy, as the executor has it.
    Memory g(type());
    Array &x_g = g.values(x, shift), &w_g = g.values(weight), &r = g.values(residual),
          &d = g.values(dy);
    Array &st_g = g.floats(statistics), &dw = g.floats(before), &db = g.floats(before);
    Array& scratch = g.scratch(norm_backward_scratch(rows, h, centred ? 2 : 1));
    g.run([&] {
      return centred
                 ? layer_norm_backward(nullptr, type(), rows, h, d.at(), x_g.at(), st_g.at<float>(),
                                       w_g.at(), r.at(), d.at(), dw.at<float>(),
                                       with_bias ? db.at<float>() : nullptr, scratch.at())
                 : rms_norm_backward(nullptr, type(), rows, h, d.at(), x_g.at(), st_g.at<float>(),
                                     w_g.at(), 1, r.at(), d.at(), dw.at<float>(), scratch.at());
    });
    expect_close(d.values(), dx, tolerance(), "dx");
    expect_close(dw.values(), d_weight, 3e-6, "d_weight");
    expect_close(db.values(), centred ? d_bias : before, 3e-6, "d_bias");

    // The parameters' gradients alone have the same bits, the input's alone too.
    Memory a(type());
    Array &x_a = a.values(x, shift), &w_a = a.values(weight), &r_a = a.values(residual),
          &d_a = a.values(dy), &dx_a = a.empty(rows * h);
    Array &st_a = a.floats(statistics), &dw_a = a.floats(before), &db_a = a.floats(before);
    Array& scratch_a = a.scratch(norm_backward_scratch(rows, h, centred ? 2 : 1));
    a.run([&] {
      const auto call = [&](void* to, float* to_weight, float* to_bias) {
        return centred ? layer_norm_backward(nullptr, type(), rows, h, d_a.at(), x_a.at(),
                                             st_a.at<float>(), w_a.at(), r_a.at(), to, to_weight,
                                             to_bias, scratch_a.at())
                       : rms_norm_backward(nullptr, type(), rows, h, d_a.at(), x_a.at(),
                                           st_a.at<float>(), w_a.at(), 1, r_a.at(), to, to_weight,
                                           scratch_a.at());
      };
      const int status = call(nullptr, dw_a.at<float>(), with_bias ? db_a.at<float>() : nullptr);
      return status != 0 ? status : call(dx_a.at(), nullptr, nullptr);
    });
    EXPECT_EQ(dw_a.values(), dw.values());
    EXPECT_EQ(db_a.values(), db.values());
    EXPECT_EQ(dx_a.values(), d.values());
  }
};

// A residual sum and its norm in one pass: the sum and the norm of the CPU's two kernels, and bit
// for bit what the two kernels here give.
class SumNormTest : public KernelTest {
 protected:
  void check(std::int64_t rows, std::int64_t h, bool centred, bool with_bias, std::size_t shift = 0,
             const DropoutShape& drop = {}) {
    SCOPED_TRACE(std::to_string(rows) + " rows of " + std::to_string(h));
    const auto x = rounded(random_values(rows * h, 1), type());
    const auto y = rounded(random_values(rows * h, 2), type());
    const auto bias = rounded(random_values(h, 3), type());
    const auto weight = rounded(random_values(h, 4), type());
    const auto norm_bias = rounded(random_values(h, 5), type());
    std::vector<float> sum(x.size()), out(x.size()), statistics(size(rows * (centred ? 2 : 1)));
    kernels().add_residual(rows, h, x.data(), y.data(), with_bias ? bias.data() : nullptr, drop,
                           sum.data());
    sum = rounded(sum, type());
    if (centred) {
      kernels().layer_norm(rows, h, sum.data(), weight.data(),
                           with_bias ? norm_bias.data() : nullptr, 1e-5, out.data(),
                           statistics.data());
    } else {
      kernels().rms_norm(rows, h, sum.data(), weight.data(), 0.5, 1e-5, out.data(),
                         statistics.data());
    }

    Memory m(type());
    Array &x_at = m.values(x), &y_at = m.values(y, shift), &b = m.values(bias),
          &w = m.values(weight), &nb = m.values(norm_bias);
    Array &sums = m.empty(rows * h), &outs = m.empty(rows * h), &sums_2 = m.empty(rows * h),
          &outs_2 = m.empty(rows * h);
    const auto count = static_cast<std::int64_t>(statistics.size());
    Array &st = m.empty_floats(count), &st_2 = m.empty_floats(count);
    m.run([&] {
      const SumNorm call{.rows = rows,
                         .h = h,
                         .x = x_at.at(),
                         .y = y_at.at(),
                         .bias = with_bias ? b.at() : nullptr,
                         .sum = sums.at(),
                         .weight = w.at(),
                         .norm_bias = with_bias ? nb.at() : nullptr,
                         .epsilon = 1e-5,
                         .out = outs.at(),
                         .statistics = st.at<float>(),
                         .weight_offset = 0.5,
                         .dropout = drop};
      int status =
          centred ? add_layer_norm(nullptr, type(), call) : add_rms_norm(nullptr, type(), call);
      if (status == 0) {
        status =
            add_residual(nullptr, type(), rows, h, call.x, call.y, call.bias, drop, sums_2.at());
      }
      if (status != 0) return status;
      return centred ? layer_norm(nullptr, type(), rows, h, sums_2.at(), call.weight,
                                  call.norm_bias, 1e-5, outs_2.at(), st_2.at<float>())
                     : rms_norm(nullptr, type(), rows, h, sums_2.at(), call.weight, 0.5, 1e-5,
                                outs_2.at(), st_2.at<float>());
    });
    expect_close(sums.values(), sum, tolerance(), "sum");
    expect_close(outs.values(), out, tolerance(), "norm");
    // In 16 bits a sum near a tie may be rounded the other way.
    expect_close(st.values(), statistics, bound(3e-6, 2e-3), "statistics");
    EXPECT_EQ(sums.values(), sums_2.values());
    if (shift == 0) {  // another width adds in another order
      EXPECT_EQ(outs.values(), outs_2.values());
      EXPECT_EQ(st.values(), st_2.values());
    }
  }
};

TEST_P(SumNormTest, LayerNormOfRowsOfWholeVectors) {
  check(9, 768, true, true);
}
TEST_P(SumNormTest, LayerNormWithoutBiases) {
  check(3, 64, true, false);
}
TEST_P(SumNormTest, LayerNormOfOddRows) {
  check(5, 37, true, true);
}
TEST_P(SumNormTest, LayerNormOfRowsThatAreNotAligned) {
  check(6, 64, true, true, 1);
}
TEST_P(SumNormTest, RmsNormOfRowsOfWholeVectors) {
  check(70, 520, false, false);
}
TEST_P(SumNormTest, NormsOfSumsThatDrop) {
  const DropoutShape drop = dropout_of(0.5, 1, 2, 3, DropoutSite::MlpOutput);
  check(9, 264, false, true, 0, drop);
  check(5, 37, true, true, 0, drop);
}
TEST_P(SumNormTest, RmsNormOfOneElement) {
  check(2, 1, false, false);
}

TEST_P(NormTest, LayerNormOfRowsOfWholeVectors) {
  check(9, 768, true, true);
}
TEST_P(NormTest, LayerNormWithoutBias) {
  check(3, 64, true, false);
}
TEST_P(NormTest, LayerNormOfOddRows) {
  check(5, 37, true, true);
}
TEST_P(NormTest, LayerNormOfRowsThatAreNotAligned) {
  check(6, 64, true, true, 1);
}
TEST_P(NormTest, RmsNormOfRowsOfWholeVectors) {
  check(70, 520, false, false);
}
TEST_P(NormTest, RmsNormOfOneElement) {
  check(2, 1, false, false);
}

// Enough rows that a block adds up several runs of them.
TEST_P(NormTest, OfManyRows) {
  check(2000, 64, true, true);
  check(900, 130, false, false);
}
// Rows that a whole block holds, in one and in two pieces of a thread; of the widest, no block
// does.
TEST_P(NormTest, OfWideRows) {
  check(7, 2100, true, true);
  check(7, 2100, false, false);
  check(5, 4200, false, false);
  check(5, 6200, true, true);
  check(3, 600, true, true, 1);
  check(3, 1030, true, true, 1);
  check(3, 8200, true, true);
}

class ColumnSumsTest : public KernelTest {};

// Many rows: several parts of them, and a last part that is shorter.
TEST_P(ColumnSumsTest, AddToWhatIsThere) {
  for (const auto& [rows, cols] :
       {std::pair<std::int64_t, std::int64_t>{1000, 24}, {77, 300}, {1, 5}}) {
    const auto y = rounded(random_values(rows * cols, 1), type());
    const auto before = random_values(cols, 2);
    std::vector<float> sums = before;
    kernels().add_column_sums(rows, cols, y.data(), sums.data());
    Memory m(type());
    Array &in = m.values(y), &out = m.floats(before),
          &scratch = m.scratch(column_sums_scratch(rows, cols));
    m.run([&, rows = rows, cols = cols] {
      return add_column_sums(nullptr, type(), rows, cols, in.at(), out.at<float>(), scratch.at());
    });
    expect_close(out.values(), sums, 1e-6, "sums");
  }
}

REHEARSE_WIDER_TYPES(NormTest);

class NormInFp16 : public NormTest {};
TEST_P(NormInFp16, OfRows) {
  check(40, 64, true, true);
  check(20, 130, false, false);
  check(3, 600, true, true, 1);
  check(3, 2100, false, false);
}
REHEARSE_TYPES(NormInFp16, Type::Float16);
// Heads inside of rows, in place, and one stretch of which another rank has as much.
class StridedNormTest : public KernelTest {
 protected:
  void check(const StridedNorm& s) {
    SCOPED_TRACE(std::to_string(s.groups) + " groups of " + std::to_string(s.width));
    const std::int64_t count = s.rows * s.groups;
    const auto x = rounded(random_values(s.rows * s.stride, 1), type());
    const auto dy = rounded(random_values(s.rows * s.stride, 2), type());
    const auto weight = rounded(random_values(s.width, 3), type());
    const auto before = random_values(s.width, 4);
    std::vector<float> y = x, dx = dy, d_weight = before, squares(size(count)), statistics,
                       products(size(count));
    kernels().row_squares(s, x.data(), squares.data());
    statistics = squares;
    kernels().strided_norm(s, x.data(), weight.data(), statistics.data(), y.data());
    kernels().row_products(s, dy.data(), x.data(), weight.data(), products.data());
    kernels().strided_norm_backward(s, dy.data(), x.data(), statistics.data(), products.data(),
                                    weight.data(), dx.data(), d_weight.data());
    Memory m(type());
    Array &in = m.values(x), &out = m.values(x), &g = m.values(dy), &w = m.values(weight),
          &sums = m.empty_floats(count), &st = m.empty_floats(count), &pr = m.empty_floats(count),
          &dw = m.floats(before), &scratch = m.scratch(column_sums_scratch(count, s.width));
    m.run([&] {
      int status = row_squares(nullptr, type(), s, in.at(), sums.at<float>());
      if (status == 0) status = row_squares(nullptr, type(), s, out.at(), st.at<float>());
      if (status == 0)
        status = strided_norm(nullptr, type(), s, out.at(), w.at(), st.at<float>(), out.at());
      if (status == 0)
        status = row_products(nullptr, type(), s, g.at(), in.at(), w.at(), pr.at<float>());
      if (status != 0) return status;
      return strided_norm_backward(nullptr, type(), s, g.at(), in.at(), st.at<float>(),
                                   pr.at<float>(), w.at(), g.at(), dw.at<float>(), scratch.at());
    });
    expect_close(sums.values(), squares, 3e-6, "squares");
    expect_close(st.values(), statistics, 3e-6, "statistics");
    expect_close(out.values(), y, tolerance(), "y");
    expect_close(pr.values(), products, 3e-6, "products");
    expect_close(g.values(), dx, tolerance(), "dx");
    expect_close(dw.values(), d_weight, 3e-6, "d_weight");
  }
};

// Rows of which other ranks have as many columns again.
class SharedNormTest : public KernelTest {
 protected:
  void check(const SharedNorm& s) {
    const std::int64_t count = s.rows * s.sums();
    const auto x = rounded(random_values(s.rows * s.h, 1), type());
    const auto dy = rounded(random_values(s.rows * s.h, 2), type());
    const auto weight = rounded(random_values(s.h, 3), type());
    const auto bias = rounded(random_values(s.h, 4), type());
    const auto residual = rounded(random_values(s.rows * s.h, 5), type());
    const auto before = random_values(s.h, 6);
    const auto all_ranks = [&](std::vector<float>& sums) {
      for (float& sum : sums) sum *= static_cast<float>(s.total / s.h);
    };
    std::vector<float> y(x.size()), dx = dy, d_weight = before, d_bias = before,
                                    moments(size(count)), statistics, products(size(count));
    kernels().row_moments(s, x.data(), moments.data());
    statistics = moments;
    all_ranks(statistics);
    const std::vector<float> summed = statistics;
    kernels().shared_norm(s, x.data(), weight.data(), bias.data(), statistics.data(), y.data());
    kernels().row_gradients(s, dy.data(), x.data(), statistics.data(), weight.data(),
                            products.data());
    std::vector<float> gradients = products;
    all_ranks(gradients);
    kernels().shared_norm_backward(s, dy.data(), x.data(), statistics.data(), gradients.data(),
                                   weight.data(), residual.data(), dx.data(), d_weight.data(),
                                   d_bias.data());
    Memory m(type());
    Array &in = m.values(x), &g = m.values(dy), &w = m.values(weight), &b = m.values(bias),
          &add = m.values(residual), &out = m.empty(s.rows * s.h), &sums = m.empty_floats(count),
          &st = m.floats(summed), &pr = m.empty_floats(count), &all = m.floats(gradients),
          &dw = m.floats(before), &db = m.floats(before),
          &scratch = m.scratch(2 * column_sums_scratch(s.rows, s.h));
    m.run([&] {
      int status = row_moments(nullptr, type(), s, in.at(), sums.at<float>());
      if (status == 0) {
        status = shared_norm(nullptr, type(), s, in.at(), w.at(), b.at(), st.at<float>(), out.at());
      }
      if (status == 0) {
        status = row_gradients(nullptr, type(), s, g.at(), in.at(), st.at<float>(), w.at(),
                               pr.at<float>());
      }
      if (status != 0) return status;
      return shared_norm_backward(nullptr, type(), s, g.at(), in.at(), st.at<float>(),
                                  all.at<float>(), w.at(), add.at(), g.at(), dw.at<float>(),
                                  db.at<float>(), scratch.at());
    });
    expect_close(sums.values(), moments, 3e-6, "moments");
    expect_close(st.values(), statistics, 3e-6, "statistics");
    expect_close(out.values(), y, tolerance(), "y");
    expect_close(pr.values(), products, 3e-6, "products");
    expect_close(g.values(), dx, tolerance(), "dx");
    expect_close(dw.values(), d_weight, 3e-6, "d_weight");
    expect_close(db.values(), d_bias, 3e-6, "d_bias");
  }
};
TEST_P(SharedNormTest, OfColumnsThatRanksShare) {
  check({.rows = 40, .h = 128, .total = 256, .centred = true, .epsilon = 1e-5});
  check({.rows = 9, .h = 21, .total = 63, .centred = true, .epsilon = 1e-5});
  check({.rows = 40, .h = 136, .total = 272, .epsilon = 1e-5, .weight_offset = 1});
}
REHEARSE_ALL_TYPES(SharedNormTest);

TEST_P(StridedNormTest, OfHeadsInsideOfRows) {
  check({.rows = 40, .groups = 3, .width = 64, .stride = 320, .total = 64, .epsilon = 1e-5});
  check({.rows = 7, .groups = 2, .width = 20, .stride = 83, .total = 20, .epsilon = 1e-5});
  check({.rows = 40,
         .groups = 3,
         .width = 64,
         .stride = 320,
         .total = 64,
         .epsilon = 1e-5,
         .alone = true});
}
TEST_P(StridedNormTest, OfAWidthThatRanksShare) {
  check(
      {.rows = 9, .width = 136, .stride = 256, .total = 272, .epsilon = 1e-5, .weight_offset = 1});
}

REHEARSE_ALL_TYPES(StridedNormTest);
REHEARSE_ALL_TYPES(SumNormTest);
REHEARSE_ALL_TYPES(ColumnSumsTest);

}  // namespace
}  // namespace rehearse::exec::cuda::testing
