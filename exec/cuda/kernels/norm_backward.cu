// SPDX-License-Identifier: Apache-2.0
// LayerNorm and RMSNorm, backward. Rows that fit the registers of a block are read once: it keeps
// sums of its rows for the parameters while it computes the input's gradient. Of wider rows the
// input's gradient is found with one warp per row, the parameters' as column sums.
#include "exec/cuda/kernels/column_sums.cuh"

namespace rehearse::exec::cuda {
namespace {

constexpr int kRows = 4;  // warps, hence rows, of a block

template <bool kCentred>
__device__ __forceinline__ void statistics_of(const float* statistics, std::int64_t row,
                                              float& mean, float& rstd) {
  mean = kCentred ? statistics[2 * row] : 0.0F;
  rstd = kCentred ? statistics[2 * row + 1] : statistics[row];
}

// dx = rstd (g - mean(g) - hat mean(g hat)) + residual with g = dy weight, hat = (x - mean) rstd;
// RMSNorm has no mean(g). dx may be dy or residual: a lane reads what it overwrites.
template <class T, int V, bool kCentred>
__global__ void norm_input_kernel(std::int64_t rows, std::int64_t h, const T* dy,
                                  const T* __restrict__ x, const float* __restrict__ statistics,
                                  const T* __restrict__ weight, float offset, const T* residual,
                                  T* dx) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kRows + threadIdx.x / kWarp;
  if (row >= rows) return;  // the whole warp
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  float mean, rstd;
  statistics_of<kCentred>(statistics, row, mean, rstd);
  const T *g = dy + row * h, *in = x + row * h;
  float gradient[V], value[V], scale[V];
  float sum = 0, product = 0;
  for (std::int64_t c = lane * V; c < h; c += kWarp * V) {
    load(g + c, gradient);
    load(in + c, value);
    load(weight + c, scale);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const float scaled = gradient[i] * (scale[i] + offset);
      sum += scaled;
      product += scaled * (value[i] - mean) * rstd;
    }
  }
  sum = kCentred ? over_warp<Add>(sum) / static_cast<float>(h) : 0.0F;
  product = over_warp<Add>(product) / static_cast<float>(h);
  for (std::int64_t c = lane * V; c < h; c += kWarp * V) {
    float add[V] = {};
    load(g + c, gradient);
    load(in + c, value);
    load(weight + c, scale);
    if (residual != nullptr) load(residual + row * h + c, add);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const float hat = (value[i] - mean) * rstd;
      value[i] = rstd * (gradient[i] * (scale[i] + offset) - sum - hat * product) + add[i];
    }
    store(dx + row * h + c, value);
  }
}

// What a row adds to the gradients of weight and (LayerNorm) bias.
template <class T, int V, bool kCentred>
struct Parameters {
  static constexpr int kOutputs = kCentred ? 2 : 1;
  const T *dy, *x;
  const float* statistics;
  std::int64_t h;
  __device__ void operator()(std::int64_t row, std::int64_t column,
                             float (&value)[kOutputs][V]) const {
    float mean, rstd, gradient[V], in[V];
    statistics_of<kCentred>(statistics, row, mean, rstd);
    load(dy + row * h + column, gradient);
    load(x + row * h + column, in);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      value[0][i] = gradient[i] * (in[i] - mean) * rstd;
      if constexpr (kCentred) value[1][i] = gradient[i];
    }
  }
};

// --- rows in one pass ---
constexpr int kFewThreads = 256, kMostThreads = 512;  // of a block
constexpr int kPerProcessor = 768;                    // threads that registers are left for
constexpr std::int64_t kTotalsBytes = 96 * 1024;      // shared memory of one block on any device

// How rows lie on threads: `lanes` of them, whole warps, have a row; groups of as many have others.
// Columns are summed for `outputs` parameters.
struct RowShape {
  int lanes = 0, groups = 0, chunks = 0;  // chunks of V columns of a thread
  int threads() const { return lanes * groups; }
  bool fits() const { return chunks > 0; }
  std::int64_t totals_bytes(std::int64_t h, int outputs) const {
    return groups * outputs * h * static_cast<std::int64_t>(sizeof(double));
  }
};
RowShape row_shape(std::int64_t h, int outputs, int width) {
  for (const int chunks : {1, 2}) {
    const std::int64_t lanes = (h + width * chunks * kWarp - 1) / (width * chunks * kWarp) * kWarp;
    if (lanes > kMostThreads) continue;
    const auto few = static_cast<int>(lanes);
    const RowShape shape{few, few < kFewThreads ? kFewThreads / few : 1, chunks};
    if (shape.totals_bytes(h, outputs) <= kTotalsBytes) return shape;
  }
  return {};
}
std::int64_t row_blocks(const RowShape& shape, std::int64_t rows) {
  const std::int64_t at_once = shape.groups * (2 / shape.chunks);
  const std::int64_t most = (rows + at_once - 1) / at_once;
  const std::int64_t wanted = std::int64_t{processors()} * (kPerProcessor / shape.threads());
  return wanted < most ? wanted : most;
}

template <class T>
struct NormCall {
  std::int64_t rows = 0, h = 0, per_block = 0;
  int lanes = 0, groups = 0;
  const T *dy = nullptr, *x = nullptr, *weight = nullptr, *residual = nullptr;
  const float* statistics = nullptr;
  float offset = 0;
  T* dx = nullptr;             // may be dy or residual; null: not wanted
  double* partials = nullptr;  // (outputs, blocks, h); null: not wanted
};

// Columns are summed in fp32 over kRun times the rows at once, these sums in fp64 in dynamic shared
// memory, (groups, outputs, h), where each thread has its own.
constexpr int kRun = 16;
template <class T, int V, bool kCentred, int kChunks, int kThreads>
__global__ void __launch_bounds__(kThreads, kPerProcessor / kThreads)
    norm_rows_kernel(NormCall<T> call) {
  constexpr int kAtOnce = 2 / kChunks, kOutputs = kCentred ? 2 : 1;
  __shared__ float room[2][kThreads / kWarp][kAtOnce][2];  // sums of warps; two, taken in turn
  const std::int64_t h = call.h, begin = blockIdx.x * call.per_block;
  const std::int64_t end = begin + call.per_block < call.rows ? begin + call.per_block : call.rows;
  const int group = static_cast<int>(threadIdx.x) / call.lanes;
  const int place = static_cast<int>(threadIdx.x) - group * call.lanes;
  const int warp = static_cast<int>(threadIdx.x) / kWarp, warps = call.lanes / kWarp;
  const float count = static_cast<float>(h);
  const auto column = [&](int k) { return (place + k * call.lanes) * V; };
  auto* totals = reinterpret_cast<double*>(dynamic_shared()) + group * kOutputs * h;
  const auto each = [&](auto f) {  // f(k, output, i, its place among a group's totals)
#pragma unroll
    for (int k = 0; k < kChunks; ++k) {
      if (column(k) >= h) continue;
#pragma unroll
      for (int o = 0; o < kOutputs; ++o) {
#pragma unroll
        for (int i = 0; i < V; ++i) f(k, o, i, o * h + column(k) + i);
      }
    }
  };
  float sums[kChunks][kOutputs][V] = {};
  each([&](int, int, int, std::int64_t at) { totals[at] = 0; });
  const auto add_sums = [&] {
    each([&](int k, int o, int i, std::int64_t at) {
      totals[at] += static_cast<double>(sums[k][o][i]);
      sums[k][o][i] = 0;
    });
  };
  int turn = 0, run = 0;
  for (std::int64_t first = begin; first < end; first += call.groups * kAtOnce, turn ^= 1) {
    const std::int64_t row = first + group * kAtOnce;
    Raw<T, V> dy[kAtOnce][kChunks], x[kAtOnce][kChunks], residual[kAtOnce][kChunks];
    float mean[kAtOnce], rstd[kAtOnce], all[kAtOnce][2];
#pragma unroll
    for (int r = 0; r < kAtOnce; ++r) {
      mean[r] = rstd[r] = 0;
      if (row + r >= end) continue;
      statistics_of<kCentred>(call.statistics, row + r, mean[r], rstd[r]);
#pragma unroll
      for (int k = 0; k < kChunks; ++k) {
        if (column(k) >= h) continue;
        const std::int64_t at = (row + r) * h + column(k);
        dy[r][k] = load_raw<T, V>(call.dy + at);
        x[r][k] = load_raw<T, V>(call.x + at);
        if (call.residual != nullptr) residual[r][k] = load_raw<T, V>(call.residual + at);
      }
    }
#pragma unroll
    for (int r = 0; r < kAtOnce; ++r) {
      float sum = 0, product = 0;
#pragma unroll
      for (int k = 0; k < kChunks; ++k) {
        if (row + r >= end || column(k) >= h) continue;
        float gradient[V], value[V], scale[V];
        widen_all<T>(dy[r][k], gradient);
        widen_all<T>(x[r][k], value);
        load(call.weight + column(k), scale);
#pragma unroll
        for (int i = 0; i < V; ++i) {
          const float scaled = gradient[i] * (scale[i] + call.offset);
          sum += scaled;
          product += scaled * (value[i] - mean[r]) * rstd[r];
        }
      }
      all[r][0] = kCentred ? over_warp<Add>(sum) : 0.0F;
      all[r][1] = over_warp<Add>(product);
    }
    if (warps > 1) {
      if (threadIdx.x % kWarp == 0) {
#pragma unroll
        for (int r = 0; r < kAtOnce; ++r) {
          room[turn][warp][r][0] = all[r][0];
          room[turn][warp][r][1] = all[r][1];
        }
      }
      __syncthreads();
#pragma unroll
      for (int r = 0; r < kAtOnce; ++r) {
        all[r][0] = all[r][1] = 0;
        for (int w = group * warps; w < (group + 1) * warps; ++w) {
          all[r][0] += room[turn][w][r][0];
          all[r][1] += room[turn][w][r][1];
        }
      }
    }
#pragma unroll
    for (int r = 0; r < kAtOnce; ++r) {
      all[r][0] /= count;
      all[r][1] /= count;
    }
#pragma unroll
    for (int k = 0; k < kChunks; ++k) {
      if (column(k) >= h) continue;
#pragma unroll
      for (int r = 0; r < kAtOnce; ++r) {
        if (row + r >= end) continue;
        float gradient[V], value[V], scale[V], add[V] = {};
        widen_all<T>(dy[r][k], gradient);
        widen_all<T>(x[r][k], value);
        load(call.weight + column(k), scale);
        if (call.residual != nullptr) widen_all<T>(residual[r][k], add);
#pragma unroll
        for (int i = 0; i < V; ++i) {
          const float hat = (value[i] - mean[r]) * rstd[r];
          sums[k][0][i] += gradient[i] * hat;
          if constexpr (kCentred) sums[k][1][i] += gradient[i];
          value[i] =
              rstd[r] * (gradient[i] * (scale[i] + call.offset) - all[r][0] - hat * all[r][1]) +
              add[i];
        }
        if (call.dx != nullptr) store(call.dx + (row + r) * h + column(k), value);
      }
    }
    if (++run == kRun) {
      add_sums();
      run = 0;
    }
  }

  if (call.partials == nullptr) return;
  add_sums();
  __syncthreads();
  if (group > 0) return;
  each([&](int, int o, int, std::int64_t at) {
    double sum = 0;
    for (int g = 0; g < call.groups; ++g) sum += totals[g * kOutputs * h + at];
    call.partials[(static_cast<std::int64_t>(o) * gridDim.x + blockIdx.x) * h + at - o * h] = sum;
  });
}

template <class T, int V, bool kCentred, int kChunks, int kThreads>
int launch_rows(Stream stream, const RowShape& shape, NormCall<T> call, float* d_weight,
                float* d_bias, double* partials) {
  constexpr int kOutputs = kCentred ? 2 : 1;
  const std::int64_t most = row_blocks(shape, call.rows), at_once = shape.groups * (2 / kChunks);
  call.lanes = shape.lanes;
  call.groups = shape.groups;
  call.per_block = (call.rows + most * at_once - 1) / (most * at_once) * at_once;
  call.partials = partials;
  const unsigned grid = blocks(call.rows, call.per_block);
  int status =
      launch(norm_rows_kernel<T, V, kCentred, kChunks, kThreads>, dim3(grid), shape.threads(),
             static_cast<std::size_t>(shape.totals_bytes(call.h, kOutputs)), stream, call);
  float* const to[] = {d_weight, d_bias};
  for (int o = 0; o < kOutputs && status == 0; ++o) {
    if (to[o] == nullptr) continue;
    status = add_partials(stream, grid, call.h, partials + o * grid * call.h, to[o]);
  }
  return status;
}

template <bool kCentred>
int norm_backward(Stream stream, Type type, std::int64_t rows, std::int64_t h, const void* dy,
                  const void* x, const float* statistics, const void* weight, double offset,
                  const void* residual, void* dx, float* d_weight, float* d_bias, void* scratch) {
  return with_width(type, h, {dy, x, weight, residual, dx}, [&](auto zero, auto width) {
    using T = decltype(zero);
    constexpr int V = decltype(width)::value;
    const bool wanted = d_weight != nullptr || d_bias != nullptr;
    if (rows == 0 || h == 0) return 0;
    if (const RowShape shape = row_shape(h, kCentred ? 2 : 1, V); shape.fits()) {
      const NormCall<T> call{.rows = rows,
                             .h = h,
                             .dy = static_cast<const T*>(dy),
                             .x = static_cast<const T*>(x),
                             .weight = static_cast<const T*>(weight),
                             .residual = static_cast<const T*>(residual),
                             .statistics = statistics,
                             .offset = static_cast<float>(offset),
                             .dx = static_cast<T*>(dx)};
      const auto by = [&](auto chunks, auto threads) {
        return launch_rows<T, V, kCentred, decltype(chunks)::value, decltype(threads)::value>(
            stream, shape, call, d_weight, d_bias,
            wanted ? static_cast<double*>(scratch) : nullptr);
      };
      constexpr std::integral_constant<int, kFewThreads> kFew;
      constexpr std::integral_constant<int, kMostThreads> kMost;
      constexpr std::integral_constant<int, 1> kOne;
      constexpr std::integral_constant<int, 2> kTwo;
      if (shape.chunks == 2) return by(kTwo, kMost);
      return shape.threads() <= kFewThreads ? by(kOne, kFew) : by(kOne, kMost);
    }
    if (wanted) {  // first: dx may be dy
      const Parameters<T, V, kCentred> term{static_cast<const T*>(dy), static_cast<const T*>(x),
                                            statistics, h};
      int status = 0;
      if constexpr (kCentred) {
        status = add_over_rows<V>(stream, rows, h, term, {d_weight, d_bias}, scratch);
      } else {
        status = add_over_rows<V>(stream, rows, h, term, {d_weight}, scratch);
      }
      if (status != 0) return status;
    }
    if (dx == nullptr) return 0;
    return launch(norm_input_kernel<T, V, kCentred>, dim3(blocks(rows, kRows)), kRows * kWarp, 0,
                  stream, rows, h, static_cast<const T*>(dy), static_cast<const T*>(x), statistics,
                  static_cast<const T*>(weight), offset, static_cast<const T*>(residual),
                  static_cast<T*>(dx));
  });
}

}  // namespace

std::int64_t norm_backward_scratch(std::int64_t rows, std::int64_t h, int outputs) {
  std::int64_t parts = row_parts(rows, h);
  for (const int width : {1, kVector<float>, kVector<Bf16>}) {
    const RowShape shape = row_shape(h, outputs, width);
    const std::int64_t here = shape.fits() ? row_blocks(shape, rows) : 0;
    if (here > parts) parts = here;
  }
  return outputs * parts * h * static_cast<std::int64_t>(sizeof(double));
}

int layer_norm_backward(Stream stream, Type type, std::int64_t rows, std::int64_t h, const void* dy,
                        const void* x, const float* statistics, const void* weight,
                        const void* residual, void* dx, float* d_weight, float* d_bias,
                        void* scratch) {
  return norm_backward<true>(stream, type, rows, h, dy, x, statistics, weight, 0, residual, dx,
                             d_weight, d_bias, scratch);
}

int rms_norm_backward(Stream stream, Type type, std::int64_t rows, std::int64_t h, const void* dy,
                      const void* x, const float* statistics, const void* weight,
                      double weight_offset, const void* residual, void* dx, float* d_weight,
                      void* scratch) {
  return norm_backward<false>(stream, type, rows, h, dy, x, statistics, weight, weight_offset,
                              residual, dx, d_weight, nullptr, scratch);
}

}  // namespace rehearse::exec::cuda
