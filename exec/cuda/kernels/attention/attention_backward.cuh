// SPDX-License-Identifier: Apache-2.0
// Flash attention, backward, 16 bits on tensor cores. Two passes, so that every sum has a fixed
// order: a block per tile of keys walks the queries for dK and dV (of all heads that share the
// keys; where tiles are few, several blocks have a share of these each), then a block per tile of
// queries walks the keys for dQ. Both recompute P = exp(scale Q K^T - lse).
#pragma once

#include "exec/cuda/kernels/attention/attention_tiles.cuh"

namespace rehearse::exec::cuda {
// --- dK and dV: transposed scores, a block holds keys, kQueries queries are met at a time ---
// Queries and keys are padded to kDim columns, values to kValues.
template <class Engine, int kDim, int kValues, int kQueries>
struct KeysTiles {
  using Keys = Tile<Engine::kRows, kDim>;
  using Values = Tile<Engine::kRows, kValues>;
  using Queries = Tile<kQueries, kDim>;
  using Gradients = Tile<kQueries, kValues>;  // dO
  static constexpr std::size_t kTiles =
      Keys::kBytes + Values::kBytes + 2 * (Queries::kBytes + Gradients::kBytes);
  static constexpr std::size_t kShared = kTiles + sizeof(float) * 4 * kQueries;  // lse, delta
};

// The first of `steps` of share `split` of `splits`.
__device__ __forceinline__ int step_of(int steps, int split, int splits) {
  const int longer = steps % splits;  // shares, each by one step
  return steps / splits * split + (split < longer ? split : longer);
}

template <class Engine, bool kWhole, int kDim, int kValues, int kQueries, int kBlocks>
__global__ void __launch_bounds__(Engine::kThreads, kBlocks)
    keys_kernel(BackwardCall<typename Engine::Element> call, float scale) {
  using T = typename Engine::Element;
  const AttentionShape& s = call.part.shape;
  const Extent<kWhole> rows(call.part);
  using Tiles = KeysTiles<Engine, kDim, kValues, kQueries>;
  constexpr int kM = Engine::kM, kRows = Engine::kRows;
  static_assert(2 * kQueries <= Engine::kThreads && kRows == kKeyRows);
  // Are copies started while products run? Parts of wide heads lack the registers.
  constexpr bool kBeside = Engine::kAhead && (kWhole || kDim <= 64);
  const Shared shared = shared_address(dynamic_shared());
  const auto* numbers = reinterpret_cast<const float2*>(dynamic_shared() + Tiles::kTiles);
  const typename Tiles::Keys k{shared};
  const typename Tiles::Values v{shared + k.kBytes};
  const Shared met = v.at + v.kBytes;
  const auto q_tile = [&](int stage) {
    return typename Tiles::Queries{met + stage * Tiles::Queries::kBytes};
  };
  const auto g_tile = [&](int stage) {
    return typename Tiles::Gradients{met + 2 * Tiles::Queries::kBytes +
                                     stage * Tiles::Gradients::kBytes};
  };
  const int head_dim = static_cast<int>(s.head_dim), values = static_cast<int>(s.values());
  // The first meet the most queries.
  const int k0 = rows.key_begin + static_cast<int>(blockIdx.x) * kRows;
  const int group = static_cast<int>(s.heads) / static_cast<int>(s.kv_heads);
  const int first = rows.causal ? k0 / kQueries * kQueries : rows.query_begin;
  // None where all queries lie before these keys.
  const int tiles = first < rows.query_end ? (rows.query_end - first + kQueries - 1) / kQueries : 0;
  const std::int64_t token = blockIdx.z * s.sequence;
  // This block's steps of the group * tiles.
  const int kv_head = static_cast<int>(blockIdx.y) / call.splits;
  const int split = static_cast<int>(blockIdx.y) - kv_head * call.splits;
  const int begin = step_of(group * tiles, split, call.splits);
  int steps = step_of(group * tiles, split + 1, call.splits) - begin;
  // A step is a head of the group and a tile of its queries.
  const auto start_queries = [&](std::int64_t number, int q0, int stage) {
    const int valid = rows.query_end - q0;
    const Head<T> of = head_of<kWhole>(call.part, call.qkv, call.kv, blockIdx.z, number, kv_head);
    start_tile<Engine::kThreads>(q_tile(stage), of.q + q0 * of.q_stride, of.q_stride, valid,
                                 head_dim);
    start_tile<Engine::kThreads>(g_tile(stage),
                                 call.d_o + ((token + q0) * s.heads + number) * s.values(),
                                 s.heads * s.values(), valid, values);
    // Zeros beyond the last query: with dO and delta 0 too, P adds nothing to dV, and dS is 0.
    if (const int i = static_cast<int>(threadIdx.x); i < 2 * kQueries) {
      const int query = i % kQueries;
      start_copy_word(
          shared + Tiles::kTiles + 4 * (2 * stage * kQueries + i),
          (i < kQueries ? call.lse : call.delta) + number * s.tokens + token + q0 + query,
          query < valid);
    }
  };

  const int lane = static_cast<int>(threadIdx.x) % kWarp, g = lane / 4, t = lane % 4;
  const int row = static_cast<int>(threadIdx.x) / kWarp * 16 * kM;  // the warp's first
  const float power = scale * kLog2E;
  Fragments<kM, kDim> dk;
  Fragments<kM, kValues> dv;
  clear<kM, kDim>(dk);
  clear<kM, kValues>(dv);

  const Head<T> own =
      head_of<kWhole>(call.part, call.qkv, call.kv, blockIdx.z, kv_head * group, kv_head);
  start_tile<Engine::kThreads>(k, own.k + k0 * own.k_stride, own.k_stride, rows.key_end - k0,
                               head_dim);
  start_tile<Engine::kThreads>(v, own.k + k0 * own.k_stride + own.to_value, own.k_stride,
                               rows.key_end - k0, values);
  int head = kv_head * group, next = first;
  if (steps > 0) {
    head += begin / tiles;
    next += begin % tiles * kQueries;
    start_queries(head, next, 0);
  }
  end_group();
  for (int stage = 0; steps > 0; stage ^= 1) {
    const int q0 = next;
    next += kQueries;
    if (next >= rows.query_end) {
      next = first;
      ++head;
    }
    --steps;
    wait_groups<0>();
    Engine::publish();
    __syncthreads();  // this step's tiles are there, and those of the one before no longer used
    const auto start_next = [&] {
      if (steps > 0) start_queries(head, next, stage ^ 1);
      end_group();
    };
    // Else no query of the tile sees a key of the group.
    const bool reached = rows.reach(q0 + kQueries, k0 + Engine::group_row());
    if (!kBeside || !reached) start_next();
    if (reached) {
      // lse of this thread's queries 8 n + 2 t and the next at [4 n], delta kQueries / 2 behind.
      const float2* of_queries = numbers + stage * kQueries + t;
      Fragments<kM, kQueries> p, ds;
      Engine::template start_scores<kQueries>(k, q_tile(stage), p);
      Engine::template start_scores<kQueries>(v, g_tile(stage), ds);
      if constexpr (kBeside) start_next();  // while they run
      Engine::template wait<1>(p);
      if (!rows.all_see(q0, k0 + Engine::group_row() + Engine::kGroupRows)) {
        each_of<kM, kQueries>([&](int m, int n, int i) {
          const int key = k0 + row + 16 * m + i / 2 * 8 + g, query = q0 + 8 * n + 2 * t + i % 2;
          if (!rows.sees(query, key)) p[m][n][i] = -INFINITY;
        });
      }
      each_of<kM, kQueries>([&](int m, int n, int i) {
        const float2 lse = of_queries[4 * n];
        p[m][n][i] = power_of_two(p[m][n][i] * power - (i % 2 == 0 ? lse.x : lse.y) * kLog2E);
      });
      Engine::template start_sum<kQueries>(packed<T, kM, kQueries>(p), g_tile(stage), dv);
      Engine::template wait<1>(ds);
      each_of<kM, kQueries>([&](int m, int n, int i) {
        const float2 delta = of_queries[kQueries / 2 + 4 * n];
        ds[m][n][i] = p[m][n][i] * (ds[m][n][i] - (i % 2 == 0 ? delta.x : delta.y));
      });
      Engine::template start_sum<kQueries>(packed<T, kM, kQueries>(ds), q_tile(stage), dk);
      Engine::template wait<0>(dv, dk);
    }
  }
  __syncthreads();  // before k and v become room for the results

  float scales[kM][2], ones[kM][2];
#pragma unroll
  for (int m = 0; m < kM; ++m) {
    scales[m][0] = scales[m][1] = scale;
    ones[m][0] = ones[m][1] = 1;
  }
  const int valid = rows.key_end - k0 - row;
  const std::int64_t at = token + k0 + row, to_k = kv_head * s.head_dim;
  const std::int64_t to_v = s.kv_heads * s.head_dim + kv_head * s.values();
  if (kWhole && call.splits == 1) {
    T* to = call.dqkv + at * s.columns() + s.heads * s.head_dim;
    write_fragments<kM, kDim>(dk, scales, k, row, to + to_k, s.columns(), valid, head_dim);
    write_fragments<kM, kValues>(dv, ones, v, row, to + to_v, s.columns(), valid, values);
  } else {
    const bool alone = call.splits == 1;
    float* to =
        (alone ? call.dkv : call.shares + split * s.tokens * s.kv_columns()) + at * s.kv_columns();
    merge_fragments<kM, kDim>(dk, !alone, ones, scales, to + to_k, s.kv_columns(), valid, head_dim);
    merge_fragments<kM, kValues>(dv, !alone, ones, ones, to + to_v, s.kv_columns(), valid, values);
  }
}

// --- dQ: a block holds queries, kKeys keys are met at a time ------------------
template <class Engine, int kDim, int kValues, int kKeys>
struct QueriesTiles {
  using Queries = Tile<Engine::kRows, kDim>;
  using Gradients = Tile<Engine::kRows, kValues>;  // dO
  using Keys = Tile<kKeys, kDim>;
  using Values = Tile<kKeys, kValues>;
  static constexpr std::size_t kShared =
      Queries::kBytes + Gradients::kBytes + 2 * (Keys::kBytes + Values::kBytes);
};

template <class Engine, bool kWhole, int kDim, int kValues, int kKeys, int kBlocks>
__global__ void __launch_bounds__(Engine::kThreads, kBlocks)
    queries_kernel(BackwardCall<typename Engine::Element> call, float scale) {
  using T = typename Engine::Element;
  const AttentionShape& s = call.part.shape;
  const Extent<kWhole> rows(call.part);
  using Tiles = QueriesTiles<Engine, kDim, kValues, kKeys>;
  constexpr int kM = Engine::kM, kRows = Engine::kRows;
  const Shared shared = shared_address(dynamic_shared());
  const typename Tiles::Queries q{shared};
  const typename Tiles::Gradients d{shared + q.kBytes};
  const Shared met = d.at + d.kBytes;
  const auto k_tile = [&](int stage) {
    return typename Tiles::Keys{met + stage * Tiles::Keys::kBytes};
  };
  const auto v_tile = [&](int stage) {
    return typename Tiles::Values{met + 2 * Tiles::Keys::kBytes + stage * Tiles::Values::kBytes};
  };
  const int head_dim = static_cast<int>(s.head_dim), values = static_cast<int>(s.values());
  const int q0 = rows.query_begin + static_cast<int>(gridDim.x - 1 - blockIdx.x) * kRows;
  const int tiles = (rows.keys_of(q0, kRows) - rows.key_begin + kKeys - 1) / kKeys;
  // Asked again for every tile: registers are dearer than the arithmetic.
  const int shared_keys = keys_of_head(s, static_cast<int>(blockIdx.y));
  const auto own_head = [&] {
    return head_of<kWhole>(call.part, call.qkv, call.kv, blockIdx.z, blockIdx.y, shared_keys);
  };
  const auto start_keys = [&](int tile) {
    const Head<T> head = own_head();
    const int k0 = rows.key_begin + tile * kKeys;
    start_tile<Engine::kThreads>(k_tile(tile % 2), head.k + k0 * head.k_stride, head.k_stride,
                                 rows.key_end - k0, head_dim);
    start_tile<Engine::kThreads>(v_tile(tile % 2), head.k + k0 * head.k_stride + head.to_value,
                                 head.k_stride, rows.key_end - k0, values);
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

  const std::int64_t wide = s.heads * s.values();
  const Head<T> head = own_head();
  start_tile<Engine::kThreads>(q, head.q + q0 * head.q_stride, head.q_stride, rows.query_end - q0,
                               head_dim);
  start_tile<Engine::kThreads>(d, call.d_o + (token + q0) * wide + blockIdx.y * s.values(), wide,
                               rows.query_end - q0, values);
  start_keys(0);
  end_group();
  for (int tile = 0; tile < tiles; ++tile) {
    wait_groups<0>();
    Engine::publish();
    __syncthreads();  // this tile is there, and the one before is no longer used
    const auto start_next = [&] {
      if (tile + 1 < tiles) start_keys(tile + 1);
      end_group();
    };
    const int k0 = rows.key_begin + tile * kKeys;
    // Else all lie before.
    const bool reached = rows.reach(q0 + Engine::group_row() + Engine::kGroupRows, k0);
    if (!Engine::kAhead || !reached) start_next();
    if (reached) {
      Fragments<kM, kKeys> p, ds;
      Engine::template start_scores<kKeys>(q, k_tile(tile % 2), p);
      Engine::template start_scores<kKeys>(d, v_tile(tile % 2), ds);
      if constexpr (Engine::kAhead) start_next();  // while they run
      Engine::template wait<1>(p);
      if (!rows.all_see(q0 + Engine::group_row(), k0 + kKeys)) {
        each_of<kM, kKeys>([&](int m, int n, int i) {
          const int query = q0 + row + 16 * m + i / 2 * 8 + g, key = k0 + 8 * n + 2 * t + i % 2;
          if (!rows.sees(query, key)) p[m][n][i] = -INFINITY;
        });
      }
      Engine::meanwhile(s.heads > 0, [&] {
        each_of<kM, kKeys>([&](int m, int n, int i) {
          p[m][n][i] = power_of_two(p[m][n][i] * power - norm[m][i / 2]);
        });
      });
      Engine::template wait<0>(ds);
      each_of<kM, kKeys>([&](int m, int n, int i) {
        ds[m][n][i] = p[m][n][i] * (ds[m][n][i] - correction[m][i / 2]);
      });
      Engine::template start_sum<kKeys>(packed<T, kM, kKeys>(ds), k_tile(tile % 2), dq);
      Engine::template wait<0>(dq);
    }
  }
  __syncthreads();  // before q becomes room for the results
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
                              call.dq + (at * s.heads + blockIdx.y) * s.head_dim,
                              s.heads * s.head_dim, valid, head_dim);
  }
}

// Key side and query side have their own engines and tiles: dK and dV fill twice the registers of
// dQ. The blocks are those that are to fit a processor.
template <int kDim, int kValues, class KeysEngine, int kQueries, int kKeysBlocks,
          class QueriesEngine, int kKeys, int kQueriesBlocks, bool kWhole>
int launch_backward(Stream stream, const BackwardCall<typename KeysEngine::Element>& call) {
  const float scale = scale_of(call.part.shape);
  int status = launch(keys_kernel<KeysEngine, kWhole, kDim, kValues, kQueries, kKeysBlocks>,
                      key_grid(call, KeysEngine::kRows), KeysEngine::kThreads,
                      KeysTiles<KeysEngine, kDim, kValues, kQueries>::kShared, stream, call, scale);
  if (status == 0 && call.splits > 1) status = add_shares(stream, call);
  if (status != 0) return status;
  return launch(queries_kernel<QueriesEngine, kWhole, kDim, kValues, kKeys, kQueriesBlocks>,
                query_grid(call, QueriesEngine::kRows), QueriesEngine::kThreads,
                QueriesTiles<QueriesEngine, kDim, kValues, kKeys>::kShared, stream, call, scale);
}
template <int kDim, int kValues, class KeysEngine, int kQueries, int kKeysBlocks,
          class QueriesEngine, int kKeys, int kQueriesBlocks>
int launch_backward(Stream stream, const BackwardCall<typename KeysEngine::Element>& call) {
  return call.dqkv != nullptr
             ? launch_backward<kDim, kValues, KeysEngine, kQueries, kKeysBlocks, QueriesEngine,
                               kKeys, kQueriesBlocks, true>(stream, call)
             : launch_backward<kDim, kValues, KeysEngine, kQueries, kKeysBlocks, QueriesEngine,
                               kKeys, kQueriesBlocks, false>(stream, call);
}

}  // namespace rehearse::exec::cuda
