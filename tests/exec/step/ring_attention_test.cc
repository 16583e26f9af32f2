// SPDX-License-Identifier: Apache-2.0
// Attention block by block around a ring gives what attention over the whole sequence gives,
// forward and backward, where blocks begin and end inside of tiles. Attention of some heads, which
// ranks exchange, gives their bits of attention of all heads.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "exec/cpu/kernels/table.h"
#include "tests/exec/cpu/noise.h"

namespace rehearse::exec {
namespace {

struct Case {
  std::int64_t samples, sequence, heads, kv_heads, head_dim, ring;
};

// Row of the whole array (samples x sequence) that row `r` of rank `i` is.
std::int64_t whole_row(const Case& c, std::int64_t i, std::int64_t r) {
  const std::int64_t chunk = c.sequence / (2 * c.ring), local = 2 * chunk;
  const std::int64_t sample = r / local, within = r % local;
  const std::int64_t number = within < chunk ? i : 2 * c.ring - 1 - i;
  return sample * c.sequence + number * chunk + within % chunk;
}

double distance(const Floats& a, const Floats& b) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    size += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(difference / size);
}

class Ring : public testing::TestWithParam<Case> {};

TEST_P(Ring, IsAttentionOverTheWholeSequence) {
  const Case c = GetParam();
  const AttentionShape whole{.tokens = c.samples * c.sequence,
                             .sequence = c.sequence,
                             .heads = c.heads,
                             .kv_heads = c.kv_heads,
                             .head_dim = c.head_dim};
  AttentionShape local = whole;
  local.tokens /= c.ring;
  local.sequence /= c.ring;
  const std::int64_t columns = whole.columns(), width = c.heads * c.head_dim,
                     kv = whole.kv_columns();
  const Floats qkv = noise(whole.tokens * columns, 1), d_o = noise(whole.tokens * width, 2);
  Floats o(at(whole.tokens * width)), lse(at(c.heads * whole.tokens)), delta = lse, dqkv = qkv;
  kernels().attention(whole, qkv.data(), o.data(), lse.data());
  kernels().attention_backward(whole, d_o.data(), qkv.data(), o.data(), lse.data(), dqkv.data(),
                               delta.data());

  // Every rank's rows of an array of the whole.
  const auto part_of = [&](const Floats& all, std::int64_t rank, std::int64_t stride) {
    Floats mine;
    for (std::int64_t r = 0; r < local.tokens; ++r) {
      const auto from = all.begin() + whole_row(c, rank, r) * stride;
      mine.insert(mine.end(), from, from + stride);
    }
    return mine;
  };
  std::vector<Floats> q, blocks;  // qkv, and its keys and values packed, by rank
  for (std::int64_t rank = 0; rank < c.ring; ++rank) {
    q.push_back(part_of(qkv, rank, columns));
    Floats block;
    for (std::int64_t r = 0; r < local.tokens; ++r) {
      const auto row = q.back().begin() + r * columns;
      block.insert(block.end(), row + width, row + columns);
    }
    blocks.push_back(std::move(block));
  }
  const auto part = [&](std::int64_t rank, std::int64_t step) {
    const std::int64_t rows = local.sequence;
    AttentionPart made{
        .shape = local, .query_end = rows, .key_end = rows, .key_stride = kv, .causal = step == 0};
    if (step > 0) (step <= rank ? made.key_end : made.query_begin) = rows / 2;
    return made;
  };
  std::vector<Floats> d_blocks(at(c.ring), Floats(blocks[0].size(), 0.0F));
  std::vector<Floats> d_q;
  for (std::int64_t rank = 0; rank < c.ring; ++rank) {
    Floats sum(at(local.tokens * width)), own_lse(at(c.heads * local.tokens)), own_delta = own_lse;
    for (std::int64_t step = 0; step < c.ring; ++step) {
      AttentionPart now = part(rank, step);
      now.first = step == 0;
      kernels().attention_part(now, q[at(rank)].data(),
                               blocks[at((rank - step + c.ring) % c.ring)].data(), sum.data(),
                               own_lse.data());
    }
    EXPECT_LE(distance(sum, part_of(o, rank, width)), 1e-6) << "o of rank " << rank;
    const Floats mine = part_of(d_o, rank, width);
    Floats dq(sum.size(), 99.0F);
    for (std::int64_t step = 1; step <= c.ring; ++step) {
      AttentionPart now = part(rank, step % c.ring);
      now.first = step == 1;
      const std::size_t of = at((rank - step + c.ring) % c.ring);
      kernels().attention_part_backward(now, mine.data(), q[at(rank)].data(), blocks[of].data(),
                                        sum.data(), own_lse.data(), dq.data(), d_blocks[of].data(),
                                        own_delta.data());
    }
    d_q.push_back(std::move(dq));
  }
  for (std::int64_t rank = 0; rank < c.ring; ++rank) {
    const Floats expected = part_of(dqkv, rank, columns);
    Floats got;
    for (std::int64_t r = 0; r < local.tokens; ++r) {
      const auto q_row = d_q[at(rank)].begin() + r * width;
      const auto kv_row = d_blocks[at(rank)].begin() + r * kv;
      got.insert(got.end(), q_row, q_row + width);
      got.insert(got.end(), kv_row, kv_row + kv);
    }
    EXPECT_LE(distance(got, expected), 2e-6) << "gradients of rank " << rank;
  }
}

class Heads : public testing::TestWithParam<Case> {};

TEST_P(Heads, OfARankHaveTheirBitsOfAll) {
  const Case c = GetParam();
  const AttentionShape whole{.tokens = c.samples * c.sequence,
                             .sequence = c.sequence,
                             .heads = c.heads,
                             .kv_heads = c.kv_heads,
                             .head_dim = c.head_dim};
  const std::int64_t ranks = c.ring, columns = whole.columns(), width = c.heads * c.head_dim;
  const Floats qkv = noise(whole.tokens * columns, 1), d_o = noise(whole.tokens * width, 2);
  Floats o(at(whole.tokens * width)), lse(at(c.heads * whole.tokens)), delta = lse, dqkv = qkv;
  kernels().attention(whole, qkv.data(), o.data(), lse.data());
  kernels().attention_backward(whole, d_o.data(), qkv.data(), o.data(), lse.data(), dqkv.data(),
                               delta.data());
  AttentionShape own = whole;
  own.heads /= ranks;
  own.kv_heads /= ranks;
  const std::int64_t q = own.heads * c.head_dim, k = own.kv_heads * c.head_dim;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    // Columns of a rank: of queries or outputs, and behind them of keys and values.
    const auto part_of = [&](const Floats& all, std::int64_t stride) {
      Floats mine;
      for (std::int64_t t = 0; t < whole.tokens; ++t) {
        const auto row = all.begin() + t * stride;
        mine.insert(mine.end(), row + rank * q, row + (rank + 1) * q);
        if (stride == width) continue;
        for (const std::int64_t begin : {width, width + c.kv_heads * c.head_dim}) {
          mine.insert(mine.end(), row + begin + rank * k, row + begin + (rank + 1) * k);
        }
      }
      return mine;
    };
    const Floats mine = part_of(qkv, columns), d_mine = part_of(d_o, width);
    Floats own_o(d_mine.size()), own_lse(at(own.heads * whole.tokens)), own_delta = own_lse,
                                                                        own_d = mine;
    kernels().attention(own, mine.data(), own_o.data(), own_lse.data());
    kernels().attention_backward(own, d_mine.data(), mine.data(), own_o.data(), own_lse.data(),
                                 own_d.data(), own_delta.data());
    EXPECT_EQ(own_o, part_of(o, width)) << "o of rank " << rank;
    EXPECT_EQ(own_d, part_of(dqkv, columns)) << "gradients of rank " << rank;
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, Heads,
                         testing::Values(Case{1, 16, 2, 2, 8, 2}, Case{2, 360, 4, 2, 16, 2},
                                         Case{1, 512, 8, 4, 32, 4}, Case{3, 132, 6, 3, 20, 3}));

INSTANTIATE_TEST_SUITE_P(Shapes, Ring,
                         testing::Values(Case{1, 16, 2, 2, 8, 2}, Case{2, 360, 4, 2, 16, 2},
                                         Case{1, 512, 2, 1, 32, 4}, Case{3, 132, 3, 3, 20, 3},
                                         Case{1, 272, 4, 4, 16, 8}));

}  // namespace
}  // namespace rehearse::exec
