// SPDX-License-Identifier: Apache-2.0
// Products by AMX's tiles where no machine has them: the blocking and packing of bf16/tiles.inc
// over tiles in C++, as Intel's manual defines the instructions (Intel 64 and IA-32 Architectures
// Software Developer's Manual, volume 2, TDPBF16PS). Where a machine has AMX, kernels_test.cc runs
// the kernels themselves.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "exec/backend/element.h"
#include "exec/cpu/kernels/table.h"

namespace rehearse::exec {
namespace {
namespace tiles {

struct Tile {
  std::array<std::array<std::uint8_t, 64>, 16> rows{};
};
std::array<Tile, 8> all;
bool configured = false;

void _tile_loadconfig(const void* config) {
  const auto* bytes = static_cast<const std::uint8_t*>(config);
  EXPECT_EQ(bytes[0], 1);  // palette
  for (std::size_t t = 0; t < 8; ++t) {
    std::uint16_t width = 0;
    std::memcpy(&width, bytes + 16 + 2 * t, 2);
    EXPECT_EQ(width, 64);
    EXPECT_EQ(bytes[48 + t], 16);
  }
  configured = true;
}
void _tile_release() {
  configured = false;
}
void _tile_zero(std::size_t t) {
  EXPECT_TRUE(configured);
  all[t] = {};
}
void _tile_loadd(std::size_t t, const void* from, std::int64_t stride) {
  for (std::int64_t r = 0; r < 16; ++r) {
    std::memcpy(all[t].rows[static_cast<std::size_t>(r)].data(),
                static_cast<const char*>(from) + r * stride, 64);
  }
}
void _tile_stored(std::size_t t, void* to, std::int64_t stride) {
  for (std::int64_t r = 0; r < 16; ++r) {
    std::memcpy(static_cast<char*>(to) + r * stride,
                all[t].rows[static_cast<std::size_t>(r)].data(), 64);
  }
}
void _tile_dpbf16ps(std::size_t sums, std::size_t a, std::size_t b) {
  const auto number = [](std::size_t t, std::size_t row, std::size_t place) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, all[t].rows[row].data() + 2 * place, 2);
    BFloat16 x;
    x.bits = bits;
    return static_cast<float>(x);
  };
  for (std::size_t m = 0; m < 16; ++m) {
    for (std::size_t n = 0; n < 16; ++n) {
      float even = 0, odd = 0, sum = 0;
      for (std::size_t k = 0; k < 16; ++k) {
        even += number(a, m, 2 * k) * number(b, k, 2 * n);
        odd += number(a, m, 2 * k + 1) * number(b, k, 2 * n + 1);
      }
      std::memcpy(&sum, all[sums].rows[m].data() + 4 * n, 4);
      sum += even + odd;
      std::memcpy(all[sums].rows[m].data() + 4 * n, &sum, 4);
    }
  }
}

#include "exec/cpu/kernels/operand.inc"

#include "exec/cpu/kernels/bf16/tiles.inc"

}  // namespace tiles

// Around the edges of tiles (16 rows and columns, 32 depths), squares (32) and blocks (192, 256,
// 1536); both operands either way round, odd depths.
TEST(Tiles, AreProductsOfAllShapesIncludingOddOnes) {
  const std::int64_t shapes[][3] = {{1, 1, 1},    {2, 3, 5},     {16, 16, 32},  {17, 15, 33},
                                    {31, 33, 31}, {32, 32, 64},  {33, 65, 257}, {193, 40, 70},
                                    {5, 1550, 7}, {40, 33, 1000}};
  for (const auto& [m, n, k] : shapes) {
    SCOPED_TRACE(std::to_string(m) + " x " + std::to_string(n) + " x " + std::to_string(k));
    std::mt19937 bits(static_cast<unsigned>(m * n * k));
    std::uniform_real_distribution<float> uniform(-1, 1);
    const auto numbers = [&](std::int64_t count) {
      std::vector<BFloat16> values;
      for (std::int64_t i = 0; i < count; ++i) values.emplace_back(uniform(bits));
      return values;
    };
    const std::vector<BFloat16> a = numbers(m * k), b = numbers(k * n);
    std::vector<float> bias;
    for (std::int64_t i = 0; i < n; ++i) bias.push_back(uniform(bits));
    for (const bool transposed : {false, true}) {
      // a(m, k), or a(k, m); b(k, n), or b(n, k)
      const tiles::Operand<BFloat16> of_a = transposed ? tiles::Operand<BFloat16>{a.data(), 1, m}
                                                       : tiles::Operand<BFloat16>{a.data(), k, 1};
      const tiles::Operand<BFloat16> of_b = transposed ? tiles::Operand<BFloat16>{b.data(), k, 1}
                                                       : tiles::Operand<BFloat16>{b.data(), 1, n};
      const std::int64_t stride = n + 3;
      for (const bool accumulate : {false, true}) {
        std::vector<float> c(static_cast<std::size_t>(m * stride), 0.5F);
        tiles::multiply(m, n, k, of_a, of_b, c.data(), stride, 1, accumulate,
                        accumulate ? nullptr : bias.data());
        for (std::int64_t i = 0; i < m; ++i) {
          for (std::int64_t j = 0; j < n; ++j) {
            double sum = accumulate ? 0.5 : static_cast<double>(bias[static_cast<std::size_t>(j)]);
            for (std::int64_t p = 0; p < k; ++p) {
              const float x = of_a.data[i * of_a.row + p * of_a.depth],
                          y = of_b.data[j * of_b.row + p * of_b.depth];
              sum += static_cast<double>(x) * static_cast<double>(y);
            }
            ASSERT_NEAR(static_cast<double>(c[static_cast<std::size_t>(i * stride + j)]), sum,
                        5e-7 * std::sqrt(static_cast<double>(k)) + 2e-7)
                << i << ", " << j;
          }
          for (std::int64_t j = n; j < stride; ++j) {
            ASSERT_EQ(c[static_cast<std::size_t>(i * stride + j)], 0.5F) << "beside the row";
          }
        }
      }
    }
  }
  EXPECT_FALSE(tiles::configured);
}

}  // namespace
}  // namespace rehearse::exec
