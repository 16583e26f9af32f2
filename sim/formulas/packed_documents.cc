// SPDX-License-Identifier: Apache-2.0
#include "sim/formulas/packed_documents.h"

#include <algorithm>
#include <cmath>

#include "schedules/base/random.h"

namespace rehearse {
namespace {

constexpr int kDrawn = 4096;
constexpr std::int64_t kMostDocuments = 1 << 20;  // drawn altogether

struct Moments {
  double mean = 0, deviation = 0, skewness = 0;  // of the sum of squares, in squares of the length
};

// `longest`: in sequences, too.
Moments drawn_moments(double documents_per_sequence, double longest) {
  const double mean_length = 1 / documents_per_sequence;
  const int sequences = static_cast<int>(std::clamp<double>(
      static_cast<double>(kMostDocuments) / (std::max(documents_per_sequence, 1 / longest) + 1), 64,
      kDrawn));
  std::uint64_t number = 0;
  double sum = 0, squares = 0, cubes = 0;
  for (int i = 0; i < sequences; ++i) {
    double left = 1, work = 0;
    while (left > 0) {
      const double uniform = (static_cast<double>(split_mix(1, number++) >> 11) + 0.5) * 0x1p-53;
      const double length = std::min({left, longest, -mean_length * std::log(uniform)});
      work += length * length;
      left -= length;
    }
    sum += work;
    squares += work * work;
    cubes += work * work * work;
  }
  const double mean = sum / sequences;
  const double variance = std::max(squares / sequences - mean * mean, 0.0);
  const double deviation = std::sqrt(variance);
  const double third = cubes / sequences - 3 * mean * variance - mean * mean * mean;
  return {mean, deviation, deviation > 1e-9 ? third / (variance * deviation) : 0};
}

// Inverse of the normal distribution, by bisection: erfc is exact enough.
double normal_quantile(double share) {
  double low = -8, high = 8;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (0.5 * std::erfc(-middle / std::sqrt(2.0)) < share ? low : high) = middle;
  }
  return low;
}

}  // namespace

double busiest_documents(double document, std::int64_t length, std::int32_t ranks,
                         std::int64_t sequences, std::int64_t longest) {
  if (document <= 0 || ranks < 2) return 1;
  const double per_sequence = static_cast<double>(length) / document;
  if (per_sequence < 1e-3 && longest <= 0) return 1;
  const double cut = longest > 0 ? static_cast<double>(longest) / static_cast<double>(length) : 1;
  const Moments one = drawn_moments(std::min(per_sequence, 1e5), std::max(cut, 1e-5));
  const auto count = static_cast<double>(std::max<std::int64_t>(sequences, 1));
  const double z = normal_quantile((ranks - 0.375) / (ranks + 0.25));
  const double skewness = one.skewness / std::sqrt(count);
  const double most = z + (z * z - 1) * skewness / 6;
  const double busiest = one.mean + one.deviation / std::sqrt(count) * std::max(most, 0.0);
  return std::clamp(busiest, one.mean, std::max(one.mean, std::min(cut, 1.0))) / one.mean;
}

}  // namespace rehearse
