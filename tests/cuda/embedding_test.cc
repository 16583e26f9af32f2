// SPDX-License-Identifier: Apache-2.0
// Lookup, gradient of the table and of positions against the CPU.
#include <algorithm>
#include <numeric>

#include "exec/cpu/kernels/table.h"
#include "tests/cuda/memory.h"

namespace rehearse::exec::cuda::testing {
namespace {

std::size_t size(std::int64_t count) {
  return static_cast<std::size_t>(count);
}

std::vector<std::int32_t> random_ids(std::int64_t tokens, std::int32_t vocabulary) {
  std::mt19937 random(3);
  std::vector<std::int32_t> ids(size(tokens));
  for (auto& id : ids) id = std::uniform_int_distribution<std::int32_t>(0, vocabulary - 1)(random);
  return ids;
}

// Tokens by row, those that add to none last.
std::vector<std::int32_t> sorted(const std::vector<std::int32_t>& ids,
                                 const VocabularyShape& shape) {
  std::vector<std::int32_t> order(ids.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](std::int32_t token) {
    const std::int64_t row = ids[size(token)] - shape.first;
    const bool adds = row >= 0 && row < shape.columns && ids[size(token)] != shape.frozen;
    return adds ? row : shape.columns;
  });
  return order;
}

class EmbeddingTest : public KernelTest {};

TEST_P(EmbeddingTest, RowsHereAreCopiedAndOthersAreZero) {
  for (const std::int64_t h : {64, 9}) {
    const std::int64_t tokens = 50, rows = 10;
    const VocabularyShape shape{.columns = rows, .valid = rows, .first = 3, .scale = 4};
    const auto ids = random_ids(tokens, 17);
    const auto table = rounded(random_values(rows * h, 1), type());
    std::vector<float> expected(size(tokens * h));
    kernels().embed(tokens, h, ids.data(), table.data(), shape, expected.data());
    Memory m(type());
    Array &i = m.raw(ids), &t = m.values(table), &out = m.empty(tokens * h);
    m.run([&] {
      return embed(nullptr, type(), tokens, h, i.at<std::int32_t>(), t.at(), shape, out.at());
    });
    expect_close(out.values(), expected, 0, "out");
  }
}

// The sums run in token order: equal to the CPU's bit for bit, in both types. A frozen token, and
// one that is elsewhere, add nothing.
TEST_P(EmbeddingTest, GradientsOfOneRowAddUpInTokenOrder) {
  struct Case {
    std::int64_t tokens, h, rows, frozen = -1;
    std::int32_t vocabulary = 12;
  };
  for (const auto& [tokens, h, rows, frozen, vocabulary] :
       {Case{700, 16, 8}, Case{3, 40, 8}, Case{300, 5, 8, 4}, Case{300, 16, 8, 11},
        Case{2500, 8, 8},                  // more of one row than a block reads at once
        Case{1500, 1032, 254, 7, 256},     // of a row more than a block has threads
        Case{900, 8, 70000, 5, 80000}}) {  // three digits
    const VocabularyShape shape{
        .columns = rows, .valid = rows, .first = 2, .frozen = frozen, .scale = 4};
    const auto ids = random_ids(tokens, vocabulary);
    const auto dy = rounded(random_values(tokens * h, 1), type());
    const auto before = random_values(rows * h, 2);
    auto expected = before;
    std::vector<std::int32_t> room(size(tokens));
    kernels().embed_backward(tokens, h, ids.data(), dy.data(), shape, room.data(), expected.data());
    Memory m(type());
    Array &i = m.raw(ids), &d = m.values(dy), &table = m.floats(before),
          &scratch = m.scratch(sort_tokens_scratch(tokens));
    Array& order = m.raw(std::vector<std::int32_t>(size(tokens), -1));
    m.run([&, tokens = tokens, h = h] {
      const int status = sort_tokens(nullptr, tokens, i.at<std::int32_t>(), shape,
                                     order.at<std::int32_t>(), scratch.at());
      return status != 0 ? status
                         : embed_backward(nullptr, type(), tokens, h, i.at<std::int32_t>(), d.at(),
                                          shape, order.at<std::int32_t>(), table.at<float>());
    });
    EXPECT_EQ(order.as<std::int32_t>(), sorted(ids, shape));
    EXPECT_EQ(table.values(), expected);
  }
}

// More tokens than one round of every block takes.
TEST_P(EmbeddingTest, ManyTokensAreSorted) {
  if (type() != Type::Float32) return;  // no type takes part
  const std::int64_t tokens = 132000;
  const VocabularyShape shape{.columns = 300, .valid = 300, .first = 20};
  const auto ids = random_ids(tokens, 330);
  Memory m(type());
  Array &i = m.raw(ids), &scratch = m.scratch(sort_tokens_scratch(tokens));
  Array& order = m.raw(std::vector<std::int32_t>(size(tokens), -1));
  m.run([&] {
    return sort_tokens(nullptr, tokens, i.at<std::int32_t>(), shape, order.at<std::int32_t>(),
                       scratch.at());
  });
  EXPECT_EQ(order.as<std::int32_t>(), sorted(ids, shape));
}

TEST_P(EmbeddingTest, PositionsAreAddedAndTheirGradientsSummed) {
  // A rank that holds tokens from position 4 on: it meets position 0 in its third token.
  const std::int64_t sequence = 6, first = 4;
  for (const auto& [tokens, h] : {std::pair<std::int64_t, std::int64_t>{17, 16}, {71, 3}}) {
    const auto x = rounded(random_values(tokens * h, 1), type());
    const auto positions = rounded(random_values(sequence * h, 2), type());
    const auto before = random_values(sequence * h, 3);
    std::vector<float> sum(x.size()), gradient = before;
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t c = 0; c < h; ++c) {
        const auto at = size((first + t) % sequence * h + c);
        sum[size(t * h + c)] = x[size(t * h + c)] + positions[at];
        gradient[at] += x[size(t * h + c)];
      }
    }
    Memory m(type());
    Array &in = m.values(x), &p = m.values(positions), &out = m.empty(tokens * h),
          &d = m.floats(before);
    m.run([&, tokens = tokens, h = h] {
      const int status =
          add_positions(nullptr, type(), tokens, h, first, sequence, in.at(), p.at(), out.at());
      return status != 0 ? status
                         : position_gradient(nullptr, type(), tokens, h, first, sequence, in.at(),
                                             d.at<float>());
    });
    expect_close(out.values(), rounded(sum, type()), 0, "out");
    EXPECT_EQ(d.values(), gradient);
  }
}

REHEARSE_ALL_TYPES(EmbeddingTest);

}  // namespace
}  // namespace rehearse::exec::cuda::testing
