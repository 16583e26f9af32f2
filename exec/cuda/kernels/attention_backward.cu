// Flash attention, backward, bf16 on tensor cores. Two passes, so that every sum has a fixed order:
// a block per tile of keys walks the queries for dK and dV (of all heads that share the keys), then
// a block per tile of queries walks the keys for dQ. Both recompute P = exp(scale Q K^T - lse).
#include "exec/cuda/kernels/attention_tiles.cuh"

namespace rehearse::exec::cuda {
namespace {

// --- dK and dV: transposed scores, a warp holds 16 kM keys, kQueries queries are met at a time ---
template <int kDim, int kM, int kQueries>
struct Keys {
  static constexpr int kRows = 16 * kM * kAttentionWarps;
  static constexpr std::size_t kTiles = sizeof(Bf16) * kDim * (2 * kRows + 4 * kQueries);
  static constexpr std::size_t kShared = kTiles + sizeof(float) * 4 * kQueries;  // lse, delta
};

template <int kDim, int kM, int kQueries>
__global__ void __launch_bounds__(kAttentionThreads)
    keys_kernel(AttentionShape s, float scale, const Bf16* __restrict__ d_o,
                const Bf16* __restrict__ qkv, const float* __restrict__ lse,
                const float* __restrict__ delta, Bf16* __restrict__ dqkv) {
  using Sizes = Keys<kDim, kM, kQueries>;
  constexpr int kRows = Sizes::kRows;
  const Shared shared = shared_address(dynamic_shared());
  auto* numbers = reinterpret_cast<float*>(dynamic_shared() + Sizes::kTiles);
  const Tile<kDim> k{shared}, v{shared + kRows * Tile<kDim>::kRowBytes};
  const auto q_tile = [&](int stage) {
    return Tile<kDim>{shared + (2 * kRows + stage * kQueries) * Tile<kDim>::kRowBytes};
  };
  const auto g_tile = [&](int stage) {  // dO
    return Tile<kDim>{shared + (2 * kRows + (2 + stage) * kQueries) * Tile<kDim>::kRowBytes};
  };
  const int sequence = static_cast<int>(s.sequence), head_dim = static_cast<int>(s.head_dim);
  const int k0 = static_cast<int>(blockIdx.x) * kRows;  // the first meet the most queries
  const int group = static_cast<int>(s.heads / s.kv_heads);
  const int first = k0 / kQueries, tiles = (sequence + kQueries - 1) / kQueries - first;
  const std::int64_t token = blockIdx.z * s.sequence;
  // A step is a head of the group and a tile of its queries.
  const auto start_queries = [&](int member, int tile, int stage) {
    const std::int64_t number = blockIdx.y * group + member;
    const int q0 = (first + tile) * kQueries;
    const Head<Bf16> head = head_of(s, qkv, blockIdx.z, number);
    start_tile<kQueries>(q_tile(stage), head.q + q0 * head.stride, head.stride, sequence - q0,
                         head_dim);
    start_tile<kQueries>(g_tile(stage), d_o + ((token + q0) * s.heads + number) * s.head_dim,
                         s.heads * s.head_dim, sequence - q0, head_dim);
    for (int i = static_cast<int>(threadIdx.x); i < kQueries; i += kAttentionThreads) {
      const bool here = q0 + i < sequence;
      const std::int64_t at = number * s.tokens + token + q0 + i;
      numbers[2 * stage * kQueries + i] = here ? lse[at] * kLog2E : INFINITY;  // P becomes 0
      numbers[(2 * stage + 1) * kQueries + i] = here ? delta[at] : 0.0F;
    }
  };

  const int lane = static_cast<int>(threadIdx.x) % kWarp, g = lane / 4, t = lane % 4;
  const int row = static_cast<int>(threadIdx.x) / kWarp * 16 * kM;  // the warp's first
  const float power = scale * kLog2E;
  Fragments<kM, kDim> dk, dv;
  clear<kM, kDim>(dk);
  clear<kM, kDim>(dv);

  const Head<Bf16> own = head_of(s, qkv, blockIdx.z, static_cast<std::int64_t>(blockIdx.y) * group);
  start_tile<kRows>(k, own.k + k0 * own.stride, own.stride, sequence - k0, head_dim);
  start_tile<kRows>(v, own.v + k0 * own.stride, own.stride, sequence - k0, head_dim);
  start_queries(0, 0, 0);
  end_group();
  for (int member = 0, tile = 0, stage = 0; member < group; stage ^= 1) {
    const int q0 = (first + tile) * kQueries;
    if (++tile == tiles) {
      tile = 0;
      ++member;
    }
    if (member < group) start_queries(member, tile, stage ^ 1);  // the next step's
    end_group();
    wait_groups<1>();
    __syncthreads();
    if (k0 + row <= q0 + kQueries - 1) {  // else no query of the tile sees a key of the warp
      Fragments<kM, kQueries> p, ds;
      rows_times_rows<kM, kQueries>(k, row, q_tile(stage), p);
      rows_times_rows<kM, kQueries>(v, row, g_tile(stage), ds);
#pragma unroll
      for (int n = 0; n < kQueries / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int column = 8 * n + 2 * t + i;
          const float norm = numbers[2 * stage * kQueries + column];
          const float correction = numbers[(2 * stage + 1) * kQueries + column];
#pragma unroll
          for (int m = 0; m < kM; ++m) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
              const int key = k0 + row + 16 * m + 8 * half + g;
              float &score = p[m][n][2 * half + i], &slope = ds[m][n][2 * half + i];
              score = key <= q0 + column ? power_of_two(score * power - norm) : 0.0F;
              slope = score * (slope - correction);
            }
          }
        }
      }
      add_fragments_times_tile<kM, kQueries>(p, g_tile(stage), dv);
      add_fragments_times_tile<kM, kQueries>(ds, q_tile(stage), dk);
    }
    __syncthreads();  // before the next copies overwrite this stage
  }

  float scales[kM][2], ones[kM][2];
#pragma unroll
  for (int m = 0; m < kM; ++m) {
    scales[m][0] = scales[m][1] = scale;
    ones[m][0] = ones[m][1] = 1;
  }
  Bf16* to = dqkv + (token + k0 + row) * s.columns() + (s.heads + blockIdx.y) * s.head_dim;
  write_fragments<kM, kDim>(dk, scales, k, row, to, s.columns(), sequence - k0 - row, head_dim);
  write_fragments<kM, kDim>(dv, ones, v, row, to + s.kv_heads * s.head_dim, s.columns(),
                            sequence - k0 - row, head_dim);
}

// --- dQ: a warp holds 16 kM queries, kKeys keys are met at a time ------------
template <int kDim, int kM, int kKeys>
struct Queries {
  static constexpr int kRows = 16 * kM * kAttentionWarps;
  static constexpr std::size_t kShared = sizeof(Bf16) * kDim * (2 * kRows + 4 * kKeys);
};

template <int kDim, int kM, int kKeys>
__global__ void __launch_bounds__(kAttentionThreads)
    queries_kernel(AttentionShape s, float scale, const Bf16* __restrict__ d_o,
                   const Bf16* __restrict__ qkv, const float* __restrict__ lse,
                   const float* __restrict__ delta, Bf16* __restrict__ dqkv) {
  constexpr int kRows = Queries<kDim, kM, kKeys>::kRows;
  const Shared shared = shared_address(dynamic_shared());
  const Tile<kDim> q{shared}, d{shared + kRows * Tile<kDim>::kRowBytes};  // d: dO
  const auto k_tile = [&](int stage) {
    return Tile<kDim>{shared + (2 * kRows + stage * kKeys) * Tile<kDim>::kRowBytes};
  };
  const auto v_tile = [&](int stage) {
    return Tile<kDim>{shared + (2 * kRows + (2 + stage) * kKeys) * Tile<kDim>::kRowBytes};
  };
  const int sequence = static_cast<int>(s.sequence), head_dim = static_cast<int>(s.head_dim);
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
  const std::int64_t token = blockIdx.z * s.sequence;
  Fragments<kM, kDim> dq;
  clear<kM, kDim>(dq);
  float norm[kM][2], correction[kM][2], scales[kM][2];
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = q0 + row + 16 * m + 8 * half + g;
      const std::int64_t at = blockIdx.y * s.tokens + token + query;
      norm[m][half] = query < sequence ? lse[at] * kLog2E : INFINITY;  // P becomes 0
      correction[m][half] = query < sequence ? delta[at] : 0.0F;
      scales[m][half] = scale;
    }
  }

  start_tile<kRows>(q, head.q + q0 * head.stride, head.stride, sequence - q0, head_dim);
  start_tile<kRows>(d, d_o + ((token + q0) * s.heads + blockIdx.y) * s.head_dim,
                    s.heads * s.head_dim, sequence - q0, head_dim);
  start_keys(0);
  end_group();
  for (int tile = 0; tile < tiles; ++tile) {
    if (tile + 1 < tiles) start_keys(tile + 1);
    end_group();
    wait_groups<1>();
    __syncthreads();
    const int k0 = tile * kKeys;
    if (k0 <= q0 + row + 16 * kM - 1) {  // else the whole warp lies before these keys
      Fragments<kM, kKeys> p, ds;
      rows_times_rows<kM, kKeys>(q, row, k_tile(tile % 2), p);
      rows_times_rows<kM, kKeys>(d, row, v_tile(tile % 2), ds);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int query = q0 + row + 16 * m + i / 2 * 8 + g, key = k0 + 8 * n + 2 * t + i % 2;
            const float probability =
                key <= query ? power_of_two(p[m][n][i] * power - norm[m][i / 2]) : 0.0F;
            ds[m][n][i] = probability * (ds[m][n][i] - correction[m][i / 2]);
          }
        }
      }
      add_fragments_times_tile<kM, kKeys>(ds, k_tile(tile % 2), dq);
    }
    __syncthreads();  // before the next copies overwrite this stage
  }
  write_fragments<kM, kDim>(dq, scales, q, row,
                            dqkv + (token + q0 + row) * s.columns() + blockIdx.y * s.head_dim,
                            s.columns(), sequence - q0 - row, head_dim);
}

// Key side and query side have their own tiles: dK and dV fill twice the registers of dQ. The tiles
// are the largest that do not spill, on sm_80 and sm_90; which is fastest was not measured.
template <int kDim, int kKeysM, int kKeysTile, int kQueriesM, int kQueriesTile>
int backward(Stream stream, const AttentionShape& s, const Bf16* d_o, const Bf16* qkv,
             const float* lse, const float* delta, Bf16* dqkv) {
  using KeySizes = Keys<kDim, kKeysM, kKeysTile>;
  using QuerySizes = Queries<kDim, kQueriesM, kQueriesTile>;
  const float scale = 1.0F / sqrtf(static_cast<float>(s.head_dim));
  const int status =
      launch(keys_kernel<kDim, kKeysM, kKeysTile>, attention_grid(s, s.kv_heads, KeySizes::kRows),
             kAttentionThreads, KeySizes::kShared, stream, s, scale, d_o, qkv, lse, delta, dqkv);
  if (status != 0) return status;
  return launch(queries_kernel<kDim, kQueriesM, kQueriesTile>,
                attention_grid(s, s.heads, QuerySizes::kRows), kAttentionThreads,
                QuerySizes::kShared, stream, s, scale, d_o, qkv, lse, delta, dqkv);
}

}  // namespace

int fast_attention_backward(Stream stream, const AttentionShape& s, const Bf16* d_o,
                            const Bf16* qkv, const float* lse, const float* delta, Bf16* dqkv) {
  return s.head_dim <= 64 ? backward<64, 1, 64, 2, 32>(stream, s, d_o, qkv, lse, delta, dqkv)
                          : backward<128, 1, 32, 1, 64>(stream, s, d_o, qkv, lse, delta, dqkv);
}

}  // namespace rehearse::exec::cuda
