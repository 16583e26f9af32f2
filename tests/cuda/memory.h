// SPDX-License-Identifier: Apache-2.0
// A test's arrays on the device, and the comparison with the CPU's reference.
//
// Memory::run uploads the arrays afresh for every pass, launches, expects equal bits from all
// passes, and that nothing was written beside the arrays.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "exec/backend/element.h"
#include "exec/cuda/calls/kernels.h"
#include "tests/cuda/device.h"

namespace rehearse::exec::cuda::testing {

// Of a type of 16 bits.
inline std::uint16_t half_bits(float value, Type type) {
  if (type == Type::Float16) return Float16(value).bits;
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<std::uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}
inline float half_value(std::uint16_t half, Type type) {
  if (type == Type::Float16) {
    Float16 number;
    number.bits = half;
    return number;
  }
  const std::uint32_t bits = static_cast<std::uint32_t>(half) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// What an array of `type` holds when `values` are put into it.
inline std::vector<float> rounded(std::vector<float> values, Type type) {
  if (type != Type::Float32) {
    for (float& value : values) value = half_value(half_bits(value, type), type);
  }
  return values;
}

inline std::vector<float> random_values(std::int64_t count, unsigned seed, float spread = 1.0F) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, spread);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

class Array {
 public:
  Array(Type type, std::vector<std::byte> bytes, std::size_t shift)
      : type_(type), initial_(std::move(bytes)), shift_(shift) {}

  template <class T = void>
  T* at() const {
    return reinterpret_cast<T*>(static_cast<std::byte*>(memory_) + kGuard + shift_);
  }
  // After the run.
  std::vector<float> values() const {
    std::vector<float> out(final_.size() / static_cast<std::size_t>(bytes_of(type_)));
    for (std::size_t k = 0; k < out.size(); ++k) {
      if (type_ != Type::Float32) {
        std::uint16_t half;
        std::memcpy(&half, final_.data() + 2 * k, 2);
        out[k] = half_value(half, type_);
      } else {
        std::memcpy(&out[k], final_.data() + 4 * k, 4);
      }
    }
    return out;
  }
  template <class T>
  std::vector<T> as() const {
    std::vector<T> out(final_.size() / sizeof(T));
    std::memcpy(out.data(), final_.data(), out.size() * sizeof(T));
    return out;
  }

 private:
  friend class Memory;
  static constexpr std::size_t kGuard = 256;
  Type type_;
  std::vector<std::byte> initial_, final_;
  std::size_t shift_;
  bool result_ = true;  // the same in every pass
  void* memory_ = nullptr;
};

class Memory {
 public:
  explicit Memory(Type type) : type_(type) {}
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // `shift`: elements by which the array misses an aligned address.
  Array& floats(const std::vector<float>& values, std::size_t shift = 0) {
    return add(Type::Float32, values.data(), values.size() * 4, shift * 4);
  }
  Array& values(const std::vector<float>& values, std::size_t shift = 0) {  // of the test's type
    if (type_ == Type::Float32) return floats(values, shift);
    std::vector<std::uint16_t> halves;
    for (const float value : values) halves.push_back(half_bits(value, type_));
    return add(type_, halves.data(), halves.size() * 2, shift * 2);
  }
  template <class T>
  Array& raw(const std::vector<T>& values) {
    return add(Type::Float32, values.data(), values.size() * sizeof(T), 0);
  }
  // Holds no numbers before it is written.
  Array& empty(std::int64_t count, std::size_t shift = 0) {
    return values(std::vector<float>(static_cast<std::size_t>(count), NAN), shift);
  }
  Array& empty_floats(std::int64_t count) {
    return floats(std::vector<float>(static_cast<std::size_t>(count), NAN));
  }
  // No result: a library that tries several ways at its first call leaves other numbers there.
  Array& scratch(std::int64_t bytes) {
    Array& made = raw(std::vector<std::uint8_t>(static_cast<std::size_t>(bytes), 0xFF));
    made.result_ = false;
    return made;
  }

  // launch() returns the status of its launches.
  void run(const std::function<int()>& launch) {
    constexpr std::size_t kGuard = Array::kGuard;
    for (int pass = 0; pass < 3; ++pass) {
      begin_pass(pass);
      for (Array& array : arrays_) {
        std::vector<std::byte> whole(array.initial_.size() + 2 * kGuard + array.shift_,
                                     std::byte{0x5A});
        std::copy(array.initial_.begin(), array.initial_.end(),
                  whole.begin() + static_cast<std::ptrdiff_t>(kGuard + array.shift_));
        array.memory_ = allocate(whole.size());
        ASSERT_NE(array.memory_, nullptr);
        to_device(array.memory_, whole.data(), whole.size());
      }
      ASSERT_EQ(launch(), 0);
      ASSERT_EQ(synchronise(), 0);
      for (std::size_t k = 0; k < arrays_.size(); ++k) {
        Array& array = arrays_[k];
        std::vector<std::byte> whole(array.initial_.size() + 2 * kGuard + array.shift_);
        from_device(whole.data(), array.memory_, whole.size());
        release(array.memory_);
        array.memory_ = nullptr;
        const auto begin = whole.begin() + static_cast<std::ptrdiff_t>(kGuard + array.shift_);
        const auto end = begin + static_cast<std::ptrdiff_t>(array.initial_.size());
        const auto untouched = [](std::byte b) { return b == std::byte{0x5A}; };
        EXPECT_TRUE(std::all_of(whole.begin(), begin, untouched) &&
                    std::all_of(end, whole.end(), untouched))
            << "written beside array " << k;
        const std::vector<std::byte> now(begin, end);
        if (pass > 0 && array.result_) {
          EXPECT_TRUE(now == array.final_) << "array " << k << " differs in pass " << pass;
        }
        array.final_ = now;
      }
    }
  }

 private:
  Array& add(Type type, const void* from, std::size_t bytes, std::size_t shift) {
    const auto* begin = static_cast<const std::byte*>(from);
    arrays_.emplace_back(type, std::vector<std::byte>(begin, begin + bytes), shift);
    return arrays_.back();
  }

  Type type_;
  std::deque<Array> arrays_;
};

// Largest difference as a share of the largest expected magnitude.
inline void expect_close(const std::vector<float>& actual, const std::vector<float>& expected,
                         double tolerance, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  double largest = 1e-30, distance = 0;
  std::size_t worst = 0;
  for (std::size_t k = 0; k < actual.size(); ++k) {
    largest = std::max(largest, std::fabs(static_cast<double>(expected[k])));
    const double d = std::fabs(static_cast<double>(actual[k]) - static_cast<double>(expected[k]));
    if (!(d <= distance)) {  // not a number counts
      distance = d;
      worst = k;
      if (std::isnan(d)) break;
    }
  }
  EXPECT_LE(distance / largest, tolerance)
      << what << "[" << worst << "]: " << actual[worst] << " instead of " << expected[worst];
}

// Every test of the kernels.
class KernelTest : public ::testing::TestWithParam<Type> {
 protected:
  void SetUp() override {
    const std::string reason = skip_reason();
    if (!reason.empty()) {
      std::printf("SKIPPED: %s\n", reason.c_str());
      GTEST_SKIP() << reason;
    }
  }
  Type type() const { return GetParam(); }
  // The forms of attention that run here.
  std::vector<AttentionEngine> engines() const {
    if (type() == Type::Float32 || !has_wgmma()) return {AttentionEngine::MmaSync};
    return {AttentionEngine::MmaSync, AttentionEngine::Wgmma};
  }
  static std::string name_of(AttentionEngine engine) {
    return engine == AttentionEngine::MmaSync ? "mma.sync" : "wgmma";
  }
  // One rounding of the result to the type, beside fp32 arithmetic: 2^-9 of a number in bf16, 2^-12
  // in fp16.
  double tolerance() const { return bound(3e-6, 4e-3); }
  // So far may results be apart in fp32 and in bf16, in fp16 an eighth of that.
  double bound(double fp32, double bf16) const {
    return type() == Type::Float32 ? fp32 : type() == Type::BFloat16 ? bf16 : bf16 / 8;
  }
};
inline std::string type_name(const ::testing::TestParamInfo<Type>& type) {
  return type.param == Type::Float32 ? "fp32" : type.param == Type::BFloat16 ? "bf16" : "fp16";
}
#define REHEARSE_TYPES(suite, ...) \
  INSTANTIATE_TEST_SUITE_P(, suite, ::testing::Values(__VA_ARGS__), type_name)
#define REHEARSE_ALL_TYPES(suite) \
  REHEARSE_TYPES(suite, Type::Float32, Type::BFloat16, Type::Float16)
// What takes long: fp16 differs from bf16 in its numbers alone, which a smaller test holds.
#define REHEARSE_WIDER_TYPES(suite) REHEARSE_TYPES(suite, Type::Float32, Type::BFloat16)

}  // namespace rehearse::exec::cuda::testing
