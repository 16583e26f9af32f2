// Flash attention, forward, bf16 on tensor cores (Dao 2023, arXiv 2307.08691, algorithm 1): a block
// holds a tile of queries and walks the keys up to the diagonal; scores never leave registers. The
// next tile of K and V is copied while this one is used.
#include "exec/cuda/kernels/attention_tiles.cuh"

namespace rehearse::exec::cuda {
namespace {

// A warp holds 16 kM queries; kKeys keys are met at a time.
template <int kDim, int kM, int kKeys>
struct Forward {
  static constexpr int kRows = 16 * kM * kAttentionWarps;
  static constexpr std::size_t kShared = sizeof(Bf16) * kDim * (kRows + 4 * kKeys);
};

template <int kDim, int kM, int kKeys>
__global__ void __launch_bounds__(kAttentionThreads)
    forward_kernel(AttentionShape s, float scale, const Bf16* __restrict__ qkv,
                   Bf16* __restrict__ o, float* __restrict__ lse) {
  constexpr int kRows = Forward<kDim, kM, kKeys>::kRows;
  const Shared shared = shared_address(dynamic_shared());
  const Tile<kDim> q{shared};
  const auto k_tile = [&](int stage) {
    return Tile<kDim>{shared + (kRows + stage * kKeys) * Tile<kDim>::kRowBytes};
  };
  const auto v_tile = [&](int stage) {
    return Tile<kDim>{shared + (kRows + (2 + stage) * kKeys) * Tile<kDim>::kRowBytes};
  };
  const int sequence = static_cast<int>(s.sequence), head_dim = static_cast<int>(s.head_dim);
  // The longest rows first: the short ones fill the end.
  const int q0 = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kRows;
  const int end = q0 + kRows < sequence ? q0 + kRows : sequence;
  const int tiles = (end + kKeys - 1) / kKeys;
  const Head<Bf16> head = head_of(s, qkv, blockIdx.z, blockIdx.y);
  const auto start_keys = [&](int tile) {
    const std::int64_t from = tile * kKeys * head.stride;
    start_tile<kKeys>(k_tile(tile % 2), head.k + from, head.stride, sequence - tile * kKeys,
                      head_dim);
    start_tile<kKeys>(v_tile(tile % 2), head.v + from, head.stride, sequence - tile * kKeys,
                      head_dim);
  };

  const int lane = static_cast<int>(threadIdx.x) % kWarp, g = lane / 4, t = lane % 4;
  const int row = static_cast<int>(threadIdx.x) / kWarp * 16 * kM;  // the warp's first
  const float power = scale * kLog2E;
  Fragments<kM, kDim> out;
  clear<kM, kDim>(out);
  float top[kM][2], sum[kM][2];
#pragma unroll
  for (int m = 0; m < kM; ++m) {
    top[m][0] = top[m][1] = -INFINITY;
    sum[m][0] = sum[m][1] = 0;
  }

  start_tile<kRows>(q, head.q + q0 * head.stride, head.stride, sequence - q0, head_dim);
  start_keys(0);
  end_group();
  for (int tile = 0; tile < tiles; ++tile) {
    if (tile + 1 < tiles) start_keys(tile + 1);
    end_group();
    wait_groups<1>();
    __syncthreads();
    const int k0 = tile * kKeys;
    if (k0 <= q0 + row + 16 * kM - 1) {  // else the whole warp lies before these keys
      Fragments<kM, kKeys> p;
      rows_times_rows<kM, kKeys>(q, row, k_tile(tile % 2), p);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int query = q0 + row + 16 * m + 8 * half + g;
          float largest = top[m][half];
#pragma unroll
          for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
              float& score = p[m][n][2 * half + i];
              if (k0 + 8 * n + 2 * t + i > query) score = -INFINITY;
              largest = fmaxf(largest, score);
            }
          }
          // Over the 4 threads of a row. Finite from the first tile on: key 0 is seen by all.
          largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFU, largest, 1));
          largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFU, largest, 2));
          const float shrink = power_of_two((top[m][half] - largest) * power);
          float added = 0;
#pragma unroll
          for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
              float& score = p[m][n][2 * half + i];
              score = power_of_two(score * power - largest * power);
              added += score;
            }
          }
          sum[m][half] = sum[m][half] * shrink + added;  // of this thread's columns
          top[m][half] = largest;
#pragma unroll
          for (int n = 0; n < kDim / 8; ++n) {
            out[m][n][2 * half] *= shrink;
            out[m][n][2 * half + 1] *= shrink;
          }
        }
      }
      add_fragments_times_tile<kM, kKeys>(p, v_tile(tile % 2), out);
    }
    __syncthreads();  // before the next copies overwrite this stage
  }

  float inverse[kM][2];
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float total = sum[m][half];
      total += __shfl_xor_sync(0xFFFFFFFFU, total, 1);
      total += __shfl_xor_sync(0xFFFFFFFFU, total, 2);
      inverse[m][half] = 1.0F / total;
      const int query = q0 + row + 16 * m + 8 * half + g;
      if (t == 0 && query < sequence) {
        lse[blockIdx.y * s.tokens + blockIdx.z * s.sequence + query] =
            top[m][half] * scale + logf(total);
      }
    }
  }
  const std::int64_t token = blockIdx.z * s.sequence + q0 + row;
  write_fragments<kM, kDim>(out, inverse, q, row, o + (token * s.heads + blockIdx.y) * s.head_dim,
                            s.heads * s.head_dim, sequence - q0 - row, head_dim);
}

template <int kDim, int kM, int kKeys>
int forward(Stream stream, const AttentionShape& s, const Bf16* qkv, Bf16* o, float* lse) {
  using Sizes = Forward<kDim, kM, kKeys>;
  return launch(forward_kernel<kDim, kM, kKeys>, attention_grid(s, s.heads, Sizes::kRows),
                kAttentionThreads, Sizes::kShared, stream, s,
                1.0F / sqrtf(static_cast<float>(s.head_dim)), qkv, o, lse);
}

}  // namespace

int fast_attention(Stream stream, const AttentionShape& s, const Bf16* qkv, Bf16* o, float* lse) {
  return s.head_dim <= 64 ? forward<64, 2, 64>(stream, s, qkv, o, lse)
                          : forward<128, 2, 32>(stream, s, qkv, o, lse);
}

}  // namespace rehearse::exec::cuda
