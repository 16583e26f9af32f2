// SPDX-License-Identifier: Apache-2.0
// A stopwatch for kernels: repeats a piece of work, takes the median, and notes how much the
// repetitions differ. Memory whose contents rotate, so that what a step reads cold is cold here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "exec/backend/device.h"

namespace rehearse::exec {

double now_s();  // of the steady clock

// On a backend that computes at once it reads the host's clock. On an asynchronous one it reads the
// device's events, around as many calls in a row as make an interval worth measuring, while the
// host is kept ahead: what a call takes in a stream that is never empty.
class Stopwatch {
 public:
  // At least `repetitions` times, and `seconds` in all, after one time that does not count.
  // REQUIRES: work is issued on lanes that are ordered after `kMeasured` and before its next op.
  Stopwatch(Device& device, int repetitions, double seconds)
      : device_(device), repetitions_(repetitions), seconds_(seconds) {}
  double median_us(const std::function<void()>& work);
  // One op of `calls` calls, `ops` times in a row: times of a call by op [us]. On an asynchronous
  // backend only, for work that other processes must do as often.
  std::vector<double> step(int ops, int calls, const std::function<void()>& work);
  // The spread of everything measured so far: median over the points of (3rd - 1st quartile) /
  // median.
  double noise() const;
  // What the device said, the first time that it failed: afterwards nothing is measured.
  const std::string& error() const { return error_; }
  void fail(const std::string& why) {
    if (error_.empty()) error_ = why;
  }

  static constexpr Lane kMeasured{0, Stream::Compute};
  // Memory to clear, for nothing: a device is busy with it while the host issues what is measured.
  void keep_busy(void* memory, std::int64_t bytes) {
    busy_ = memory;
    busy_bytes_ = bytes;
  }

 private:
  std::vector<double> host_times(const std::function<void()>& work) const;
  std::vector<double> device_times(const std::function<void()>& work);

  Device& device_;
  int repetitions_;
  double seconds_;
  void* busy_ = nullptr;
  std::int64_t busy_bytes_ = 0;
  std::vector<double> spreads_;
  std::string error_;
};

double quantile(std::vector<double> values, double share);
// How far equal measurements lie apart: the slowest over the fastest, less 1, the outer tenths left
// out. 0 where there is none.
double scatter(const std::vector<double>& times);

// Random values in (-1, 1), handed out piece after piece and from the beginning again. Their bits
// are such a value as a float and as two bf16.
class RotatingMemory {
 public:
  // Takes memory of rank 0, at least as large as said. REQUIRES: `device` outlives it.
  RotatingMemory(Device& device, std::int64_t bytes);
  // Room for `count` floats, 256-byte aligned; more than there is in all takes larger memory
  // (before use).
  float* next(std::int64_t count);
  void restart() { at_ = 0; }
  // Takes larger memory where it must; false: there is too little on the device.
  bool holds(std::int64_t count);

 private:
  void take(std::int64_t floats);

  Device& device_;
  float* data_ = nullptr;
  std::int64_t floats_ = 0, at_ = 0;
};

}  // namespace rehearse::exec
