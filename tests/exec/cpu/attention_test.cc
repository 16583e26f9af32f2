// SPDX-License-Identifier: Apache-2.0
// Attention of every instruction set against loops in double: whole and in parts, forward and
// backward, where samples end inside of tiles, panels and vectors.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "exec/cpu/kernels/table.h"
#include "tests/exec/cpu/exact_attention.h"

namespace rehearse::exec {
namespace {

struct Case {
  std::int64_t samples, sequence, heads, kv_heads, head_dim;
};

void PrintTo(const Case& c, std::ostream* to) {
  *to << c.samples << " x " << c.sequence << ", " << c.heads << "/" << c.kv_heads << " x "
      << c.head_dim;
}

class Attention : public testing::TestWithParam<Case> {
 protected:
  const Case c = GetParam();
  const AttentionShape shape{.tokens = c.samples * c.sequence,
                             .sequence = c.sequence,
                             .heads = c.heads,
                             .kv_heads = c.kv_heads,
                             .head_dim = c.head_dim};
  const std::int64_t width = c.heads * c.head_dim, columns = shape.columns();
  const Floats qkv = noise(shape.tokens * columns, 1), d_o = noise(shape.tokens * width, 2);
  const Exact exact = Exact(shape, qkv, d_o);
};

TEST_P(Attention, IsTheDefinition) {
  for (const KernelTable& kernel : kernel_tables()) {
    SCOPED_TRACE(kernel.instruction_set);
    Floats o(exact.o.size(), NAN), lse(exact.lse.size(), NAN), delta = lse, dqkv(qkv.size(), NAN);
    kernel.attention(shape, qkv.data(), o.data(), lse.data());
    EXPECT_LE(distance(o, exact.o), 1e-6);
    EXPECT_LE(distance(lse, exact.lse), 1e-6);
    kernel.attention_backward(shape, d_o.data(), qkv.data(), o.data(), lse.data(), dqkv.data(),
                              delta.data());
    EXPECT_LE(distance(dqkv, exact.dqkv), 2e-6);
  }
}

// A diverged query shows, and spoils no other.
TEST_P(Attention, NotANumberStaysSo) {
  Floats spoilt = qkv;
  spoilt[at((shape.tokens - 1) * columns)] = NAN;  // the last token's first query
  for (const KernelTable& kernel : kernel_tables()) {
    SCOPED_TRACE(kernel.instruction_set);
    Floats o(exact.o.size()), lse(exact.lse.size());
    kernel.attention(shape, spoilt.data(), o.data(), lse.data());
    EXPECT_TRUE(std::isnan(lse[at(shape.tokens - 1)]));
    for (std::int64_t i = 0; i < shape.tokens * width; ++i) {
      const bool its = i >= (shape.tokens - 1) * width && i % width < c.head_dim;
      ASSERT_EQ(std::isnan(o[at(i)]), its) << i;
    }
  }
}

// Own keys first (causal), then the queries of the second half over keys that stand before them:
// what a slice and a ring do. The first half's queries are as in the whole.
class AttentionInParts : public Attention {};

TEST_P(AttentionInParts, IsTheDefinition) {
  const std::int64_t half = c.sequence / 2;
  const AttentionShape later{.tokens = c.samples * (c.sequence - half),
                             .sequence = c.sequence - half,
                             .heads = c.heads,
                             .kv_heads = c.kv_heads,
                             .head_dim = c.head_dim};
  // Rows of every sample from `begin`, `count` of them, floats [column, column + cols) of each.
  const auto rows_of = [&](const auto& all, std::int64_t stride, std::int64_t begin,
                           std::int64_t count, std::int64_t column, std::int64_t cols) {
    auto some = all;
    some.clear();
    for (std::int64_t r = 0; r < c.samples * count; ++r) {
      const auto row = all.begin() + (r / count * c.sequence + begin + r % count) * stride + column;
      some.insert(some.end(), row, row + cols);
    }
    return some;
  };
  const std::int64_t kv = shape.kv_columns(), own = later.sequence;
  const Floats mine = rows_of(qkv, columns, half, own, 0, columns),
               g = rows_of(d_o, width, half, own, 0, width);
  // A block has as many rows of each sample as there are queries: those beyond `half` are no keys.
  const Floats own_keys = rows_of(qkv, columns, half, own, width, kv),
               earlier = rows_of(qkv, columns, 0, own, width, kv);
  for (const KernelTable& kernel : kernel_tables()) {
    SCOPED_TRACE(kernel.instruction_set);
    const AttentionPart causal{.shape = later,
                               .query_end = own,
                               .key_end = own,
                               .key_stride = kv,
                               .causal = true,
                               .first = true};
    const AttentionPart before{.shape = later, .query_end = own, .key_end = half, .key_stride = kv};
    Floats o(g.size(), NAN), lse(at(c.heads * later.tokens), NAN), delta = lse;
    kernel.attention_part(causal, mine.data(), own_keys.data(), o.data(), lse.data());
    kernel.attention_part(before, mine.data(), earlier.data(), o.data(), lse.data());
    EXPECT_LE(distance(o, rows_of(exact.o, width, half, own, 0, width)), 2e-6);
    Floats dq(g.size(), NAN), d_own(own_keys.size()), d_earlier(earlier.size());
    kernel.attention_part_backward(causal, g.data(), mine.data(), own_keys.data(), o.data(),
                                   lse.data(), dq.data(), d_own.data(), delta.data());
    kernel.attention_part_backward(before, g.data(), mine.data(), earlier.data(), o.data(),
                                   lse.data(), dq.data(), d_earlier.data(), delta.data());
    EXPECT_LE(distance(dq, rows_of(exact.dqkv, columns, half, own, 0, width)), 2e-6);
    EXPECT_LE(distance(d_own, rows_of(exact.dqkv, columns, half, own, width, kv)), 2e-6);
  }
}

const auto kShapes =
    testing::Values(Case{2, 7, 2, 1, 4}, Case{1, 64, 2, 2, 32}, Case{2, 65, 3, 1, 20},
                    Case{1, 130, 4, 2, 64}, Case{1, 200, 1, 1, 128}, Case{3, 129, 2, 2, 17});
INSTANTIATE_TEST_SUITE_P(Shapes, Attention, kShapes);
INSTANTIATE_TEST_SUITE_P(OneToken, Attention, testing::Values(Case{1, 1, 1, 1, 8}));
INSTANTIATE_TEST_SUITE_P(Shapes, AttentionInParts, kShapes);

}  // namespace
}  // namespace rehearse::exec
