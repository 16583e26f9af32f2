// SPDX-License-Identifier: Apache-2.0
// Prints this machine's fp32 peak of one thread [GF/s]: chains of fused multiply-adds in registers,
// the best of many tries by CPU time.
#include <algorithm>
#include <cstdio>
#include <ctime>

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif
typedef float Vec __attribute__((vector_size(4 * kLanes)));

static double seconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

int main() {
  constexpr int kChains = 12, kTimes = 5000000;
  const Vec factor = Vec{} + 0.999F;
  Vec a[kChains];
#pragma GCC unroll 12
  // else they are one chain
  for (int c = 0; c < kChains; ++c) a[c] = Vec{} + static_cast<float>(c);
  double best = 1e9;
  for (int attempt = 0; attempt < 12; ++attempt) {
    const double start = seconds();
    for (int i = 0; i < kTimes; ++i) {
#pragma GCC unroll 12
      for (int c = 0; c < kChains; ++c) a[c] = a[c] * factor + factor;
    }
    best = std::min(best, seconds() - start);
  }
  float sum = 0;
#pragma GCC unroll 12
  for (int c = 0; c < kChains; ++c) sum += a[c][0];
  std::printf("%.0f\n", 2.0 * kChains * kLanes * kTimes / best * 1e-9 + (sum == 0.5F ? 1 : 0));
}
