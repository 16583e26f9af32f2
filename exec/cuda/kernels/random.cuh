// SPDX-License-Identifier: Apache-2.0
// Philox4x32-7 on a GPU: what dropout keeps (exec/backend/dropout.h).
#pragma once

#include "exec/cuda/kernels/device.cuh"

namespace rehearse::exec::cuda {

// The four words of a counter.
__device__ __forceinline__ void philox(std::uint32_t (&c)[4], std::uint64_t key) {
  auto low = static_cast<std::uint32_t>(key), high = static_cast<std::uint32_t>(key >> 32);
#pragma unroll
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const std::uint32_t first = __umulhi(kPhiloxFirst, c[0]),
                        second = __umulhi(kPhiloxSecond, c[2]);
    const std::uint32_t next = second ^ c[1] ^ low, last = first ^ c[3] ^ high;
    c[1] = kPhiloxSecond * c[2];
    c[3] = kPhiloxFirst * c[0];
    c[0] = next;
    c[2] = last;
    low += kPhiloxFirstStep;
    high += kPhiloxSecondStep;
  }
}

// factor[h] of the columns 64 * block + 8 * h + place, for place < 8: 0 or the scale.
__device__ __forceinline__ void kept(const DropoutShape& shape, std::int64_t row,
                                     std::int64_t block, int place, int head, float (&factor)[8]) {
  const auto number = static_cast<std::uint64_t>(shape.first + row);
  std::uint32_t words[4] = {static_cast<std::uint32_t>(block * 8 + place),
                            static_cast<std::uint32_t>(number),
                            static_cast<std::uint32_t>(number >> 32),
                            (shape.site << 16) + static_cast<std::uint32_t>(head)};
  philox(words, shape.key);
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    factor[w] = (words[w] & 0xFFFFU) < shape.threshold ? 0.0F : shape.scale;
    factor[w + 4] = words[w] >> 16 < shape.threshold ? 0.0F : shape.scale;
  }
}

// The same of one column: of its counter's words only a half of one is used.
__device__ __forceinline__ float kept(const DropoutShape& shape, std::int64_t row,
                                      std::int64_t column, int head) {
  float factor[8];
  kept(shape, row, column / 64, static_cast<int>(column % 8), head, factor);
  return factor[column / 8 % 8];
}

}  // namespace rehearse::exec::cuda
