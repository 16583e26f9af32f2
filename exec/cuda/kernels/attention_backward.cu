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

template <bool kWhole, int kDim, int kM, int kQueries>
__global__ void __launch_bounds__(kAttentionThreads)
    keys_kernel(BackwardCall<Bf16> call, float scale) {
  const AttentionShape& s = call.part.shape;
  const Extent<kWhole> rows(call.part);
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
  const int head_dim = static_cast<int>(s.head_dim);
  // The first meet the most queries.
  const int k0 = rows.key_begin + static_cast<int>(blockIdx.x) * kRows;
  const int group = static_cast<int>(s.heads / s.kv_heads);
  const int first = rows.causal ? k0 / kQueries * kQueries : rows.query_begin;
  const int tiles = (rows.query_end - first + kQueries - 1) / kQueries;
  const std::int64_t token = blockIdx.z * s.sequence;
  // A step is a head of the group and a tile of its queries.
  const auto start_queries = [&](int member, int tile, int stage) {
    const std::int64_t number = blockIdx.y * group + member;
    const int q0 = first + tile * kQueries, valid = rows.query_end - q0;
    const Head<Bf16> head = head_of<kWhole>(call.part, call.qkv, call.kv, blockIdx.z, number);
    start_tile<kQueries>(q_tile(stage), head.q + q0 * head.q_stride, head.q_stride, valid,
                         head_dim);
    start_tile<kQueries>(g_tile(stage), call.d_o + ((token + q0) * s.heads + number) * s.head_dim,
                         s.heads * s.head_dim, valid, head_dim);
    for (int i = static_cast<int>(threadIdx.x); i < kQueries; i += kAttentionThreads) {
      const bool here = i < valid;
      const std::int64_t at = number * s.tokens + token + q0 + i;
      numbers[2 * stage * kQueries + i] = here ? call.lse[at] * kLog2E : INFINITY;  // P becomes 0
      numbers[(2 * stage + 1) * kQueries + i] = here ? call.delta[at] : 0.0F;
    }
  };

  const int lane = static_cast<int>(threadIdx.x) % kWarp, g = lane / 4, t = lane % 4;
  const int row = static_cast<int>(threadIdx.x) / kWarp * 16 * kM;  // the warp's first
  const float power = scale * kLog2E;
  Fragments<kM, kDim> dk, dv;
  clear<kM, kDim>(dk);
  clear<kM, kDim>(dv);

  const Head<Bf16> own = head_of<kWhole>(call.part, call.qkv, call.kv, blockIdx.z,
                                         static_cast<std::int64_t>(blockIdx.y) * group);
  start_tile<kRows>(k, own.k + k0 * own.k_stride, own.k_stride, rows.key_end - k0, head_dim);
  start_tile<kRows>(v, own.v + k0 * own.k_stride, own.k_stride, rows.key_end - k0, head_dim);
  start_queries(0, 0, 0);
  end_group();
  for (int member = 0, tile = 0, stage = 0; member < group; stage ^= 1) {
    const int q0 = first + tile * kQueries;
    if (++tile == tiles) {
      tile = 0;
      ++member;
    }
    if (member < group) start_queries(member, tile, stage ^ 1);  // the next step's
    end_group();
    wait_groups<1>();
    __syncthreads();
    if (rows.reach(q0 + kQueries, k0 + row)) {  // else no query of the tile sees a key of the warp
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
              score = rows.sees(q0 + column, key) ? power_of_two(score * power - norm) : 0.0F;
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
  const int valid = rows.key_end - k0 - row;
  const std::int64_t at = token + k0 + row, values = s.kv_heads * s.head_dim;
  if constexpr (kWhole) {
    Bf16* to = call.dqkv + at * s.columns() + (s.heads + blockIdx.y) * s.head_dim;
    write_fragments<kM, kDim>(dk, scales, k, row, to, s.columns(), valid, head_dim);
    write_fragments<kM, kDim>(dv, ones, v, row, to + values, s.columns(), valid, head_dim);
  } else {
    float* to = call.dkv + at * s.kv_columns() + blockIdx.y * s.head_dim;
    merge_fragments<kM, kDim>(dk, false, ones, scales, to, s.kv_columns(), valid, head_dim);
    merge_fragments<kM, kDim>(dv, false, ones, ones, to + values, s.kv_columns(), valid, head_dim);
  }
}

// --- dQ: a warp holds 16 kM queries, kKeys keys are met at a time ------------
template <int kDim, int kM, int kKeys>
struct Queries {
  static constexpr int kRows = 16 * kM * kAttentionWarps;
  static constexpr std::size_t kShared = sizeof(Bf16) * kDim * (2 * kRows + 4 * kKeys);
};

template <bool kWhole, int kDim, int kM, int kKeys>
__global__ void __launch_bounds__(kAttentionThreads)
    queries_kernel(BackwardCall<Bf16> call, float scale) {
  const AttentionShape& s = call.part.shape;
  const Extent<kWhole> rows(call.part);
  constexpr int kRows = Queries<kDim, kM, kKeys>::kRows;
  const Shared shared = shared_address(dynamic_shared());
  const Tile<kDim> q{shared}, d{shared + kRows * Tile<kDim>::kRowBytes};  // d: dO
  const auto k_tile = [&](int stage) {
    return Tile<kDim>{shared + (2 * kRows + stage * kKeys) * Tile<kDim>::kRowBytes};
  };
  const auto v_tile = [&](int stage) {
    return Tile<kDim>{shared + (2 * kRows + (2 + stage) * kKeys) * Tile<kDim>::kRowBytes};
  };
  const int head_dim = static_cast<int>(s.head_dim);
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
      const bool here = query < rows.query_end;
      norm[m][half] = here ? call.lse[at] * kLog2E : INFINITY;  // P becomes 0
      correction[m][half] = here ? call.delta[at] : 0.0F;
      scales[m][half] = scale;
    }
  }

  const std::int64_t wide = s.heads * s.head_dim;
  start_tile<kRows>(q, head.q + q0 * head.q_stride, head.q_stride, rows.query_end - q0, head_dim);
  start_tile<kRows>(d, call.d_o + (token + q0) * wide + blockIdx.y * s.head_dim, wide,
                    rows.query_end - q0, head_dim);
  start_keys(0);
  end_group();
  for (int tile = 0; tile < tiles; ++tile) {
    if (tile + 1 < tiles) start_keys(tile + 1);
    end_group();
    wait_groups<1>();
    __syncthreads();
    const int k0 = rows.key_begin + tile * kKeys;
    if (rows.reach(q0 + row + 16 * kM, k0)) {  // else the whole warp lies before these keys
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
                rows.sees(query, key) ? power_of_two(p[m][n][i] * power - norm[m][i / 2]) : 0.0F;
            ds[m][n][i] = probability * (ds[m][n][i] - correction[m][i / 2]);
          }
        }
      }
      add_fragments_times_tile<kM, kKeys>(ds, k_tile(tile % 2), dq);
    }
    __syncthreads();  // before the next copies overwrite this stage
  }
  const int valid = rows.query_end - q0 - row;
  const std::int64_t at = token + q0 + row;
  if constexpr (kWhole) {
    write_fragments<kM, kDim>(dq, scales, q, row,
                              call.dqkv + at * s.columns() + blockIdx.y * s.head_dim, s.columns(),
                              valid, head_dim);
  } else {
    float ones[kM][2];
#pragma unroll
    for (int m = 0; m < kM; ++m) ones[m][0] = ones[m][1] = 1;
    merge_fragments<kM, kDim>(dq, false, ones, scales,
                              call.dq + at * wide + blockIdx.y * s.head_dim, wide, valid, head_dim);
  }
}

// Key side and query side have their own tiles: dK and dV fill twice the registers of dQ. The tiles
// are the largest that do not spill, on sm_80 and sm_90; which is fastest was not measured.
template <bool kWhole, int kDim, int kKeysM, int kKeysTile, int kQueriesM, int kQueriesTile>
int backward(Stream stream, const BackwardCall<Bf16>& call) {
  using KeySizes = Keys<kDim, kKeysM, kKeysTile>;
  using QuerySizes = Queries<kDim, kQueriesM, kQueriesTile>;
  const float scale = scale_of(call.part.shape);
  const int status =
      launch(keys_kernel<kWhole, kDim, kKeysM, kKeysTile>, key_grid(call, KeySizes::kRows),
             kAttentionThreads, KeySizes::kShared, stream, call, scale);
  if (status != 0) return status;
  return launch(queries_kernel<kWhole, kDim, kQueriesM, kQueriesTile>,
                query_grid(call, QuerySizes::kRows), kAttentionThreads, QuerySizes::kShared, stream,
                call, scale);
}

template <bool kWhole>
int backward(Stream stream, const BackwardCall<Bf16>& call) {
  return call.part.shape.head_dim <= 64 ? backward<kWhole, 64, 1, 64, 2, 32>(stream, call)
                                        : backward<kWhole, 128, 1, 32, 1, 64>(stream, call);
}

}  // namespace

int fast_attention_backward(Stream stream, const BackwardCall<Bf16>& call) {
  return call.dqkv != nullptr ? backward<true>(stream, call) : backward<false>(stream, call);
}

}  // namespace rehearse::exec::cuda
