// SPDX-License-Identifier: Apache-2.0
// AVX2 and AVX-512 give the same bits: a sum has one order, whatever the width of a vector, so no
// set is less exact than the other, and a run goes on elsewhere as it began.
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string_view>
#include <vector>

#include "exec/cpu/kernels/table.h"
#include "tests/exec/cpu/noise.h"

namespace rehearse::exec {
namespace {

std::optional<KernelTable> set_of(std::string_view name) {
  for (const KernelTable& table : kernel_tables()) {
    if (table.instruction_set == name) return table;
  }
  return std::nullopt;
}

class KernelBits : public testing::Test {
 protected:
  void SetUp() override {
    const auto avx2 = set_of("avx2"), avx512 = set_of("avx512");
    if (!avx2 || !avx512) GTEST_SKIP() << "SKIPPED: this machine has no AVX-512 beside AVX2";
    narrow = *avx2;
    wide = *avx512;
  }
  // run(kernels, result) of both
  template <class Run>
  void expect_equal(const char* what, const Floats& before, Run run) {
    Floats one = before, other = before;
    run(narrow, one.data());
    run(wide, other.data());
    for (std::size_t i = 0; i < one.size(); ++i) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(one[i]), std::bit_cast<std::uint32_t>(other[i]))
          << what << ", element " << i << ": " << one[i] << " and " << other[i];
    }
  }
  KernelTable narrow, wide;
};

// Around the edges of tiles (6 x 16, 8 x 48), runs (64) and blocks (192, 256, 1536).
TEST_F(KernelBits, OfProducts) {
  const std::int64_t shapes[][3] = {{1, 1, 1},     {7, 17, 33},    {13, 49, 70},  {64, 64, 64},
                                    {5, 1600, 20}, {200, 47, 300}, {33, 96, 513}, {12, 33, 1000}};
  for (const auto& [m, n, k] : shapes) {
    SCOPED_TRACE(std::to_string(m) + " x " + std::to_string(n) + " x " + std::to_string(k));
    const Floats x = noise(m * k, 1), w = noise(n * k, 2), bias = noise(n, 3), dy = noise(m * n, 4);
    expect_equal("y", Floats(at(m * n)), [&](const KernelTable& set, float* y) {
      set.linear(m, n, k, x.data(), w.data(), bias.data(), y);
    });
    expect_equal("dx", Floats(at(m * k)), [&](const KernelTable& set, float* dx) {
      set.linear_input(m, n, k, dy.data(), w.data(), dx);
    });
    expect_equal("dw", noise(n * k, 5), [&](const KernelTable& set, float* dw) {
      set.linear_weight(m, n, k, dy.data(), x.data(), dw);
    });
  }
}

// Where a machine multiplies bf16 itself, a sum has the bits of products that widen: a pair's first
// depth is added first. Odd shapes, and depths beyond a run and a block.
TEST_F(KernelBits, OfProductsOfBf16) {
  const auto pairs = set_of("avx512_bf16");
  if (!pairs) GTEST_SKIP() << "SKIPPED: this machine has no AVX-512 BF16";
  const std::int64_t shapes[][3] = {{1, 1, 1},     {7, 17, 33},    {13, 49, 70},  {64, 64, 64},
                                    {5, 1600, 20}, {200, 47, 300}, {33, 96, 513}, {193, 50, 257}};
  const auto narrowed = [](const Floats& x) { return std::vector<BFloat16>(x.begin(), x.end()); };
  for (const auto& [m, n, k] : shapes) {
    SCOPED_TRACE(std::to_string(m) + " x " + std::to_string(n) + " x " + std::to_string(k));
    const auto x = narrowed(noise(m * k, 1)), w = narrowed(noise(n * k, 2)),
               bias = narrowed(noise(n, 3)), dy = narrowed(noise(m * n, 4));
    const auto equal = [&](std::int64_t count, const auto& run) {
      std::vector<BFloat16> one(at(count), BFloat16(0.0F)), other = one;
      run(narrow.bfloat16, one.data());
      run(pairs->bfloat16, other.data());
      for (std::size_t i = 0; i < one.size(); ++i) ASSERT_EQ(one[i].bits, other[i].bits) << i;
    };
    equal(m * n, [&](const auto& set, BFloat16* y) {
      set.linear(m, n, k, x.data(), w.data(), bias.data(), y);
    });
    equal(m * k, [&](const auto& set, BFloat16* dx) {
      set.linear_input(m, n, k, dy.data(), w.data(), dx);
    });
    Floats one = noise(n * k, 5), other = one;
    narrow.bfloat16.linear_weight(m, n, k, dy.data(), x.data(), one.data());
    pairs->bfloat16.linear_weight(m, n, k, dy.data(), x.data(), other.data());
    EXPECT_EQ(one, other);
    Floats sums = noise(n, 6), others = sums;
    narrow.bfloat16.linear_weight_bias(m, n, k, dy.data(), x.data(), one.data(), sums.data());
    pairs->bfloat16.linear_weight_bias(m, n, k, dy.data(), x.data(), other.data(), others.data());
    EXPECT_EQ(one, other);
    EXPECT_EQ(sums, others);
  }
}

// Sequences end inside of tiles of queries (64, 192) and keys (64); heads of 17 and 20 leave parts
// of vectors, one of 128 takes several panels.
TEST_F(KernelBits, OfAttention) {
  const std::int64_t cases[][4] = {{7, 2, 1, 4},    {64, 2, 2, 32},  {65, 3, 1, 20},
                                   {128, 4, 4, 32}, {130, 4, 2, 64}, {300, 1, 1, 128},
                                   {129, 2, 2, 17}};
  for (const auto& [sequence, heads, kv_heads, head_dim] : cases) {
    SCOPED_TRACE(std::to_string(sequence) + " tokens, " + std::to_string(heads) + " x " +
                 std::to_string(head_dim));
    const AttentionShape s{.tokens = 2 * sequence,
                           .sequence = sequence,
                           .heads = heads,
                           .kv_heads = kv_heads,
                           .head_dim = head_dim};
    const Floats qkv = noise(s.tokens * s.columns(), 1),
                 d_o = noise(s.tokens * heads * head_dim, 2);
    Floats o(d_o.size()), lse(at(heads * s.tokens)), delta = lse;
    narrow.attention(s, qkv.data(), o.data(), lse.data());
    expect_equal("o", Floats(o.size()), [&](const KernelTable& set, float* to) {
      Floats own = lse;
      set.attention(s, qkv.data(), to, own.data());
    });
    expect_equal("delta", delta, [&](const KernelTable& set, float* to) {
      Floats dqkv(qkv.size());
      set.attention_backward(s, d_o.data(), qkv.data(), o.data(), lse.data(), dqkv.data(), to);
    });
    expect_equal("dqkv", Floats(qkv.size()), [&](const KernelTable& set, float* to) {
      Floats own = delta;
      set.attention_backward(s, d_o.data(), qkv.data(), o.data(), lse.data(), to, own.data());
    });
  }
}

TEST_F(KernelBits, OfNormsActivationsAndTheLoss) {
  const std::int64_t rows = 13, h = 531;
  const Floats x = noise(rows * h, 1), dy = noise(rows * h, 2), weight = noise(h, 3),
               bias = noise(h, 4), gates = noise(rows * 2 * h, 5);
  Floats statistics(at(2 * rows));
  narrow.layer_norm(rows, h, x.data(), weight.data(), bias.data(), 1e-5, Floats(x.size()).data(),
                    statistics.data());
  const auto each = [&](const char* what, std::int64_t count, auto run) {
    expect_equal(what, Floats(at(count)), run);
  };
  each("layer_norm", rows * h, [&](const KernelTable& set, float* y) {
    Floats own(at(2 * rows));
    set.layer_norm(rows, h, x.data(), weight.data(), bias.data(), 1e-5, y, own.data());
  });
  each("layer_norm's dx", rows * h, [&](const KernelTable& set, float* dx) {
    Floats dw(at(h)), db(at(h));
    set.layer_norm_backward(rows, h, dy.data(), x.data(), statistics.data(), weight.data(),
                            dy.data(), dx, dw.data(), db.data());
  });
  each("layer_norm's dw", h, [&](const KernelTable& set, float* dw) {
    Floats dx(x.size()), db(at(h));
    set.layer_norm_backward(rows, h, dy.data(), x.data(), statistics.data(), weight.data(), nullptr,
                            dx.data(), dw, db.data());
  });
  each("rms_norm", rows * h, [&](const KernelTable& set, float* y) {
    Floats own(at(rows));
    set.rms_norm(rows, h, x.data(), weight.data(), 1, 1e-5, y, own.data());
  });
  each("rms_norm's dx", rows * h, [&](const KernelTable& set, float* dx) {
    Floats dw(at(h));
    set.rms_norm_backward(rows, h, dy.data(), x.data(), statistics.data(), weight.data(), 1,
                          nullptr, dx, dw.data());
  });
  each("column sums", h,
       [&](const KernelTable& set, float* sums) { set.add_column_sums(rows, h, x.data(), sums); });
  for (const ActivationKind kind :
       {ActivationKind::GeluTanh, ActivationKind::GeluExact, ActivationKind::QuickGelu,
        ActivationKind::Relu2, ActivationKind::Silu, ActivationKind::Tanh}) {
    SCOPED_TRACE(static_cast<int>(kind));
    each("activation", rows * h,
         [&](const KernelTable& set, float* g) { set.activation(kind, rows * h, x.data(), g); });
    each("activation's slope", rows * h, [&](const KernelTable& set, float* du) {
      set.activation_backward(kind, rows * h, dy.data(), x.data(), du);
    });
    each("gate", rows * h,
         [&](const KernelTable& set, float* g) { set.gated(kind, rows, h, gates.data(), g); });
    each("gate's slope", 2 * rows * h, [&](const KernelTable& set, float* du) {
      set.gated_backward(kind, rows, h, dy.data(), gates.data(), du);
    });
  }
  const std::vector<std::int32_t> targets(at(rows), 3);
  const VocabularyShape shape{.columns = h, .valid = h - 2};
  each("the loss's gradient", rows * h + 1, [&](const KernelTable& set, float* to) {
    Floats maxima(at(rows)), sums(at(2 * rows));
    set.row_maxima(rows, shape, x.data(), maxima.data());
    set.row_sums(rows, shape, x.data(), maxima.data(), targets.data(), sums.data());
    std::copy(x.begin(), x.end(), to);
    set.loss_and_gradient(rows, shape, maxima.data(), sums.data(), targets.data(), 0.5F, to,
                          to + rows * h);
  });
  each("AdamW", h, [&](const KernelTable& set, float* to) {
    std::copy(weight.begin(), weight.end(), to);
    Floats m = bias, v(at(h), 0.25F);
    set.adamw(h, {.beta1 = 0.9F, .rest1 = 0.1F, .beta2 = 0.99F, .rest2 = 0.01F, .size = 1e-3F},
              x.data(), to, m.data(), v.data());
  });
  each("Lion", h, [&](const KernelTable& set, float* to) {
    std::copy(weight.begin(), weight.end(), to);
    Floats m = bias;
    set.lion(h, {.beta1 = 0.9F, .rest1 = 0.1F, .beta2 = 0.99F, .rest2 = 0.01F, .size = 1e-3F},
             x.data(), to, m.data());
  });
}

}  // namespace
}  // namespace rehearse::exec
