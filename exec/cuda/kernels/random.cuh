// SPDX-License-Identifier: Apache-2.0
// Philox4x32-7 on a GPU: what dropout keeps (exec/backend/dropout.h). A counter costs some 50
// instructions and serves eight columns that are eight apart.
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

// The words of the counter that the columns 64 * block + 8 * h + place share, h < 8.
__device__ __forceinline__ void draw(const DropoutShape& shape, std::int64_t row,
                                     std::int64_t block, int place, int head,
                                     std::uint32_t (&words)[4]) {
  const auto number = static_cast<std::uint64_t>(shape.first + row);
  words[0] = static_cast<std::uint32_t>(block * 8 + place);
  words[1] = static_cast<std::uint32_t>(number);
  words[2] = static_cast<std::uint32_t>(number >> 32);
  words[3] = (shape.site << 16) + static_cast<std::uint32_t>(head);
  philox(words, shape.key);
}
// Is the column of that `h` kept?
__device__ __forceinline__ bool keeps(const DropoutShape& shape, const std::uint32_t (&words)[4],
                                      int h) {
  const std::uint32_t word = words[h % 4];
  return (h < 4 ? word & 0xFFFFU : word >> 16) >= shape.threshold;
}

// 0 or the scale: of one column, that is of a half of one of its counter's words.
__device__ __forceinline__ float kept(const DropoutShape& shape, std::int64_t row,
                                      std::int64_t column, int head) {
  std::uint32_t words[4];
  draw(shape, row, column / 64, static_cast<int>(column % 8), head, words);
  const int h = static_cast<int>(column / 8 % 8);
  const std::uint32_t low = h % 2 == 0 ? words[0] : words[1],
                      high = h % 2 == 0 ? words[2] : words[3];
  const std::uint32_t word = h % 4 < 2 ? low : high;
  return (h < 4 ? word & 0xFFFFU : word >> 16) < shape.threshold ? 0.0F : shape.scale;
}

// Of the 64 columns of a block, which 8 lanes that follow one another share: in its piece q, lane l
// has the V columns from 8 V q + V l on. Each lane draws one counter, and the warp exchanges what
// it keeps. bits[q]: bit k is set where column k of the piece is kept. REQUIRES: whole warps call.
template <int V>
__device__ __forceinline__ void kept_by_lanes(const DropoutShape& shape, std::int64_t row,
                                              std::int64_t block, std::uint32_t (&bits)[8 / V]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, l = lane % 8;
  std::uint32_t words[4];
  draw(shape, row, block, l, 0, words);
#pragma unroll
  for (int q = 0; q < 8 / V; ++q) bits[q] = 0;
#pragma unroll
  for (int h = 0; h < 8; ++h) {
    const std::uint32_t all = __ballot_sync(0xFFFFFFFFU, keeps(shape, words, h));
    if (h % V == l * V / 8) bits[h / V] = all >> (lane / 8 * 8 + l * V % 8);
  }
}

}  // namespace rehearse::exec::cuda
