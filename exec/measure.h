// A stopwatch for kernels: repeats a piece of work, takes the median, and notes how much the
// repetitions differ. Memory whose contents rotate, so that what a step reads cold is cold here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace rehearse::exec {

double now_s();  // of the steady clock

class Stopwatch {
 public:
  // At least `repetitions` times, and `seconds` in all, after one time that does not count.
  Stopwatch(int repetitions, double seconds) : repetitions_(repetitions), seconds_(seconds) {}
  double median_us(const std::function<void()>& work);
  // Of everything measured so far: median over the points of (3rd - 1st quartile) / median.
  double noise() const;

 private:
  int repetitions_;
  double seconds_;
  std::vector<double> spreads_;
};

// Floats in (-1, 1), handed out piece after piece and from the beginning again.
class RotatingMemory {
 public:
  explicit RotatingMemory(std::size_t bytes);
  // `count` floats, 256-byte aligned; more than there are in all enlarge the memory (before use).
  float* next(std::int64_t count);

 private:
  std::vector<float> floats_;
  std::size_t at_ = 0;
};

}  // namespace rehearse::exec
