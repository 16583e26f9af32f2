// SPDX-License-Identifier: Apache-2.0
#include "exec/calibrate/measure.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>

namespace rehearse::exec {
namespace {

constexpr std::int64_t kAlignmentFloats = 64;  // 256 bytes
constexpr std::int64_t kPeriod = 1 << 20;      // floats after which random values repeat

// On a device an op's calls last about so long, and so many calls at most are issued in advance.
constexpr double kIntervalUs = 60;
constexpr int kMostCalls = 64;
constexpr int kClears = 4;  // of what keeps it busy: half a millisecond on an H200

std::int64_t aligned_floats(std::int64_t count) {
  return (count + kAlignmentFloats - 1) / kAlignmentFloats * kAlignmentFloats;
}

}  // namespace

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double quantile(std::vector<double> values, double share) {
  const auto at = static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1) + 0.5);
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[static_cast<std::size_t>(at)];
}

double scatter(const std::vector<double>& times) {
  return times.empty() ? 0 : quantile(times, 0.9) / quantile(times, 0.1) - 1;
}

double Stopwatch::median_us(const std::function<void()>& work) {
  const std::vector<double> times = device_.asynchronous() ? device_times(work) : host_times(work);
  if (!error_.empty()) return 1;
  const double median = quantile(times, 0.5);
  spreads_.push_back((quantile(times, 0.75) - quantile(times, 0.25)) / median);
  return median;
}

std::vector<double> Stopwatch::host_times(const std::function<void()>& work) const {
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
  return times;
}

std::vector<double> Stopwatch::device_times(const std::function<void()>& work) {
  step(1, 1, work);  // takes its scratch, chooses its algorithm
  const std::vector<double> first = step(1, 1, work);
  if (!error_.empty()) return {};
  const double us = std::max(first.front(), 0.1);
  const int most = std::max(1, kMostCalls / repetitions_);
  const int calls = std::clamp(static_cast<int>(kIntervalUs / us), 1, most);
  const int ops = std::clamp(static_cast<int>(seconds_ * 1e6 / (us * calls)), repetitions_,
                             std::max(repetitions_, kMostCalls / calls));
  return step(ops, calls, work);
}

std::vector<double> Stopwatch::step(int ops, int calls, const std::function<void()>& work) {
  std::vector<double> times(static_cast<std::size_t>(ops));
  if (!error_.empty()) return times;
  device_.begin_step();
  for (int k = 0; k < kClears; ++k) device_.clear(kMeasured, busy_, busy_bytes_);
  for (std::int32_t op = 0; op < ops; ++op) {
    device_.begin(kMeasured, {op}, {});
    for (int call = 0; call < calls; ++call) work();
    device_.end(kMeasured, {op});
  }
  if (const Result<> ended = device_.end_step(); !ended) {
    fail(ended.error().message);
    return times;
  }
  for (std::int32_t op = 0; op < ops; ++op) {
    Nanoseconds start, end;
    device_.times(kMeasured.rank, {op}, &start, &end);
    // A double's clock may stand still.
    times[static_cast<std::size_t>(op)] =
        1e-3 * static_cast<double>(std::max<std::int64_t>(end.value - start.value, 1)) / calls;
  }
  return times;
}

double Stopwatch::noise() const {
  return spreads_.empty() ? 0 : quantile(spreads_, 0.5);
}

RotatingMemory::RotatingMemory(Device& device, std::int64_t bytes) : device_(device) {
  take(bytes / 4);
}

void RotatingMemory::take(std::int64_t floats) {
  static const std::vector<std::uint32_t> random = [] {
    std::vector<std::uint32_t> words(kPeriod);
    std::uint32_t state = 1;
    const auto half = [&state] {
      state = state * 1664525U + 1013904223U;  // Numerical Recipes
      return std::bit_cast<std::uint32_t>(static_cast<float>(static_cast<std::int32_t>(state)) *
                                          0x1p-31F) >>
             16;
    };
    for (std::uint32_t& word : words) {
      const std::uint32_t high = half();
      word = high << 16 | half();
    }
    return words;
  }();
  const Result<std::byte*> memory = device_.allocate(0, 4 * floats);
  at_ = 0;
  floats_ = memory ? floats : 0;
  data_ = memory ? reinterpret_cast<float*>(memory.value()) : nullptr;
  for (std::int64_t i = 0; i < floats_; i += kPeriod) {
    device_.write(reinterpret_cast<std::byte*>(data_ + i), random.data(),
                  4 * std::min(kPeriod, floats_ - i));
  }
}

bool RotatingMemory::holds(std::int64_t count) {
  const std::int64_t wanted = aligned_floats(count);
  if (wanted > floats_) take(2 * wanted);
  return wanted <= floats_;
}

float* RotatingMemory::next(std::int64_t count) {
  const std::int64_t wanted = aligned_floats(count);
  if (!holds(count)) return nullptr;
  if (at_ + wanted > floats_) at_ = 0;
  float* piece = data_ + at_;
  at_ += wanted;
  return piece;
}

}  // namespace rehearse::exec
