// SPDX-License-Identifier: Apache-2.0
// Numbers of 16 bits, and the kernels over them: every kernel gives what fp32's gives of the same
// numbers, rounded once.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "exec/cpu/collectives.h"
#include "exec/cpu/kernels/table.h"

namespace rehearse::exec {
namespace {

template <class E>
constexpr double kUnit = std::is_same_v<E, BFloat16> ? 0x1p-8 : 0x1p-11;  // half a place of 1

template <class E>
class SixteenBitKernels : public testing::Test {};
using Elements = testing::Types<BFloat16, Float16>;
TYPED_TEST_SUITE(SixteenBitKernels, Elements);

// Numbers of the type, and the same in fp32.
template <class E>
struct Numbers {
  Numbers(std::int64_t count, unsigned seed, float spread = 1) {
    std::mt19937 bits(seed);
    std::uniform_real_distribution<float> uniform(-spread, spread);
    for (std::int64_t i = 0; i < count; ++i) {
      narrow.push_back(E(uniform(bits)));
      wide.push_back(narrow.back());
    }
  }
  std::vector<E> narrow;
  std::vector<float> wide;
};

// `is` and `should` rounded once: half a place off, and what sums in another order may add.
template <class E>
void expect_rounded(const std::string& what, const std::vector<E>& is,
                    const std::vector<float>& should, double more = 1e-6) {
  ASSERT_EQ(is.size(), should.size());
  double size = 0;
  for (const float x : should) size = std::max(size, std::abs(static_cast<double>(x)));
  for (std::size_t i = 0; i < is.size(); ++i) {
    const double x = static_cast<double>(static_cast<float>(is[i])),
                 y = static_cast<double>(should[i]);
    ASSERT_LE(std::abs(x - y), kUnit<E> * std::abs(y) + more * size + 0x1p-25)
        << what << ", element " << i << ": " << x << " instead of " << y;
  }
}

TYPED_TEST(SixteenBitKernels, EveryNumberComesBackAndTiesGoToEven) {
  using E = TypeParam;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    E x;
    x.bits = static_cast<std::uint16_t>(bits);
    const float wide = x;
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(static_cast<float>(E(wide))));
    } else {
      ASSERT_EQ(E(wide).bits, x.bits);
    }
  }
  const float place = 2 * static_cast<float>(kUnit<E>);  // of 1
  EXPECT_EQ(static_cast<float>(E(1 + place / 2)), 1.0F);
  EXPECT_EQ(static_cast<float>(E(1 + place * 3 / 2)), 1 + 2 * place);
  EXPECT_EQ(static_cast<float>(E(1 + place * 0.51F)), 1 + place);
}

TEST(Float16, EndsAt65504AndBegins24BitsBelowOne) {
  EXPECT_EQ(static_cast<float>(Float16(65519.0F)), 65504.0F);
  EXPECT_EQ(static_cast<float>(Float16(65520.0F)), INFINITY);
  EXPECT_EQ(static_cast<float>(Float16(-1e30F)), -INFINITY);
  EXPECT_EQ(static_cast<float>(Float16(0x1p-24F)), 0x1p-24F);
  EXPECT_EQ(static_cast<float>(Float16(0x1p-25F)), 0.0F);
  EXPECT_EQ(static_cast<float>(Float16(0x1.8p-25F)), 0x1p-24F);
}

// Depths beyond a block (256) and columns beyond one (1536): a sum that were rounded at every block
// would be off by more than half a place.
TYPED_TEST(SixteenBitKernels, ProductsAreSummedInFp32AndRoundedOnce) {
  using E = TypeParam;
  const std::int64_t shapes[][3] = {
      {1, 1, 1}, {7, 17, 33}, {5, 1600, 20}, {200, 47, 1100}, {800, 24, 40}};
  for (const KernelTable& table : kernel_tables()) {
    const KernelsOf<E>& kernels = table.of<E>();
    for (const auto& [m, n, k] : shapes) {
      const std::string name = std::string(table.instruction_set) + " " + std::to_string(m) + " " +
                               std::to_string(n) + " " + std::to_string(k);
      const Numbers<E> x(m * k, 1), w(n * k, 2), bias(n, 3), dy(m * n, 4);
      std::vector<E> y(x.narrow.begin(), x.narrow.begin());
      y.resize(static_cast<std::size_t>(m * n));
      std::vector<float> wide(y.size());
      kernels.linear(m, n, k, x.narrow.data(), w.narrow.data(), bias.narrow.data(), y.data());
      table.linear(m, n, k, x.wide.data(), w.wide.data(), bias.wide.data(), wide.data());
      expect_rounded("linear " + name, y, wide);
      kernels.linear_gelu(m, n, k, x.narrow.data(), w.narrow.data(), nullptr, y.data(), y.data());
      std::vector<E> dx(static_cast<std::size_t>(m * k));
      std::vector<float> wide_dx(dx.size()), dw(static_cast<std::size_t>(n * k), 0.5F),
          wide_dw = dw;
      kernels.linear_input(m, n, k, dy.narrow.data(), w.narrow.data(), dx.data());
      table.linear_input(m, n, k, dy.wide.data(), w.wide.data(), wide_dx.data());
      expect_rounded("linear_input " + name, dx, wide_dx);
      kernels.linear_weight(m, n, k, dy.narrow.data(), x.narrow.data(), dw.data());
      table.linear_weight(m, n, k, dy.wide.data(), x.wide.data(), wide_dw.data());
      // In fp32 both; Eigen takes the terms of a whole sum in other blocks.
      for (std::size_t i = 0; i < dw.size(); ++i)
        ASSERT_NEAR(dw[i], wide_dw[i], 2e-6 * std::max(10.0F, std::abs(wide_dw[i]))) << name;
    }
  }
}

TYPED_TEST(SixteenBitKernels, RowsAreFp32sRounded) {
  using E = TypeParam;
  const std::int64_t rows = 5, h = 70, count = rows * h;
  const Numbers<E> x(count, 1, 3), dy(count, 2), weight(h, 3), bias(h, 4), gates(2 * count, 5, 3);
  for (const KernelTable& table : kernel_tables()) {
    const KernelsOf<E>& kernels = table.of<E>();
    const std::string set(table.instruction_set);
    std::vector<E> narrow(static_cast<std::size_t>(2 * count));
    std::vector<float> wide(narrow.size()), statistics(2 * rows), d_weight(h), d_bias(h),
        wide_d_weight(h);
    const auto check = [&](const std::string& what, std::int64_t size, double more = 1e-6) {
      narrow.resize(static_cast<std::size_t>(size));
      wide.resize(narrow.size());
      expect_rounded(what + " " + set, narrow, wide, more);
      narrow.resize(static_cast<std::size_t>(2 * count));
      wide.resize(narrow.size());
    };
    kernels.layer_norm(rows, h, x.narrow.data(), weight.narrow.data(), bias.narrow.data(), 1e-5,
                       narrow.data(), statistics.data());
    table.layer_norm(rows, h, x.wide.data(), weight.wide.data(), bias.wide.data(), 1e-5,
                     wide.data(), statistics.data());
    check("layer_norm", count);
    kernels.layer_norm_backward(rows, h, dy.narrow.data(), x.narrow.data(), statistics.data(),
                                weight.narrow.data(), x.narrow.data(), narrow.data(),
                                d_weight.data(), d_bias.data());
    table.layer_norm_backward(rows, h, dy.wide.data(), x.wide.data(), statistics.data(),
                              weight.wide.data(), x.wide.data(), wide.data(), wide_d_weight.data(),
                              d_bias.data());
    check("layer_norm_backward", count);
    for (std::size_t i = 0; i < d_weight.size(); ++i)
      ASSERT_NEAR(d_weight[i], wide_d_weight[i], 1e-5) << set;
    kernels.rms_norm(rows, h, x.narrow.data(), weight.narrow.data(), 1, 1e-5, narrow.data(),
                     statistics.data());
    table.rms_norm(rows, h, x.wide.data(), weight.wide.data(), 1, 1e-5, wide.data(),
                   statistics.data());
    check("rms_norm", count);
    for (const bool beside : {false, true}) {  // what comes by the residual
      kernels.rms_norm_backward(rows, h, dy.narrow.data(), x.narrow.data(), statistics.data(),
                                weight.narrow.data(), 1, beside ? x.narrow.data() : nullptr,
                                narrow.data(), d_weight.data());
      table.rms_norm_backward(rows, h, dy.wide.data(), x.wide.data(), statistics.data(),
                              weight.wide.data(), 1, beside ? x.wide.data() : nullptr, wide.data(),
                              wide_d_weight.data());
      check("rms_norm_backward", count);
    }
    for (const ActivationKind kind : {ActivationKind::GeluTanh, ActivationKind::Silu}) {
      kernels.activation(kind, count, x.narrow.data(), narrow.data());
      table.activation(kind, count, x.wide.data(), wide.data());
      check("activation", count);
      kernels.gated_backward(kind, rows, h, dy.narrow.data(), gates.narrow.data(), narrow.data());
      table.gated_backward(kind, rows, h, dy.wide.data(), gates.wide.data(), wide.data());
      check("gated_backward", 2 * count);
    }
    const DropoutShape drop = dropout_of(0.25, 3, 1, 2, DropoutSite::MlpOutput);
    kernels.add_residual(rows, h, x.narrow.data(), dy.narrow.data(), bias.narrow.data(), drop,
                         narrow.data());
    table.add_residual(rows, h, x.wide.data(), dy.wide.data(), bias.wide.data(), drop, wide.data());
    check("add_residual", count);
    for (const bool biased : {false, true}) {
      kernels.add_residual(rows, h, x.narrow.data(), dy.narrow.data(),
                           biased ? bias.narrow.data() : nullptr, {}, narrow.data());
      table.add_residual(rows, h, x.wide.data(), dy.wide.data(),
                         biased ? bias.wide.data() : nullptr, {}, wide.data());
      check("add_residual without dropout", count);
    }
    const VocabularyShape vocabulary{.columns = h, .valid = h - 3};
    const std::vector<std::int32_t> targets = {0, 5, 66, 1, 2};
    narrow = x.narrow;
    wide = x.wide;
    std::vector<float> maxima(rows), sums(2 * rows);
    float loss = 0, wide_loss = 0;
    kernels.cross_entropy(rows, vocabulary, targets.data(), 0.125F, maxima.data(), sums.data(),
                          narrow.data(), &loss);
    table.cross_entropy(rows, vocabulary, targets.data(), 0.125F, maxima.data(), sums.data(),
                        wide.data(), &wide_loss);
    EXPECT_NEAR(loss, wide_loss, 1e-6 * wide_loss);
    check("cross_entropy", count);
    const std::vector<std::int32_t> row = {0, 3, -1, 1, 4, 2, 0, 0, 1, -1};
    const std::vector<float> weights(row.size(), 0.3F);
    kernels.weigh_copies(rows, 2, h, row.data(), weights.data(), x.narrow.data(), narrow.data());
    table.weigh_copies(rows, 2, h, row.data(), weights.data(), x.wide.data(), wide.data());
    check("weigh_copies", count);
  }
}

// Sequences beyond a tile of queries, heads that share keys: their gradients are sums over tiles
// and heads, rounded once.
TYPED_TEST(SixteenBitKernels, AttentionIsFp32sRounded) {
  using E = TypeParam;
  for (const std::int64_t kv_heads : {1, 2, 4}) {
    const AttentionShape shape{
        .tokens = 2 * 220, .sequence = 220, .heads = 4, .kv_heads = kv_heads, .head_dim = 24};
    const std::int64_t in = shape.tokens * shape.columns(), out = shape.tokens * 4 * 24;
    const Numbers<E> qkv(in, 1, 2), d_o(out, 2);
    for (const KernelTable& table : kernel_tables()) {
      const KernelsOf<E>& kernels = table.of<E>();
      const std::string set(table.instruction_set);
      std::vector<float> lse(static_cast<std::size_t>(4 * shape.tokens)), delta = lse, lse16 = lse;
      Numbers<E> o(out, 3), d_qkv(in, 4);
      kernels.attention(shape, qkv.narrow.data(), o.narrow.data(), lse16.data());
      table.attention(shape, qkv.wide.data(), o.wide.data(), lse.data());
      for (std::size_t i = 0; i < lse.size(); ++i) ASSERT_NEAR(lse16[i], lse[i], 1e-5) << set;
      expect_rounded("o " + set, o.narrow, o.wide);
      // The backward reads what the forward wrote.
      for (std::size_t i = 0; i < o.wide.size(); ++i) o.wide[i] = o.narrow[i];
      kernels.attention_backward(shape, d_o.narrow.data(), qkv.narrow.data(), o.narrow.data(),
                                 lse.data(), d_qkv.narrow.data(), delta.data());
      table.attention_backward(shape, d_o.wide.data(), qkv.wide.data(), o.wide.data(), lse.data(),
                               d_qkv.wide.data(), delta.data());
      expect_rounded("d_qkv " + set, d_qkv.narrow, d_qkv.wide, 3e-6);
    }
  }
}

TYPED_TEST(SixteenBitKernels, SumsOverRanksAreRoundedOnce) {
  using E = TypeParam;
  const std::int64_t count = 1500;  // beyond a block
  Numbers<E> a(count, 1), b(count, 2), c(count, 3);
  std::vector<float> sum;
  for (std::size_t i = 0; i < a.wide.size(); ++i) sum.push_back(a.wide[i] + b.wide[i] + c.wide[i]);
  std::vector<Contribution> members;
  for (Numbers<E>* one : {&a, &b, &c}) members.push_back({one->narrow.data(), one->narrow.data()});
  perform({.kind = OpKind::AllReduce,
           .type = std::is_same_v<E, BFloat16> ? ElementType::BFloat16 : ElementType::Float16,
           .elements = count,
           .contributions = members});
  for (const Numbers<E>* one : {&a, &b, &c}) expect_rounded("sum", one->narrow, sum, 0);
}

}  // namespace
}  // namespace rehearse::exec
