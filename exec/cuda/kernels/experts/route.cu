// SPDX-License-Identifier: Apache-2.0
// The router's choice and its gradient, a warp for each token. A token's scores are fp64 and
// rounded once, as the CPU's are (exec/cpu/kernels/router.cc, which has the formulas).
#include "exec/cuda/kernels/pointwise.cuh"

namespace rehearse::exec::cuda {
namespace {

constexpr int kWarps = 4;         // tokens of a block
constexpr double kLeast = 1e-20;  // beside the sum of a token's scores

// A token's room in shared memory.
struct TokenRoom {
  double* choice;       // (experts): what they are chosen by; no number once one is taken
  double* sums;         // (groups)
  double* picked;       // (per_token): scores of what is chosen, ascending
  std::int32_t* picks;  // (per_token): in the order of choice
};
constexpr std::int64_t room_bytes(const RouteShape& s) {
  return (8 * (s.experts + s.groups + s.per_token) + 4 * s.per_token + 15) / 16 * 16;
}
__device__ __forceinline__ TokenRoom token_room(const RouteShape& s) {
  TokenRoom room{};
  room.choice = reinterpret_cast<double*>(dynamic_shared() + threadIdx.x / kWarp * room_bytes(s));
  room.sums = room.choice + s.experts;
  room.picked = room.sums + s.groups;
  room.picks = reinterpret_cast<std::int32_t*>(room.picked + s.per_token);
  return room;
}

__device__ __forceinline__ double logistic(double x) {
  return 1.0 / (1.0 + exp(-x));
}

// Sum of the `best` largest of a group; of equal ones each counts.
__device__ __forceinline__ double sum_of_best(const double* group, int each, int best) {
  double sum = 0, last = INFINITY;
  int last_at = -1;
  for (int b = 0; b < best; ++b) {
    double largest = -INFINITY;
    int at = each;
    for (int e = 0; e < each; ++e) {
      const double v = group[e];
      const bool left = v < last || (v == last && e > last_at);
      if (left && (v > largest || at == each)) {
        largest = v;
        at = e;
      }
    }
    sum += largest;
    last = largest;
    last_at = at;
  }
  return sum;
}

// Experts outside the kept groups are chosen by the least that there is: a group is kept where
// fewer than `kept_groups` have a larger sum, or the same and a lower number.
__device__ __forceinline__ void keep_groups(const RouteShape& s, const TokenRoom& room, int lane) {
  const int each = static_cast<int>(s.experts / s.groups);
  const int best = s.group_best < each ? static_cast<int>(s.group_best) : each;
  for (int g = lane; g < s.groups; g += kWarp) {
    room.sums[g] = sum_of_best(room.choice + g * each, each, best);
  }
  __syncwarp();
  for (int e = lane; e < s.experts; e += kWarp) {
    const int own = e / each;
    int before = 0;
    for (int g = 0; g < s.groups; ++g) {
      before += room.sums[g] > room.sums[own] || (room.sums[g] == room.sums[own] && g < own);
    }
    if (before >= s.kept_groups) room.choice[e] = -INFINITY;
  }
  __syncwarp();
}

// The expert with the largest choice, of equal ones the lower; it is taken. `otherwise`: where
// there are no numbers.
__device__ __forceinline__ int take_largest(const RouteShape& s, double* choice, int lane,
                                            int otherwise) {
  const int none = static_cast<int>(s.experts);
  double largest = -INFINITY;
  int at = none;
  for (int e = lane; e < s.experts; e += kWarp) {
    const double v = choice[e];
    if (v > largest || (v == largest && e < at)) {
      largest = v;
      at = e;
    }
  }
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    const double v = __shfl_xor_sync(0xFFFFFFFFU, largest, distance);
    const int e = __shfl_xor_sync(0xFFFFFFFFU, at, distance);
    if (v > largest || (v == largest && e < at)) {
      largest = v;
      at = e;
    }
  }
  if (at == none) at = otherwise;
  if (lane == 0) choice[at] = NAN;
  __syncwarp();
  return at;
}

__global__ void __launch_bounds__(kWarps* kWarp)
    route_kernel(RouteShape s, const float* __restrict__ all_logits,
                 std::int32_t* __restrict__ chosen, float* __restrict__ weights,
                 float* __restrict__ all_scores, float* __restrict__ logsum) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t token = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  if (token >= s.tokens) return;
  const TokenRoom room = token_room(s);
  const float* logits = all_logits + token * s.experts;
  float* scores = all_scores + token * s.experts;

  float largest = -INFINITY;
  for (int e = lane; e < s.experts; e += kWarp) largest = fmaxf(largest, logits[e]);
  largest = over_warp<Larger>(largest);
  double sum = 0;
  for (int e = lane; e < s.experts; e += kWarp) {
    sum += exp(static_cast<double>(logits[e]) - static_cast<double>(largest));
  }
  const double log_of_sum = static_cast<double>(largest) + log(over_warp<Add>(sum));
  if (lane == 0) logsum[token] = static_cast<float>(log_of_sum);
  const auto score_of = [&](int e) {
    const auto x = static_cast<double>(logits[e]);
    return s.sigmoid ? logistic(x) : exp(x - log_of_sum);
  };
  // Scores rise with the logits, which tell more of them apart.
  const bool by_logits = s.correction == nullptr && s.group_best == 1;
  for (int e = lane; e < s.experts; e += kWarp) {
    const double score = score_of(e);
    scores[e] = s.sigmoid ? logits[e] : static_cast<float>(score);
    const double more = s.correction == nullptr ? 0.0 : static_cast<double>(s.correction[e]);
    room.choice[e] = by_logits ? static_cast<double>(logits[e]) : score + more;
  }
  __syncwarp();

  if (s.kept_groups < s.groups) keep_groups(s, room, lane);
  for (int k = 0; k < s.per_token; ++k) {
    const int taken = take_largest(s, room.choice, lane, k);
    if (lane == 0) room.picks[k] = taken;
  }
  __syncwarp();
  for (int k = lane; k < s.per_token; k += kWarp) {
    int place = 0;
    for (int j = 0; j < s.per_token; ++j) place += room.picks[j] < room.picks[k];
    chosen[token * s.per_token + place] = room.picks[k];
    room.picked[place] = score_of(room.picks[k]);
  }
  __syncwarp();
  double whole = kLeast;
  for (int k = 0; k < s.per_token; ++k) whole += room.picked[k];
  for (int k = lane; k < s.per_token; k += kWarp) {
    const double mine = room.picked[k];
    weights[token * s.per_token + k] =
        static_cast<float>(static_cast<double>(s.scale) * (s.normalised ? mine / whole : mine));
  }
}

// How often an expert was chosen: a block for each.
constexpr int kCountThreads = 256;
__global__ void __launch_bounds__(kCountThreads)
    count_chosen_kernel(std::int64_t copies, const std::int32_t* __restrict__ chosen,
                        float* __restrict__ counts) {
  __shared__ std::int32_t room[kWarp];
  std::int32_t count = 0;
  for (std::int64_t i = threadIdx.x; i < copies; i += kCountThreads) {
    count += chosen[i] == static_cast<std::int32_t>(blockIdx.x);
  }
  count = over_block<Add>(count, room);
  if (threadIdx.x == 0) counts[blockIdx.x] += static_cast<float>(count);
}

template <class T>
__global__ void __launch_bounds__(kWarps* kWarp)
    route_backward_kernel(RouteShape s, const float* __restrict__ all_d_weights,
                          const std::int32_t* __restrict__ all_chosen,
                          const float* __restrict__ all_weights,
                          const float* __restrict__ all_scores, const float* __restrict__ logsum,
                          const float* __restrict__ counts, T* __restrict__ d_logits) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t token = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  if (token >= s.tokens) return;
  const float* scores = all_scores + token * s.experts;
  const std::int32_t* chosen = all_chosen + token * s.per_token;
  const float* d_weights = all_d_weights + token * s.per_token;
  const float* weights = all_weights + token * s.per_token;
  const auto score_of = [&](int e) {
    const auto x = static_cast<double>(scores[e]);
    return s.sigmoid ? logistic(x) : x;
  };
  const auto counted_of = [&](int e) {
    return s.auxiliary == 0 ? 0.0
                            : static_cast<double>(s.auxiliary) * static_cast<double>(counts[e]);
  };

  double all = 0, counted = 0, whole = kLeast, common = 0;
  for (int e = lane; e < s.experts; e += kWarp) {
    const double score = score_of(e);
    all += score;
    counted += counted_of(e) * score;
  }
  all = over_warp<Add>(all);
  counted = over_warp<Add>(counted);
  for (int k = 0; k < s.per_token; ++k) {
    whole += score_of(chosen[k]);
    common += static_cast<double>(d_weights[k]) * static_cast<double>(weights[k]);
  }
  const auto d_score_of = [&](int e) {
    double d = counted_of(e);
    if (s.sigmoid) d = (d - counted / all) / all;
    for (int k = 0; k < s.per_token; ++k) {
      if (chosen[k] != e) continue;
      const double own = static_cast<double>(s.scale) * static_cast<double>(d_weights[k]);
      d += s.normalised ? (own - common) / whole : own;
    }
    return d;
  };
  double mean = 0;
  for (int e = lane; e < s.experts; e += kWarp) mean += d_score_of(e) * score_of(e);
  mean = over_warp<Add>(mean);
  const auto log_of_sum = static_cast<double>(logsum[token]);
  for (int e = lane; e < s.experts; e += kWarp) {
    const double score = score_of(e), d_score = d_score_of(e);
    const double soft = s.sigmoid ? exp(static_cast<double>(scores[e]) - log_of_sum) : score;
    const double d = s.sigmoid ? score * (1 - score) * d_score : score * (d_score - mean);
    const double z = static_cast<double>(s.z) * log_of_sum * soft;
    d_logits[token * s.experts + e] = narrow<T>(static_cast<float>(d + z));
  }
}

template <class T>
struct AddBias {
  std::int64_t cols;
  const T* bias;
  float* y;
  __device__ void operator()(std::int64_t i) const { y[i] += widen(bias[i % cols]); }
};

}  // namespace

int add_router_bias(Stream stream, Type type, std::int64_t rows, std::int64_t cols,
                    const void* bias, float* y) {
  return with_type(type, [&](auto zero) {
    using T = decltype(zero);
    return for_each<1>(stream, rows * cols, AddBias<T>{cols, static_cast<const T*>(bias), y});
  });
}

int route(Stream stream, Type, const RouteShape& s, const float* logits, std::int32_t* chosen,
          float* weights, float* scores, float* logsum) {
  return launch(route_kernel, dim3(blocks(s.tokens, kWarps)), kWarps * kWarp,
                static_cast<std::size_t>(kWarps * room_bytes(s)), stream, s, logits, chosen,
                weights, scores, logsum);
}

int count_chosen(Stream stream, Type, std::int64_t copies, std::int64_t experts,
                 const std::int32_t* chosen, float* counts) {
  return launch(count_chosen_kernel, dim3(static_cast<unsigned>(experts)), kCountThreads, 0, stream,
                copies, chosen, counts);
}

int route_backward(Stream stream, Type type, const RouteShape& s, const float* d_weights,
                   const std::int32_t* chosen, const float* weights, const float* scores,
                   const float* logsum, const float* counts, void* d_logits) {
  return with_type(type, [&](auto zero) {
    using T = decltype(zero);
    return launch(route_backward_kernel<T>, dim3(blocks(s.tokens, kWarps)), kWarps * kWarp, 0,
                  stream, s, d_weights, chosen, weights, scores, logsum, counts,
                  static_cast<T*>(d_logits));
  });
}

}  // namespace rehearse::exec::cuda
