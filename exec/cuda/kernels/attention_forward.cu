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

template <bool kWhole, int kDim, int kM, int kKeys>
__global__ void __launch_bounds__(kAttentionThreads)
    forward_kernel(ForwardCall<Bf16> call, float scale) {
  const AttentionShape& s = call.part.shape;
  const Extent<kWhole> rows(call.part);
  constexpr int kRows = Forward<kDim, kM, kKeys>::kRows;
  const Shared shared = shared_address(dynamic_shared());
  const Tile<kDim> q{shared};
  const auto k_tile = [&](int stage) {
    return Tile<kDim>{shared + (kRows + stage * kKeys) * Tile<kDim>::kRowBytes};
  };
  const auto v_tile = [&](int stage) {
    return Tile<kDim>{shared + (kRows + (2 + stage) * kKeys) * Tile<kDim>::kRowBytes};
  };
  const int head_dim = static_cast<int>(s.head_dim);
  // The longest rows first: the short ones fill the end.
  const int q0 = rows.query_begin + static_cast<int>(gridDim.x - 1 - blockIdx.x) * kRows;
  const int tiles = (rows.keys_of(q0, kRows) - rows.key_begin + kKeys - 1) / kKeys;
  const Head<Bf16> head = head_of<kWhole>(call.part, call.qkv, call.kv, blockIdx.z, blockIdx.y);
  const auto start_keys = [&](int tile) {
    const int k0 = rows.key_begin + tile * kKeys;
    start_tile<kKeys>(k_tile(tile % 2), head.k + k0 * head.k_stride, head.k_stride,
                      rows.key_end - k0, head_dim);
    start_tile<kKeys>(v_tile(tile % 2), head.v + k0 * head.k_stride, head.k_stride,
                      rows.key_end - k0, head_dim);
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

  start_tile<kRows>(q, head.q + q0 * head.q_stride, head.q_stride, rows.query_end - q0, head_dim);
  start_keys(0);
  end_group();
  for (int tile = 0; tile < tiles; ++tile) {
    if (tile + 1 < tiles) start_keys(tile + 1);
    end_group();
    wait_groups<1>();
    __syncthreads();
    const int k0 = rows.key_begin + tile * kKeys;
    if (rows.reach(q0 + row + 16 * kM, k0)) {  // else the whole warp lies before these keys
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
              if (!rows.sees(query, k0 + 8 * n + 2 * t + i)) score = -INFINITY;
              largest = fmaxf(largest, score);
            }
          }
          // Over the 4 threads of a row. Finite from the first tile on: its first key is seen by
          // all.
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

  // Of a part: how much of the row there was before counts.
  float before[kM][2], now[kM][2];
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float total = sum[m][half];
      total += __shfl_xor_sync(0xFFFFFFFFU, total, 1);
      total += __shfl_xor_sync(0xFFFFFFFFU, total, 2);
      const int query = q0 + row + 16 * m + 8 * half + g;
      const std::int64_t at = blockIdx.y * s.tokens + blockIdx.z * s.sequence + query;
      const bool first = kWhole || call.part.first, here = query < rows.query_end;
      const Shares shares =
          join(first, first || !here ? 0 : call.lse[at], top[m][half] * scale, total);
      before[m][half] = shares.before;
      now[m][half] = shares.now;
      __syncwarp();  // all 4 threads of the row have read it
      if (t == 0 && here) call.lse[at] = shares.lse;
    }
  }
  const std::int64_t token = blockIdx.z * s.sequence + q0 + row;
  const std::int64_t to = (token * s.heads + blockIdx.y) * s.head_dim;
  const std::int64_t stride = s.heads * s.head_dim;
  const int valid = rows.query_end - q0 - row;
  if constexpr (kWhole) {
    write_fragments<kM, kDim>(out, now, q, row, call.o + to, stride, valid, head_dim);
  } else {
    merge_fragments<kM, kDim>(out, call.part.first, before, now, call.sum + to, stride, valid,
                              head_dim);
  }
}

template <bool kWhole, int kDim, int kM, int kKeys>
int forward(Stream stream, const ForwardCall<Bf16>& call) {
  using Sizes = Forward<kDim, kM, kKeys>;
  return launch(forward_kernel<kWhole, kDim, kM, kKeys>, query_grid(call, Sizes::kRows),
                kAttentionThreads, Sizes::kShared, stream, call, scale_of(call.part.shape));
}

template <bool kWhole>
int forward(Stream stream, const ForwardCall<Bf16>& call) {
  return call.part.shape.head_dim <= 64 ? forward<kWhole, 64, 2, 64>(stream, call)
                                        : forward<kWhole, 128, 2, 32>(stream, call);
}

}  // namespace

int fast_attention(Stream stream, const ForwardCall<Bf16>& call) {
  return call.sum == nullptr ? forward<true>(stream, call) : forward<false>(stream, call);
}

}  // namespace rehearse::exec::cuda
