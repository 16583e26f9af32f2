// SPDX-License-Identifier: Apache-2.0
// The orders of rows are the CPU's exactly; what moves and weighs them is compared with the CPU.
#include <algorithm>
#include <limits>
#include <numeric>

#include "exec/cpu/kernels/table.h"
#include "tests/cuda/memory.h"

namespace rehearse::exec::cuda::testing {
namespace {

std::size_t size(std::int64_t count) {
  return static_cast<std::size_t>(count);
}

// For each token so many different experts, ascending; low ones more often, some never.
std::vector<std::int32_t> random_choices(std::int64_t tokens, std::int64_t per_token,
                                         std::int32_t experts, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::int32_t> chosen;
  for (std::int64_t t = 0; t < tokens; ++t) {
    std::vector<std::int32_t> mine;
    while (mine.size() < size(per_token)) {
      const auto a = std::uniform_int_distribution<std::int32_t>(0, experts - 1)(random);
      const auto b = std::uniform_int_distribution<std::int32_t>(0, experts - 1)(random);
      const std::int32_t expert = std::min(a, b);
      if (std::ranges::find(mine, expert) == mine.end()) mine.push_back(expert);
    }
    std::ranges::sort(mine);
    chosen.insert(chosen.end(), mine.begin(), mine.end());
  }
  return chosen;
}

class ExpertRowsTest : public KernelTest {
 protected:
  std::vector<float> random(std::int64_t count, unsigned seed) const {
    return rounded(random_values(count, seed), type());
  }
};

struct Sorted {
  std::vector<std::int32_t> row, token, begin;
};
Sorted sorted_by_cpu(const CopiesShape& s, const std::vector<std::int32_t>& chosen) {
  Sorted out{std::vector<std::int32_t>(chosen.size()), std::vector<std::int32_t>(size(s.room)),
             std::vector<std::int32_t>(size(s.experts + 1))};
  kernels().sort_copies(s, chosen.data(), out.row.data(), out.token.data(), out.begin.data());
  return out;
}

// All experts, a part of them, too little room, slots, slots that are too small; several chunks.
TEST_P(ExpertRowsTest, CopiesAreSortedAsByTheCpu) {
  if (type() != Type::Float32) return;  // there are no elements
  const CopiesShape kCases[] = {
      {.tokens = 40, .per_token = 2, .first = 0, .experts = 8, .room = 80},
      {.tokens = 700, .per_token = 4, .first = 0, .experts = 16, .room = 2800},
      {.tokens = 700, .per_token = 3, .first = 4, .experts = 8, .room = 1500},
      {.tokens = 100, .per_token = 2, .first = 0, .experts = 16, .room = 150},
      {.tokens = 600,
       .per_token = 2,
       .first = 0,
       .experts = 16,
       .room = 3600,
       .per_slot = 4,
       .slot = 900},
      {.tokens = 600,
       .per_token = 2,
       .first = 0,
       .experts = 16,
       .room = 800,
       .per_slot = 4,
       .slot = 200},
      {.tokens = 9, .per_token = 1, .first = 0, .experts = 300, .room = 9},
  };
  unsigned seed = 1;
  for (const CopiesShape& s : kCases) {
    SCOPED_TRACE(seed);
    const auto experts = static_cast<std::int32_t>(std::max<std::int64_t>(s.experts, 16));
    const auto chosen = random_choices(s.tokens, s.per_token, experts, seed++);
    const Sorted expected = sorted_by_cpu(s, chosen);
    Memory m(type());
    Array& c = m.raw(chosen);
    Array& row = m.raw(std::vector<std::int32_t>(expected.row.size(), -7));
    Array& token = m.raw(std::vector<std::int32_t>(expected.token.size(), -7));
    Array& begin = m.raw(std::vector<std::int32_t>(expected.begin.size(), -7));
    Array& scratch = m.scratch(sort_copies_scratch(s));
    m.run([&] {
      return sort_copies(nullptr, s, c.at<std::int32_t>(), row.at<std::int32_t>(),
                         token.at<std::int32_t>(), begin.at<std::int32_t>(), scratch.at());
    });
    EXPECT_EQ(row.as<std::int32_t>(), expected.row);
    EXPECT_EQ(token.as<std::int32_t>(), expected.token);
    EXPECT_EQ(begin.as<std::int32_t>(), expected.begin);
  }
}

// One source for each buffer (counted), several with slots, one of which is too small.
TEST_P(ExpertRowsTest, RowsThatCameAreSortedAsByTheCpu) {
  if (type() != Type::Float32) return;
  const std::int64_t experts = 12, tokens = 50;
  const ArrivedShape kCases[] = {
      {.sources = 3,
       .members = 1,
       .stride = 300,
       .experts = experts,
       .first = 4,
       .per_source = 4,
       .room = 300},
      {.sources = 6,
       .members = 2,
       .stride = 300,
       .experts = experts,
       .first = 8,
       .per_source = 4,
       .room = 600,
       .slot = 100},
      {.sources = 6,
       .members = 2,
       .stride = 60,
       .experts = experts,
       .first = 0,
       .per_source = 4,
       .room = 100,
       .slot = 20},
      {.sources = 2,
       .members = 2,
       .stride = 100,
       .experts = experts,
       .first = 0,
       .per_source = experts,
       .room = 200},
  };
  for (const ArrivedShape& s : kCases) {
    SCOPED_TRACE(s.stride);
    std::vector<std::int32_t> begins;
    for (std::int64_t source = 0; source < s.sources; ++source) {
      const auto chosen = random_choices(tokens, 2, experts, static_cast<unsigned>(source));
      const Sorted of = sorted_by_cpu(
          {.tokens = tokens, .per_token = 2, .experts = experts, .room = 2 * tokens}, chosen);
      begins.insert(begins.end(), of.begin.begin(), of.begin.end());
    }
    std::vector<std::int32_t> from(size(s.room)), begin(size(s.per_source + 1));
    kernels().sort_rows(s, begins.data(), from.data(), begin.data());
    Memory m(type());
    Array& b = m.raw(begins);
    Array& f = m.raw(std::vector<std::int32_t>(from.size(), -7));
    Array& to = m.raw(std::vector<std::int32_t>(begin.size(), -7));
    Array& scratch = m.scratch(sort_rows_scratch(s));
    m.run([&] {
      return sort_rows(nullptr, s, b.at<std::int32_t>(), f.at<std::int32_t>(),
                       to.at<std::int32_t>(), scratch.at());
    });
    EXPECT_EQ(f.as<std::int32_t>(), from);
    EXPECT_EQ(to.as<std::int32_t>(), begin);
  }
}

struct Visits {
  std::vector<std::int32_t> token, sent, row, weight, begins, arrived;
  Visits(const VisitsShape& s, std::int32_t first)
      : token(size(s.leaving()), first),
        sent(size(s.ranks + 1), first),
        row(size(s.tokens * s.per_token), first),
        weight(row),
        begins(size(s.ranks * (s.ranks + 1)), first),
        arrived(size(s.room * s.per_token), first) {}
};

// Several chunks, one behind the other and in slots, with room and without, some copies dropped;
// one expert a rank, and more ranks than a block has threads.
TEST_P(ExpertRowsTest, VisitsAreSortedAsByTheCpu) {
  if (type() != Type::Float32) return;
  const VisitsShape kCases[] = {
      {.ranks = 4, .rank = 1, .tokens = 40, .per_token = 2, .per_rank = 2, .room = 160},
      {.ranks = 4, .rank = 3, .tokens = 700, .per_token = 4, .per_rank = 4, .room = 900},
      {.ranks = 2,
       .rank = 0,
       .tokens = 500,
       .per_token = 3,
       .per_rank = 8,
       .room = 1000,
       .slot = 500},
      {.ranks = 4,
       .rank = 2,
       .tokens = 600,
       .per_token = 4,
       .per_rank = 4,
       .room = 800,
       .slot = 200},
      {.ranks = 16, .rank = 5, .tokens = 9, .per_token = 2, .per_rank = 1, .room = 48, .slot = 3},
      {.ranks = 300,
       .rank = 299,
       .tokens = 5,
       .per_token = 8,
       .per_rank = 2,
       .room = 300,
       .slot = 1},
  };
  unsigned seed = 1;
  for (const VisitsShape& s : kCases) {
    SCOPED_TRACE(seed);
    auto chosen = random_choices(s.ranks * s.tokens, s.per_token,
                                 static_cast<std::int32_t>(s.ranks * s.per_rank), seed++);
    for (std::size_t i = 0; i < chosen.size(); i += 7) chosen[i] = -1;
    Visits expected(s, 0), poison(s, -7);
    kernels().sort_visits(s, chosen.data(), expected.token.data(), expected.sent.data(),
                          expected.row.data(), expected.weight.data(), expected.begins.data(),
                          expected.arrived.data());
    Memory m(type());
    Array &c = m.raw(chosen), &token = m.raw(poison.token), &sent = m.raw(poison.sent);
    Array &row = m.raw(poison.row), &weight = m.raw(poison.weight);
    Array &begins = m.raw(poison.begins), &arrived = m.raw(poison.arrived);
    Array& scratch = m.scratch(sort_visits_scratch(s));
    m.run([&] {
      return sort_visits(nullptr, s, c.at<std::int32_t>(), token.at<std::int32_t>(),
                         sent.at<std::int32_t>(), row.at<std::int32_t>(), weight.at<std::int32_t>(),
                         begins.at<std::int32_t>(), arrived.at<std::int32_t>(), scratch.at());
    });
    EXPECT_EQ(token.as<std::int32_t>(), expected.token);
    EXPECT_EQ(sent.as<std::int32_t>(), expected.sent);
    EXPECT_EQ(row.as<std::int32_t>(), expected.row);
    EXPECT_EQ(weight.as<std::int32_t>(), expected.weight);
    EXPECT_EQ(begins.as<std::int32_t>(), expected.begins);
    EXPECT_EQ(arrived.as<std::int32_t>(), expected.arrived);
  }
}

// Choices of two experts together, beside what was the most before; then of lines of slots.
TEST_P(ExpertRowsTest, TheMostRowsOfARankAreFound) {
  const CountShape shape{.experts = 12, .together = 2};
  auto chosen = random_choices(400, 3, 12, 9);
  for (std::size_t i = 0; i < chosen.size(); i += 5) chosen[i] = -1;
  double most = 0;
  kernels().count_choices(shape, 1200, chosen.data(), &most);
  const CountShape lines{.experts = 4, .together = 2, .lines = 2};
  const std::vector<std::int32_t> begins{0, 3, 4, 9, 10, 0, 1, 7, 8, 8};
  Memory m(type());
  Array &c = m.raw(chosen), &b = m.raw(begins);
  Array &small = m.raw(std::vector<double>{1}), &large = m.raw(std::vector<double>{1e6});
  Array& slots = m.raw(std::vector<double>{2});
  Array& scratch = m.scratch(count_choices_scratch(shape));
  m.run([&] {
    int status =
        count_choices(nullptr, shape, 1200, c.at<std::int32_t>(), small.at<double>(), scratch.at());
    if (status == 0) {
      status = count_choices(nullptr, shape, 1200, c.at<std::int32_t>(), large.at<double>(),
                             scratch.at());
    }
    return status != 0 ? status
                       : count_rows(nullptr, type(), lines, b.at<std::int32_t>(), nullptr,
                                    slots.at<double>());
  });
  EXPECT_EQ(small.as<double>(), std::vector<double>{most});
  EXPECT_EQ(large.as<double>(), std::vector<double>{1e6});
  EXPECT_EQ(slots.as<double>(), std::vector<double>{7});  // rows 0 to 7 of the second line
}

TEST_P(ExpertRowsTest, WhatIsNoNumberIsCounted) {
  std::vector<float> x(700, 1.5F);
  x[3] = std::numeric_limits<float>::quiet_NaN();
  x[300] = std::numeric_limits<float>::infinity();
  x[699] = -x[300];
  Memory m(type());
  Array &in = m.floats(x), &found = m.raw(std::vector<double>{2});
  m.run([&] { return count_not_finite(nullptr, type(), 700, in.at<float>(), found.at<double>()); });
  EXPECT_EQ(found.as<double>(), std::vector<double>{5});
}

TEST_P(ExpertRowsTest, RowsAreCounted) {
  const CountShape shape{.experts = 6, .together = 3};
  Memory m(type());
  Array& begin = m.raw(std::vector<std::int32_t>{0, 4, 4, 9, 10, 12, 20});
  Array& rows = m.raw(std::vector<double>{1, 0, 0, 0, 0, 2});
  Array& most = m.raw(std::vector<double>{10});
  m.run([&] {
    return count_rows(nullptr, type(), shape, begin.at<std::int32_t>(), rows.at<double>(),
                      most.at<double>());
  });
  EXPECT_EQ(rows.as<double>(), (std::vector<double>{5, 0, 5, 1, 2, 10}));
  EXPECT_EQ(most.as<double>(), std::vector<double>{11});  // 9 of the first three, 11 of the others
}

// Few weights, of both signs, so that some are equal: of these the earlier token's is kept. Some
// are no numbers, which are the least.
TEST_P(ExpertRowsTest, CopiesBeyondAnExpertsCapacityAreDropped) {
  const DropShape shape{.tokens = 300, .experts = 8, .per_token = 2, .capacity = 70};
  const auto chosen = random_choices(shape.tokens, shape.per_token, 8, 5);
  auto weights = random_values(shape.tokens * shape.per_token, 6);
  for (float& weight : weights) weight = std::round(weight * 4);
  for (std::size_t i = 0; i < weights.size(); i += 11) {
    weights[i] = std::numeric_limits<float>::quiet_NaN();
  }
  std::vector<std::int32_t> kept(chosen.size());
  std::vector<double> dropped(8, 1);
  kernels().drop_copies(shape, chosen.data(), weights.data(), kept.data());
  kernels().count_dropped(shape, chosen.data(), kept.data(), dropped.data());
  Memory m(type());
  Array &c = m.raw(chosen), &w = m.floats(weights);
  Array& k = m.raw(std::vector<std::int32_t>(chosen.size(), -7));
  Array& d = m.raw(std::vector<double>(8, 1));
  Array& scratch = m.scratch(drop_copies_scratch(shape));
  m.run([&] {
    const int status = drop_copies(nullptr, shape, c.at<std::int32_t>(), w.at<float>(),
                                   k.at<std::int32_t>(), scratch.at());
    return status != 0 ? status
                       : count_dropped(nullptr, type(), shape, c.at<std::int32_t>(),
                                       k.at<std::int32_t>(), d.at<double>());
  });
  EXPECT_EQ(k.as<std::int32_t>(), kept);
  EXPECT_EQ(d.as<double>(), dropped);
  EXPECT_GT(dropped[0], 1);
}

TEST_P(ExpertRowsTest, RowsAreGatheredAndScattered) {
  const std::vector<std::int32_t> at{3, -1, 0, 5, -1, 1};
  for (const std::int64_t cols : {64, 7}) {
    const auto x = random(6 * cols, 1), y = random(6 * cols, 2);
    auto gathered = y, scattered = y;
    kernels().gather_rows(6, cols, at.data(), x.data(), gathered.data());
    kernels().scatter_rows(6, cols, at.data(), x.data(), scattered.data());
    Memory m(type());
    Array &i = m.raw(at), &in = m.values(x), &g = m.values(y), &s = m.values(y);
    m.run([&] {
      const int status =
          gather_rows(nullptr, type(), 6, cols, i.at<std::int32_t>(), in.at(), g.at());
      return status != 0
                 ? status
                 : scatter_rows(nullptr, type(), 6, cols, i.at<std::int32_t>(), in.at(), s.at());
    });
    EXPECT_EQ(g.values(), gathered);
    EXPECT_EQ(s.values(), scattered);
  }
}

// fp32 numbers among bf16 values, two halves each: a low half may be what bf16 reads as no number.
TEST_P(ExpertRowsTest, NumbersMoveBitForBit) {
  const std::vector<std::int32_t> at{2, 0, -1};
  const std::vector<std::uint32_t> x{0x3F80FF81, 0x00018000, 0x7F7F7FFF, 0xBF807F81};
  const std::int64_t cols = 4 / cuda::bytes_of(type());
  Memory m(type());
  Array &i = m.raw(at), &in = m.raw(x), &out = m.raw(std::vector<std::uint32_t>(3, 5));
  m.run([&] {
    return gather_rows(nullptr, type(), 3, cols, i.at<std::int32_t>(), in.at(), out.at());
  });
  EXPECT_EQ(out.as<std::uint32_t>(), (std::vector<std::uint32_t>{0x7F7F7FFF, 0x3F80FF81, 5}));
}

TEST_P(ExpertRowsTest, CopiesAreWeighedAndTheirGradients) {
  const std::int64_t tokens = 11, k = 3;
  for (const std::int64_t cols : {264, 5}) {
    SCOPED_TRACE(cols);
    std::vector<std::int32_t> row(size(tokens * k));
    std::iota(row.begin(), row.end(), 0);
    std::shuffle(row.begin(), row.end(), std::mt19937(1));
    row[4] = row[20] = -1;
    const auto weights = random_values(tokens * k, 3);
    const auto rows = random(tokens * k * cols, 1), dy = random(tokens * cols, 2);
    std::vector<float> y(size(tokens * cols)), sum = y, d_weights(row.size());
    std::vector<float> d_rows = rows;
    kernels().weigh_copies(tokens, k, cols, row.data(), weights.data(), rows.data(), y.data());
    kernels().weigh_copies(tokens, k, cols, row.data(), nullptr, rows.data(), sum.data());
    kernels().weigh_backward(tokens, k, cols, row.data(), weights.data(), rows.data(), dy.data(),
                             d_rows.data(), d_weights.data());
    Memory m(type());
    Array &r = m.raw(row), &w = m.floats(weights), &x = m.values(rows), &d = m.values(dy);
    Array &out = m.empty(tokens * cols), &plain = m.empty(tokens * cols);
    Array &dr = m.values(rows), &dw = m.empty_floats(tokens * k);
    Array &dr_alone = m.values(rows), &dw_alone = m.empty_floats(tokens * k);
    m.run([&] {
      int status = weigh_copies(nullptr, type(), tokens, k, cols, r.at<std::int32_t>(),
                                w.at<float>(), x.at(), out.at());
      if (status == 0) {
        status = weigh_copies(nullptr, type(), tokens, k, cols, r.at<std::int32_t>(), nullptr,
                              x.at(), plain.at());
      }
      const auto backward = [&](const void* of, void* to, float* weight) {
        if (status != 0) return;
        status = weigh_backward(nullptr, type(), tokens, k, cols, r.at<std::int32_t>(),
                                w.at<float>(), of, d.at(), to, weight);
      };
      backward(x.at(), dr.at(), dw.at<float>());
      backward(nullptr, dr_alone.at(), nullptr);
      backward(x.at(), nullptr, dw_alone.at<float>());
      return status;
    });
    expect_close(out.values(), y, tolerance(), "y");
    expect_close(plain.values(), sum, tolerance(), "sum");
    expect_close(dr.values(), d_rows, tolerance(), "d_rows");
    expect_close(dw.values(), d_weights, 3e-6, "d_weights");
    EXPECT_EQ(dr_alone.values(), dr.values());
    EXPECT_EQ(dw_alone.values(), dw.values());
  }
}

TEST_P(ExpertRowsTest, GatesAndTheirGradients) {
  const std::int64_t rows = 9;
  for (const std::int64_t cols : {264, 5}) {
    SCOPED_TRACE(cols);
    const auto g = random(rows, 1), x = random(rows * cols, 2), dy = random(rows * cols, 3);
    std::vector<float> y(x.size()), dg(g.size()), dx(x.size());
    kernels().gate(rows, cols, g.data(), x.data(), y.data());
    kernels().gate_backward(rows, cols, g.data(), x.data(), dy.data(), dg.data(), dx.data());
    Memory m(type());
    Array &ga = m.values(g), &xa = m.values(x), &da = m.values(dy);
    Array &ya = m.empty(rows * cols), &dga = m.empty(rows), &dxa = m.empty(rows * cols);
    m.run([&] {
      const int status = gate(nullptr, type(), rows, cols, ga.at(), xa.at(), ya.at());
      return status != 0 ? status
                         : gate_backward(nullptr, type(), rows, cols, ga.at(), xa.at(), da.at(),
                                         dga.at(), dxa.at());
    });
    expect_close(ya.values(), y, tolerance(), "y");
    expect_close(dga.values(), dg, tolerance(), "dg");
    expect_close(dxa.values(), dx, tolerance(), "dx");
  }
}

// A limit that some values exceed, on both sides.
TEST_P(ExpertRowsTest, ClampedGatedUnitsAndTheirGradients) {
  for (const std::int64_t f : {72, 5}) {
    SCOPED_TRACE(f);
    const ClampedGlu shape{.rows = 13, .f = f, .alpha = 1.702F, .limit = 0.9F};
    const auto u = random(2 * 13 * f, 1), dg = random(13 * f, 2);
    std::vector<float> g(size(13 * f)), du(size(2 * 13 * f));
    kernels().clamped_glu(shape, u.data(), g.data());
    kernels().clamped_glu_backward(shape, dg.data(), u.data(), du.data());
    Memory m(type());
    Array &ua = m.values(u), &da = m.values(dg);
    Array &ga = m.empty(13 * f), &dua = m.empty(2 * 13 * f);
    m.run([&] {
      const int status = clamped_glu(nullptr, type(), shape, ua.at(), ga.at());
      return status != 0 ? status
                         : clamped_glu_backward(nullptr, type(), shape, da.at(), ua.at(), dua.at());
    });
    expect_close(ga.values(), g, tolerance(), "g");
    expect_close(dua.values(), du, tolerance(), "du");
  }
}

REHEARSE_ALL_TYPES(ExpertRowsTest);

}  // namespace
}  // namespace rehearse::exec::cuda::testing
