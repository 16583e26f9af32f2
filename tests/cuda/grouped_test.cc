// SPDX-License-Identifier: Apache-2.0
// Products of several experts at once against the CPU: experts without rows, with one, with more
// than a tile; sizes that tensor cores take and sizes that they do not.
#include <algorithm>

#include "exec/cpu/kernels/table.h"
#include "tests/cuda/memory.h"

namespace rehearse::exec::cuda::testing {
namespace {

const std::vector<std::int32_t> kBegin{0, 0, 5, 135, 136, 200};
constexpr std::int64_t kExperts = 5, kRows = 200, kRoom = 230;

struct Sizes {
  std::int64_t n, k;
};
const Sizes kSizes[] = {{136, 72}, {24, 200}, {9, 35}};

class GroupedTest : public KernelTest {
 protected:
  std::vector<float> random(std::int64_t count, unsigned seed) const {
    return rounded(random_values(count, seed), type());
  }
};

TEST_P(GroupedTest, RowsTimesTheirExpertsMatrix) {
  for (const auto& [n, k] : kSizes) {
    for (const bool with_bias : {false, true}) {
      SCOPED_TRACE(n);
      const auto x = random(kRoom * k, 1), w = random(kExperts * n * k, 2);
      const auto bias = random(kExperts * n, 3), before = random(kRoom * n, 4);
      auto y = before;
      kernels().grouped_linear({kExperts, kRoom, kBegin.data()}, n, k, x.data(), w.data(),
                               with_bias ? bias.data() : nullptr, y.data());
      Memory m(type());
      Array &b = m.raw(kBegin), &xa = m.values(x), &wa = m.values(w), &ba = m.values(bias);
      Array& out = m.values(before);  // rows of nobody stay as they are
      m.run([&, n = n, k = k] {
        return grouped_linear(nullptr, type(), {kExperts, kRoom, b.at<std::int32_t>()}, n, k,
                              xa.at(), wa.at(), with_bias ? ba.at() : nullptr, out.at());
      });
      expect_close(out.values(), y, tolerance(), "y");
    }
  }
}

TEST_P(GroupedTest, GradientsOfTheRows) {
  for (const auto& [n, k] : kSizes) {
    SCOPED_TRACE(n);
    const auto dy = random(kRoom * n, 1), w = random(kExperts * n * k, 2);
    const auto before = random(kRoom * k, 4);
    auto dx = before;
    kernels().grouped_linear_input({kExperts, kRoom, kBegin.data()}, n, k, dy.data(), w.data(),
                                   dx.data());
    Memory m(type());
    Array &b = m.raw(kBegin), &da = m.values(dy), &wa = m.values(w), &out = m.values(before);
    m.run([&, n = n, k = k] {
      return grouped_linear_input(nullptr, type(), {kExperts, kRoom, b.at<std::int32_t>()}, n, k,
                                  da.at(), wa.at(), out.at());
    });
    expect_close(out.values(), dx, tolerance(), "dx");
  }
}

// Added to what is there, in fp32 whatever the type; an expert without rows changes nothing.
TEST_P(GroupedTest, GradientsOfTheMatricesAndBiases) {
  for (const auto& [n, k] : kSizes) {
    SCOPED_TRACE(n);
    const auto dy = random(kRoom * n, 1), x = random(kRoom * k, 2);
    const auto before = random_values(kExperts * n * k, 3), sums = random_values(kExperts * n, 4);
    auto dw = before, db = sums;
    const GroupedShape here{kExperts, kRoom, kBegin.data()};
    kernels().grouped_linear_weight(here, n, k, dy.data(), x.data(), dw.data());
    kernels().grouped_column_sums(here, n, dy.data(), db.data());
    Memory m(type());
    Array &b = m.raw(kBegin), &da = m.values(dy), &xa = m.values(x);
    Array &out = m.floats(before), &bias = m.floats(sums);
    m.run([&, n = n, k = k] {
      const GroupedShape there{kExperts, kRoom, b.at<std::int32_t>()};
      const int status =
          grouped_linear_weight(nullptr, type(), there, n, k, da.at(), xa.at(), out.at<float>());
      return status != 0
                 ? status
                 : grouped_column_sums(nullptr, type(), there, n, da.at(), bias.at<float>());
    });
    expect_close(out.values(), dw, 3e-6, "dw");
    expect_close(bias.values(), db, 3e-6, "db");
    const auto same = static_cast<std::size_t>(n * k);
    EXPECT_TRUE(std::equal(before.begin(), before.begin() + static_cast<std::ptrdiff_t>(same),
                           out.values().begin()));
  }
}

// Where more rows came than there is room for, none beyond it are read or written: with room for
// 130 rows the last expert has none, the one before only 0 and the third 125.
TEST_P(GroupedTest, RowsBeyondTheRoomAreLeft) {
  const std::int64_t n = 16, k = 24, room = 130;
  const auto x = random(room * k, 1), w = random(kExperts * n * k, 2);
  const auto before = random(kRows * n, 3);
  auto y = before;
  kernels().grouped_linear({kExperts, room, kBegin.data()}, n, k, x.data(), w.data(), nullptr,
                           y.data());
  Memory m(type());
  Array &b = m.raw(kBegin), &xa = m.values(x), &wa = m.values(w), &out = m.values(before);
  m.run([&] {
    return grouped_linear(nullptr, type(), {kExperts, room, b.at<std::int32_t>()}, n, k, xa.at(),
                          wa.at(), nullptr, out.at());
  });
  expect_close(out.values(), y, tolerance(), "y");
}

// A row's product is the same whatever lies beside it: experts alone are equal bit for bit however
// many ranks share them.
TEST_P(GroupedTest, ARowHasTheSameBitsAmongOthersAndAlone) {
  const std::int64_t n = 40, k = 72;
  const auto x = random(kRows * k, 1), w = random(kExperts * n * k, 2);
  const auto run = [&](std::vector<std::int32_t> begin, std::int64_t experts, const float* first_x,
                       const float* first_w, std::int64_t rows) {
    Memory m(type());
    Array& b = m.raw(begin);
    Array& xa = m.values({first_x, first_x + rows * k});
    Array& wa = m.values({first_w, first_w + experts * n * k});
    Array& out = m.empty(rows * n);
    m.run([&] {
      return grouped_linear(nullptr, type(), {experts, rows, b.at<std::int32_t>()}, n, k, xa.at(),
                            wa.at(), nullptr, out.at());
    });
    return out.values();
  };
  const auto all = run(kBegin, kExperts, x.data(), w.data(), kRows);
  const auto alone = run({0, 64}, 1, x.data() + 136 * k, w.data() + 4 * n * k, 64);
  EXPECT_TRUE(std::equal(alone.begin(), alone.end(), all.begin() + 136 * n));
}

REHEARSE_ALL_TYPES(GroupedTest);

}  // namespace
}  // namespace rehearse::exec::cuda::testing
