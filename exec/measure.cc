#include "exec/measure.h"

#include <algorithm>
#include <chrono>

namespace rehearse::exec {
namespace {

constexpr std::size_t kAlignmentFloats = 64;  // 256 bytes

double quantile(std::vector<double> values, double share) {
  const auto at = static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1) + 0.5);
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[static_cast<std::size_t>(at)];
}

}  // namespace

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double Stopwatch::median_us(const std::function<void()>& work) {
  work();
  std::vector<double> times;
  const double begin = now_s();
  double last = begin;
  while (static_cast<int>(times.size()) < repetitions_ || last - begin < seconds_) {
    work();
    const double now = now_s();
    times.push_back((now - last) * 1e6);
    last = now;
  }
  const double median = quantile(times, 0.5);
  spreads_.push_back((quantile(times, 0.75) - quantile(times, 0.25)) / median);
  return median;
}

double Stopwatch::noise() const {
  return spreads_.empty() ? 0 : quantile(spreads_, 0.5);
}

RotatingMemory::RotatingMemory(std::size_t bytes) : floats_(bytes / sizeof(float)) {
  std::uint32_t state = 1;
  for (float& value : floats_) {
    state = state * 1664525U + 1013904223U;  // Numerical Recipes
    value = static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-31F;
  }
}

float* RotatingMemory::next(std::int64_t count) {
  const std::size_t wanted = (static_cast<std::size_t>(count) + kAlignmentFloats - 1) /
                             kAlignmentFloats * kAlignmentFloats;
  if (wanted + kAlignmentFloats > floats_.size()) {
    const std::size_t before = floats_.size();
    floats_.resize(2 * wanted + kAlignmentFloats);
    for (std::size_t i = before; i < floats_.size(); ++i) floats_[i] = floats_[i % before];
    at_ = 0;
  }
  const auto address = reinterpret_cast<std::uintptr_t>(floats_.data()) / sizeof(float);
  const std::size_t skew = (kAlignmentFloats - address % kAlignmentFloats) % kAlignmentFloats;
  if (skew + at_ + wanted > floats_.size()) at_ = 0;
  float* piece = floats_.data() + skew + at_;
  at_ += wanted;
  return piece;
}

}  // namespace rehearse::exec
