// SPDX-License-Identifier: Apache-2.0
// Flash attention, forward, 16 bits on tensor cores (Dao 2023, arXiv 2307.08691, algorithm 1): a
// block holds a tile of queries and walks the keys up to the diagonal; scores never leave
// registers. The next tile of K and V is copied while this one is used.
#pragma once

#include "exec/cuda/kernels/attention/attention_tiles.cuh"

namespace rehearse::exec::cuda {

// Engine: the products (attention_mma.cuh); queries and keys are padded to kDim columns, values to
// kValues; kKeys keys are met at a time.
template <class Engine, int kDim, int kValues, int kKeys>
struct ForwardTiles {
  using Queries = Tile<Engine::kRows, kDim>;
  using Keys = Tile<kKeys, kDim>;
  using Values = Tile<kKeys, kValues>;
  using Results = Tile<Engine::kRows, kValues>;  // over the queries
  static_assert(kValues <= kDim);
  static constexpr std::size_t kShared = Queries::kBytes + 2 * (Keys::kBytes + Values::kBytes);
};

template <class Engine, bool kWhole, int kDim, int kValues, int kKeys, int kBlocks>
__global__ void __launch_bounds__(Engine::kThreads, kBlocks)
    forward_kernel(ForwardCall<typename Engine::Element> call, float scale) {
  using T = typename Engine::Element;
  using Tiles = ForwardTiles<Engine, kDim, kValues, kKeys>;
  constexpr int kM = Engine::kM, kRows = Engine::kRows;
  const AttentionShape& s = call.part.shape;
  const Extent<kWhole> rows(call.part);
  const Shared shared = shared_address(dynamic_shared<Engine::kAhead>());  // mma.sync: no register
  const typename Tiles::Queries q{shared};
  const auto k_tile = [&](int stage) {
    return typename Tiles::Keys{shared + q.kBytes + stage * Tiles::Keys::kBytes};
  };
  const auto v_tile = [&](int stage) {
    return typename Tiles::Values{shared + q.kBytes + 2 * Tiles::Keys::kBytes +
                                  stage * Tiles::Values::kBytes};
  };
  const int head_dim = static_cast<int>(s.head_dim), values = static_cast<int>(s.values());
  // The longest rows first: the short ones fill the end.
  const int q0 = rows.query_begin + static_cast<int>(gridDim.x - 1 - blockIdx.x) * kRows;
  const int tiles = (rows.keys_of(q0, kRows) - rows.key_begin + kKeys - 1) / kKeys;
  const Head<T> head = head_of<kWhole>(call.part, call.qkv, call.kv, blockIdx.z, blockIdx.y,
                                       blockIdx.y / (s.heads / s.kv_heads));
  const auto first_key = [&](int tile) { return rows.key_begin + tile * kKeys; };
  const auto start_k = [&](int tile) {
    const int k0 = first_key(tile);
    start_tile<Engine::kThreads>(k_tile(tile % 2), head.k + k0 * head.k_stride, head.k_stride,
                                 rows.key_end - k0, head_dim);
  };
  const auto start_v = [&](int tile) {
    const int k0 = first_key(tile);
    start_tile<Engine::kThreads>(v_tile(tile % 2), head.k + k0 * head.k_stride + head.to_value,
                                 head.k_stride, rows.key_end - k0, values);
  };

  const int lane = static_cast<int>(threadIdx.x) % kWarp, g = lane / 4, t = lane % 4;
  const int row = static_cast<int>(threadIdx.x) / kWarp * 16 * kM;  // the warp's first
  const float power = scale * kLog2E;
  Fragments<kM, kValues> out;
  clear<kM, kValues>(out);
  float top[kM][2], sum[kM][2];
#pragma unroll
  for (int m = 0; m < kM; ++m) {
    top[m][0] = top[m][1] = -INFINITY;
    sum[m][0] = sum[m][1] = 0;
  }

  // The scores of a tile become numerators of the softmax, top and sum those of all keys so far;
  // shrink: what was summed before counts so much.
  const auto soften = [&](int tile, Fragments<kM, kKeys>& p, float(&shrink)[kM][2]) {
    const int k0 = first_key(tile);
    if (!rows.all_see(q0 + Engine::group_row(), k0 + kKeys)) {
      each_of<kM, kKeys>([&](int m, int n, int i) {
        const int query = q0 + row + 16 * m + i / 2 * 8 + g, key = k0 + 8 * n + 2 * t + i % 2;
        if (!rows.sees(query, key)) p[m][n][i] = -INFINITY;
      });
    }
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float largest = top[m][half];
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) {
          largest = fmaxf(largest, fmaxf(p[m][n][2 * half], p[m][n][2 * half + 1]));
        }
        // Over the 4 threads of a row. Finite from the first tile on: its first key is seen by all.
        largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFU, largest, 1));
        largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFU, largest, 2));
        shrink[m][half] = power_of_two((top[m][half] - largest) * power);
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
        sum[m][half] = sum[m][half] * shrink[m][half] + added;  // of this thread's columns
        top[m][half] = largest;
      }
    }
  };
  const auto reached = [&](int tile) {  // else all of the group lie before these keys
    return rows.reach(q0 + Engine::group_row() + Engine::kGroupRows, first_key(tile));
  };
  const auto rescale = [&](const float(&shrink)[kM][2]) {
    each_of<kM, kValues>([&](int m, int n, int i) { out[m][n][i] *= shrink[m][i / 2]; });
  };

  float shrink[kM][2];
  start_tile<Engine::kThreads>(q, head.q + q0 * head.q_stride, head.q_stride, rows.query_end - q0,
                               head_dim);
  start_k(0);
  if constexpr (Engine::kAhead) {
    // The next tile's scores are computed before this one's values are summed, and softened while
    // they are (Shah et al. 2024, arXiv 2407.08608, section 3.2).
    end_group();
    start_v(0);
    if (tiles > 1) start_k(1);
    end_group();
    wait_groups<1>();
    Engine::publish();
    __syncthreads();
    Weights<kM, kKeys> weights;
    {
      Fragments<kM, kKeys> p;
      Engine::template start_scores<kKeys>(q, k_tile(0), p);
      Engine::template wait<0>(p);
      soften(0, p, shrink);
      weights = packed<T, kM, kKeys>(p);
    }
    for (int tile = 0; tile < tiles; ++tile) {
      wait_groups<0>();
      Engine::publish();
      __syncthreads();  // these values and the next keys are there, those before no longer used
      const auto start_next = [&] {
        if (tile + 1 < tiles) start_v(tile + 1);
        if (tile + 2 < tiles) start_k(tile + 2);
        end_group();
      };
      const bool next_reached = tile + 1 < tiles && reached(tile + 1);
      if (!next_reached) start_next();
      if (next_reached) {
        Fragments<kM, kKeys> p;
        Engine::template start_scores<kKeys>(q, k_tile((tile + 1) % 2), p);
        Engine::template start_sum<kKeys>(weights, v_tile(tile % 2), out);
        start_next();  // while they run
        Engine::template wait<1>(p);
        Engine::meanwhile(s.heads > 0, [&] { soften(tile + 1, p, shrink); });
        Engine::template wait<0>(out);
        rescale(shrink);
        weights = packed<T, kM, kKeys>(p);
      } else if (reached(tile)) {
        Engine::template start_sum<kKeys>(weights, v_tile(tile % 2), out);
        Engine::template wait<0>(out);
      }
    }
  } else {
    start_v(0);
    end_group();
    for (int tile = 0; tile < tiles; ++tile) {
      wait_groups<0>();
      Engine::publish();
      __syncthreads();  // this tile is there, and the one before is no longer used
      if (tile + 1 < tiles) {
        start_k(tile + 1);
        start_v(tile + 1);
      }
      end_group();
      if (reached(tile)) {
        Fragments<kM, kKeys> p;
        Engine::template start_scores<kKeys>(q, k_tile(tile % 2), p);
        Engine::template wait<0>(p);
        soften(tile, p, shrink);
        rescale(shrink);
        Engine::template start_sum<kKeys>(packed<T, kM, kKeys>(p), v_tile(tile % 2), out);
        Engine::template wait<0>(out);
      }
    }
  }
  __syncthreads();  // before q becomes room for the results

  // How much of the row there was before a part counts.
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
  const std::int64_t to = (token * s.heads + blockIdx.y) * s.values();
  const std::int64_t stride = s.heads * s.values();
  const int valid = rows.query_end - q0 - row;
  if constexpr (kWhole) {
    write_fragments<kM, kValues>(out, now, typename Tiles::Results{q.at}, row, call.o + to, stride,
                                 valid, values);
  } else {
    merge_fragments<kM, kValues>(out, call.part.first, before, now, call.sum + to, stride, valid,
                                 values);
  }
}

// kBlocks: that are to fit a processor.
template <class Engine, int kDim, int kValues, int kKeys, int kBlocks, bool kWhole>
int launch_forward(Stream stream, const ForwardCall<typename Engine::Element>& call) {
  return launch(forward_kernel<Engine, kWhole, kDim, kValues, kKeys, kBlocks>,
                query_grid(call, Engine::kRows), Engine::kThreads,
                ForwardTiles<Engine, kDim, kValues, kKeys>::kShared, stream, call,
                scale_of(call.part.shape));
}
template <class Engine, int kDim, int kValues, int kKeys, int kBlocks>
int launch_forward(Stream stream, const ForwardCall<typename Engine::Element>& call) {
  return call.sum == nullptr
             ? launch_forward<Engine, kDim, kValues, kKeys, kBlocks, true>(stream, call)
             : launch_forward<Engine, kDim, kValues, kKeys, kBlocks, false>(stream, call);
}

}  // namespace rehearse::exec::cuda
