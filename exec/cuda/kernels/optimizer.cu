// SPDX-License-Identifier: Apache-2.0
// The end of a step: sums of squares per tensor, the clip factor, AdamW and Lion. Flat arrays in
// pieces that never cross a tensor, one block per piece.
#include <cmath>

#include "exec/cuda/kernels/device.cuh"

namespace rehearse::exec::cuda {
namespace {

constexpr int kThreads = 256;
constexpr double kLargestSum =
    1.7976931348623157e308;   // what is above, or no number, is an overflow
constexpr float kSkips = -1;  // a factor that says: the update is left out

__global__ void __launch_bounds__(kThreads)
    squares_kernel(const float* __restrict__ values, const Piece* __restrict__ pieces,
                   double* __restrict__ partials) {
  __shared__ double room[kWarp];
  const Piece piece = pieces[blockIdx.x];
  double sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < piece.count; i += kThreads) {
    const auto value = static_cast<double>(values[piece.begin + i]);
    sum += value * value;
  }
  sum = over_block<Add>(sum, room);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

// One block walks all runs, so that runs of one slot are added in their order.
__global__ void __launch_bounds__(kThreads)
    slots_kernel(const SlotRun* __restrict__ runs, std::int64_t num_runs,
                 const double* __restrict__ partials, double* __restrict__ slots) {
  // A warp takes the slots that are its own modulo the number of warps.
  const int lane = static_cast<int>(threadIdx.x) % kWarp,
            warp = static_cast<int>(threadIdx.x) / kWarp;
  for (std::int64_t k = 0; k < num_runs; ++k) {
    const SlotRun run = runs[k];
    if (run.slot % (kThreads / kWarp) != warp) continue;
    double sum = 0;
    for (int i = lane; i < run.count; i += kWarp) sum += partials[run.first + i];
    sum = over_warp<Add>(sum);
    if (lane == 0) slots[run.slot] += sum;
  }
}

__global__ void clip_factor_kernel(const double* __restrict__ squares, std::int64_t count,
                                   double clip_norm, double loss_scale,
                                   float* __restrict__ factor) {
  double sum = 0;
  for (std::int64_t k = 0; k < count; ++k) sum += squares[k];
  const double unscale = loss_scale > 0 ? 1 / loss_scale : 1;
  const double wanted = clip_norm / (sqrt(sum) * unscale + 1e-6);
  // Not fmin: a norm that is not a number must not become a factor of 1. Rounded to fp32 before it
  // is unscaled, as exec/cpu/cpu_backend.cc does.
  const float clip = clip_norm <= 0 || wanted > 1.0 ? 1.0F : static_cast<float>(wanted);
  const bool skips = loss_scale > 0 && !(sum <= kLargestSum);
  *factor = skips ? kSkips : static_cast<float>(static_cast<double>(clip) * unscale);
}

// V elements from `i` on; V is 4 where they lie at 16 bytes.
template <int V, class P>
__device__ __forceinline__ void store_weights(std::int64_t i, const float (&w)[V], float* master,
                                              P* parameters) {
  store(master + i, w);
  if (parameters == nullptr) return;
  if constexpr (V == 4) {
    *reinterpret_cast<uint2*>(parameters + i) =
        make_uint2(pack<P>(w[0], w[1]), pack<P>(w[2], w[3]));
  } else {
    store(parameters + i, w);
  }
}

template <int V, class P>
__device__ __forceinline__ void adamw_at(std::int64_t i, const AdamW& c, float keep, float scale,
                                         const float* gradients, float* master, float* m, float* v,
                                         P* parameters) {
  float g[V], w[V], first[V], second[V];
  load(gradients + i, g);
  load(master + i, w);
  load(m + i, first);
  load(v + i, second);
#pragma unroll
  for (int k = 0; k < V; ++k) {
    g[k] *= scale;
    first[k] = c.b1 * first[k] + c.a1 * g[k];
    second[k] = c.b2 * second[k] + c.a2 * g[k] * g[k];
    w[k] = w[k] * keep - c.size * first[k] / (sqrtf(second[k]) * c.root + c.epsilon);
  }
  store(m + i, first);
  store(v + i, second);
  store_weights(i, w, master, parameters);
}

template <int V, class P>
__device__ __forceinline__ void lion_at(std::int64_t i, const Lion& c, float keep, float scale,
                                        const float* gradients, float* master, float* m,
                                        P* parameters) {
  float g[V], w[V], first[V];
  load(gradients + i, g);
  load(master + i, w);
  load(m + i, first);
#pragma unroll
  for (int k = 0; k < V; ++k) {
    g[k] *= scale;
    const float mixed = c.b1 * first[k] + c.a1 * g[k];
    // What is no number stays none.
    const float sign = mixed > 0.0F ? 1.0F : mixed < 0.0F ? -1.0F : mixed;
    w[k] = w[k] * keep - c.size * sign;
    first[k] = c.b2 * first[k] + c.a2 * g[k];
  }
  store(m + i, first);
  store_weights(i, w, master, parameters);
}

// Calls one(i) and four(i) for the elements of a piece: [begin, whole) and [rest, end) one by one,
// what lies between in fours.
template <class One, class Four>
__device__ __forceinline__ void over_piece(const Piece& piece, bool aligned, const One& one,
                                           const Four& four) {
  const std::int64_t end = piece.begin + piece.count;
  std::int64_t whole = (piece.begin + 3) / 4 * 4, rest = end / 4 * 4;
  if (!aligned || whole >= rest) whole = rest = end;
  const auto thread = static_cast<std::int64_t>(threadIdx.x);
  for (std::int64_t i = piece.begin + thread; i < whole; i += kThreads) one(i);
  for (std::int64_t i = whole + 4 * thread; i < rest; i += 4 * kThreads) four(i);
  for (std::int64_t i = rest + thread; i < end; i += kThreads) one(i);
}

// `aligned`: all arrays begin at 16 bytes (parameters at 8), so elements 4 k do too.
template <class P>
__global__ void __launch_bounds__(kThreads)
    adamw_kernel(AdamW constants, const Piece* __restrict__ pieces,
                 const float* __restrict__ gradients, const float* __restrict__ scale_at,
                 bool aligned, float* __restrict__ master, float* __restrict__ m,
                 float* __restrict__ v, P* __restrict__ parameters) {
  const Piece piece = pieces[blockIdx.x];
  const float scale = *scale_at, keep = piece.decays != 0 ? constants.keep : 1.0F;
  if (scale < 0) return;  // kSkips
  over_piece(
      piece, aligned,
      [&](std::int64_t i) {
        adamw_at<1>(i, constants, keep, scale, gradients, master, m, v, parameters);
      },
      [&](std::int64_t i) {
        adamw_at<4>(i, constants, keep, scale, gradients, master, m, v, parameters);
      });
}

template <class P>
__global__ void __launch_bounds__(kThreads)
    lion_kernel(Lion constants, const Piece* __restrict__ pieces,
                const float* __restrict__ gradients, const float* __restrict__ scale_at,
                bool aligned, float* __restrict__ master, float* __restrict__ m,
                P* __restrict__ parameters) {
  const Piece piece = pieces[blockIdx.x];
  const float scale = *scale_at, keep = piece.decays != 0 ? constants.keep : 1.0F;
  if (scale < 0) return;  // kSkips
  over_piece(
      piece, aligned,
      [&](std::int64_t i) {
        lion_at<1>(i, constants, keep, scale, gradients, master, m, parameters);
      },
      [&](std::int64_t i) {
        lion_at<4>(i, constants, keep, scale, gradients, master, m, parameters);
      });
}

}  // namespace

Pieces cut_into_pieces(std::span<const TensorRange> ranges) {
  Pieces out;
  for (const TensorRange& range : ranges) {
    const std::size_t first = out.pieces.size();
    // After the first piece, pieces begin at multiples of their size: aligned whatever the tensor.
    for (std::int64_t begin = range.begin; begin < range.end;) {
      const std::int64_t next = (begin / kPieceElements + 1) * kPieceElements;
      const std::int64_t end = next < range.end ? next : range.end;
      out.pieces.push_back({.begin = begin,
                            .count = static_cast<std::int32_t>(end - begin),
                            .decays = range.decays ? 1 : 0});
      begin = end;
    }
    out.runs.push_back({.slot = range.slot,
                        .first = static_cast<std::int32_t>(first),
                        .count = static_cast<std::int32_t>(out.pieces.size() - first)});
  }
  return out;
}

int sum_of_squares(Stream stream, const float* values, const Piece* pieces, std::int64_t num_pieces,
                   const SlotRun* runs, std::int64_t num_runs, double* partials, double* slots) {
  const int status = launch(squares_kernel, dim3(blocks(num_pieces, 1)), kThreads, 0, stream,
                            values, pieces, partials);
  if (status != 0 || num_runs == 0) return status;
  return launch(slots_kernel, dim3(1), kThreads, 0, stream, runs, num_runs, partials, slots);
}

int clip_factor(Stream stream, const double* squares, std::int64_t count, double clip_norm,
                double loss_scale, float* factor) {
  return launch(clip_factor_kernel, dim3(1), 1, 0, stream, squares, count, clip_norm, loss_scale,
                factor);
}

AdamW adamw_constants(double beta1, double beta2, double epsilon, double rate, double decay,
                      std::int64_t step) {
  const double t = static_cast<double>(step + 1);
  return {.b1 = static_cast<float>(beta1),
          .a1 = static_cast<float>(1.0 - beta1),
          .b2 = static_cast<float>(beta2),
          .a2 = static_cast<float>(1.0 - beta2),
          .size = static_cast<float>(rate / (1.0 - std::pow(beta1, t))),
          .root = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(beta2, t))),
          .epsilon = static_cast<float>(epsilon),
          .keep = static_cast<float>(1.0 - rate * decay)};
}

// Calls f(P{}) with the type of 16-bit parameters.
template <class F>
static int with_sixteen_bits(Type type, F f) {
  return type == Type::Float16 ? f(Fp16{}) : f(Bf16{});
}

int adamw(Stream stream, Type type, const AdamW& constants, const Piece* pieces,
          std::int64_t num_pieces, const float* gradients, const float* scale, float* master,
          float* m, float* v, void* parameters) {
  const bool aligned = vectorises<float>(0, {gradients, master, m, v}) &&
                       reinterpret_cast<std::uintptr_t>(parameters) % 8 == 0;
  return with_sixteen_bits(type, [&](auto zero) {
    using P = decltype(zero);
    return launch(adamw_kernel<P>, dim3(blocks(num_pieces, 1)), kThreads, 0, stream, constants,
                  pieces, gradients, scale, aligned, master, m, v, static_cast<P*>(parameters));
  });
}

Lion lion_constants(double beta1, double beta2, double rate, double decay) {
  return {.b1 = static_cast<float>(beta1),
          .a1 = static_cast<float>(1.0 - beta1),
          .b2 = static_cast<float>(beta2),
          .a2 = static_cast<float>(1.0 - beta2),
          .size = static_cast<float>(rate),
          .keep = static_cast<float>(1.0 - rate * decay)};
}

int lion(Stream stream, Type type, const Lion& constants, const Piece* pieces,
         std::int64_t num_pieces, const float* gradients, const float* scale, float* master,
         float* m, void* parameters) {
  const bool aligned = vectorises<float>(0, {gradients, master, m}) &&
                       reinterpret_cast<std::uintptr_t>(parameters) % 8 == 0;
  return with_sixteen_bits(type, [&](auto zero) {
    using P = decltype(zero);
    return launch(lion_kernel<P>, dim3(blocks(num_pieces, 1)), kThreads, 0, stream, constants,
                  pieces, gradients, scale, aligned, master, m, static_cast<P*>(parameters));
  });
}

}  // namespace rehearse::exec::cuda
