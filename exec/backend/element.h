// SPDX-License-Identifier: Apache-2.0
// Numbers of 16 bits as they lie in memory. Arithmetic is fp32's: a load widens, a store rounds to
// nearest, ties to even. The rules are written once, for a number and for vectors of them.
#pragma once

#include <bit>
#include <cstdint>

namespace rehearse::exec {

// Every source that is compiled for an instruction set of its own has these inside its functions:
// the linker would else mix them.
#define REHEARSE_INLINE [[gnu::always_inline]] inline

// The upper half of an fp32, of its bits or of each of a vector. What is no number stays none.
template <class Bits>
REHEARSE_INLINE Bits rounded_to_bfloat16(Bits x) {
  const Bits rounded = (x + 0x7FFFU + ((x >> 16) & 1U)) >> 16;
  const Bits none = (x >> 16) | 0x40U;
  return (x & 0x7FFFFFFFU) > 0x7F800000U ? none : rounded;
}

// binary16 (IEEE 754) of an fp32's bits: 65,520 and more are infinite, below 2^-14 numbers lie
// 2^-24 apart.
template <class Float, class Bits>
REHEARSE_INLINE Bits rounded_to_float16(Bits x) {
  const Bits size = x & 0x7FFFFFFFU;
  const Bits normal = (size + 0xFFFU + ((size >> 13) & 1U) - 0x38000000U) >> 13;
  // Beside 1/2 an fp32's last place is 2^-24: the sum rounds.
  const Bits small = std::bit_cast<Bits>(std::bit_cast<Float>(size) + 0.5F) - 0x3F000000U;
  const Bits infinite = Bits{} + 0x7C00U, none = Bits{} + 0x7E00U;
  const Bits finite = size < 0x38800000U ? small : normal;
  const Bits number = size >= 0x47800000U ? infinite : finite;
  return ((x >> 16) & 0x8000U) | (size > 0x7F800000U ? none : number);
}
// An fp32's bits of binary16's, which are below 2^16.
template <class Float, class Bits>
REHEARSE_INLINE Bits widened_from_float16(Bits x) {
  const Bits size = (x & 0x7FFFU) << 13;
  const Bits small = std::bit_cast<Bits>(
      std::bit_cast<Float>(static_cast<Bits>((x & 0x3FFU) | 0x3F000000U)) - 0.5F);
  const Bits normal = size + 0x38000000U, large = size + 0x70000000U;
  const Bits finite = size < 0x00800000U ? small : normal;
  return ((x & 0x8000U) << 16) | (size >= 0x0F800000U ? large : finite);
}

struct BFloat16 {
  BFloat16() = default;
  REHEARSE_INLINE explicit BFloat16(float x)
      : bits(static_cast<std::uint16_t>(rounded_to_bfloat16(std::bit_cast<std::uint32_t>(x)))) {}
  REHEARSE_INLINE BFloat16& operator=(float x) { return *this = BFloat16(x); }
  REHEARSE_INLINE operator float() const {  // a load
    return std::bit_cast<float>(std::uint32_t{bits} << 16);
  }
  std::uint16_t bits;
};

struct Float16 {
  Float16() = default;
  REHEARSE_INLINE explicit Float16(float x)
      : bits(static_cast<std::uint16_t>(
            rounded_to_float16<float>(std::bit_cast<std::uint32_t>(x)))) {}
  REHEARSE_INLINE Float16& operator=(float x) { return *this = Float16(x); }
  REHEARSE_INLINE operator float() const {  // a load
    return std::bit_cast<float>(widened_from_float16<float>(std::uint32_t{bits}));
  }
  std::uint16_t bits;
};

#undef REHEARSE_INLINE

}  // namespace rehearse::exec
