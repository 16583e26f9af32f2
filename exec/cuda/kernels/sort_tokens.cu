// SPDX-License-Identifier: Apache-2.0
// Tokens by the row of the table that they add to: a stable radix sort, from the lowest digit on.
// For each digit the blocks count theirs, then every block finds from all counts where its tokens
// go.
#include "exec/cuda/kernels/embedding.cuh"

namespace rehearse::exec::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kDigitBits = 8, kDigits = 1 << kDigitBits;
static_assert(kDigits == kThreads);  // a thread adds up a digit's counts
constexpr int kWarps = kThreads / kWarp;
constexpr int kEach = 4, kRound = kEach * kThreads;  // tokens of a thread, of a block at a time
constexpr int kMostParts = 128;                      // that tokens are cut into, a block for each

struct SortPass {
  int tokens = 0, per_part = 0, shift = 0;  // bits below the digit
  std::int32_t first = 0, rows = 0;
  std::int64_t frozen = -1;
  const std::int32_t* ids = nullptr;
  const std::int32_t* from = nullptr;  // the order so far; null: that of the tokens
};

// The lanes of the warp that have this value, of kDigitBits + 1 bits.
__device__ __forceinline__ std::uint32_t lanes_of(int value) {
  std::uint32_t lanes = 0xFFFFFFFFU;
#pragma unroll
  for (int bit = 0; bit <= kDigitBits; ++bit) {
    const bool set = (value >> bit & 1) != 0;
    const std::uint32_t with = __ballot_sync(0xFFFFFFFFU, set);
    lanes &= set ? with : ~with;
  }
  return lanes;
}

// A round's tokens: each warp has kEach * 32 that follow one another, so that a place in its counts
// is one in the order. `digit`: kDigits where no token is left.
struct Round {
  std::int32_t token[kEach];
  int digit[kEach], place[kEach];
};
__device__ __forceinline__ void read_round(const SortPass& pass, int begin, int end, Round& round) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp,
            warp = static_cast<int>(threadIdx.x) / kWarp;
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    const int i = begin + (warp * kEach + e) * kWarp + lane;
    round.token[e] = i >= end ? -1 : pass.from == nullptr ? i : pass.from[i];
  }
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    const std::int32_t token = round.token[e];
    round.digit[e] =
        token < 0 ? kDigits
                  : row_of(pass.ids[token], pass.first, pass.rows, pass.frozen) >> pass.shift &
                        (kDigits - 1);
  }
}
// place[e]: the tokens of the same digit before it, as `counts` of this warp has them.
__device__ __forceinline__ void count_round(Round& round, std::int32_t* counts) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    const int digit = round.digit[e];
    const std::uint32_t same = lanes_of(digit), before = same & ((1U << lane) - 1);
    if (digit < kDigits) round.place[e] = counts[digit] + __popc(before);
    __syncwarp();
    if (digit < kDigits && before == 0) counts[digit] += __popc(same);
    __syncwarp();
  }
}

// counts(parts, kDigits)
__global__ void __launch_bounds__(kThreads)
    count_digits_kernel(SortPass pass, std::int32_t* __restrict__ counts) {
  __shared__ std::int32_t own[kWarps][kDigits];
  const int here = static_cast<int>(threadIdx.x),
            begin = static_cast<int>(blockIdx.x) * pass.per_part;
  const int end = begin + pass.per_part < pass.tokens ? begin + pass.per_part : pass.tokens;
  for (int w = 0; w < kWarps; ++w) own[w][here] = 0;
  __syncthreads();
  for (int at = begin; at < end; at += kRound) {
    Round round;
    read_round(pass, at, end, round);
    count_round(round, own[here / kWarp]);
  }
  __syncthreads();
  std::int32_t sum = 0;
  for (int w = 0; w < kWarps; ++w) sum += own[w][here];
  counts[blockIdx.x * kDigits + here] = sum;
}

__global__ void __launch_bounds__(kThreads)
    place_digits_kernel(SortPass pass, const std::int32_t* __restrict__ counts,
                        std::int32_t* __restrict__ to) {
  __shared__ std::int32_t own[kWarps][kDigits];
  __shared__ std::int32_t sums[kWarps];
  const int here = static_cast<int>(threadIdx.x), lane = here % kWarp, warp = here / kWarp;
  // Of this thread's digit: the tokens of all parts, and of those before this one.
  std::int32_t all = 0, next = 0;
#pragma unroll 8
  for (int part = 0; part < static_cast<int>(gridDim.x); ++part) {
    const std::int32_t count = counts[part * kDigits + here];
    if (part < static_cast<int>(blockIdx.x)) next += count;
    all += count;
  }
  // And of smaller digits.
  std::int32_t upto = all;
#pragma unroll
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const std::int32_t other =
        __shfl_sync(0xFFFFFFFFU, upto, lane < distance ? lane : lane - distance);
    if (lane >= distance) upto += other;
  }
  if (lane == kWarp - 1) sums[warp] = upto;
  __syncthreads();
  for (int w = 0; w < warp; ++w) next += sums[w];
  next += upto - all;

  const int begin = static_cast<int>(blockIdx.x) * pass.per_part;
  const int end = begin + pass.per_part < pass.tokens ? begin + pass.per_part : pass.tokens;
  for (int at = begin; at < end; at += kRound) {
    for (int w = 0; w < kWarps; ++w) own[w][here] = 0;
    __syncthreads();
    Round round;
    read_round(pass, at, end, round);
    count_round(round, own[warp]);
    __syncthreads();
    for (int w = 0; w < kWarps; ++w) {
      const std::int32_t count = own[w][here];
      own[w][here] = next;
      next += count;
    }
    __syncthreads();
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      if (round.token[e] >= 0) to[own[warp][round.digit[e]] + round.place[e]] = round.token[e];
    }
    __syncthreads();
  }
}

struct SortShape {
  int parts, per_part;
};
SortShape sort_shape(std::int64_t tokens) {
  const std::int64_t rounds = (tokens + kRound - 1) / kRound;
  const std::int64_t each = (rounds + kMostParts - 1) / kMostParts;  // rounds of a part
  if (each == 0) return {0, 0};
  return {static_cast<int>((rounds + each - 1) / each), static_cast<int>(each * kRound)};
}

}  // namespace

std::int64_t sort_tokens_scratch(std::int64_t tokens) {
  return 4 * (tokens + std::int64_t{sort_shape(tokens).parts} * kDigits);
}

int sort_tokens(Stream stream, std::int64_t tokens, const std::int32_t* ids,
                const VocabularyShape& shape, std::int32_t* order, void* scratch) {
  if (tokens > INT32_MAX / 2 || shape.columns > INT32_MAX / 2) return kInvalidValue;
  const auto [parts, per_part] = sort_shape(tokens);
  SortPass pass{.tokens = static_cast<int>(tokens),
                .per_part = per_part,
                .first = static_cast<std::int32_t>(shape.first),
                .rows = static_cast<std::int32_t>(shape.columns),
                .frozen = shape.frozen,
                .ids = ids};
  auto* other = static_cast<std::int32_t*>(scratch);
  std::int32_t* counts = other + tokens;
  int passes = 1;
  while (shape.columns >> (passes * kDigitBits) != 0) ++passes;  // the largest key is `columns`
  int status = 0;
  for (int k = 0; k < passes && status == 0; ++k) {
    std::int32_t* to = (passes - k) % 2 == 1 ? order : other;  // the last one's is `order`
    const dim3 grid(static_cast<unsigned>(parts));
    pass.shift = k * kDigitBits;
    status = launch(count_digits_kernel, grid, kThreads, 0, stream, pass, counts);
    if (status == 0) {
      status = launch(place_digits_kernel, grid, kThreads, 0, stream, pass, counts, to);
    }
    pass.from = to;
  }
  return status;
}

}  // namespace rehearse::exec::cuda
