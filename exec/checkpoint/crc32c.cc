// SPDX-License-Identifier: Apache-2.0
#include "exec/checkpoint/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace rehearse::exec {
namespace {

constexpr std::uint32_t kPolynomial = 0x82F63B78;  // reflected
constexpr std::size_t kSlices = 8;

// tables[k][b]: what byte b does to the sum when k more bytes follow it.
constexpr std::array<std::array<std::uint32_t, 256>, kSlices> make_tables() {
  std::array<std::array<std::uint32_t, 256>, kSlices> tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t sum = byte;
    for (int bit = 0; bit < 8; ++bit) sum = (sum >> 1) ^ ((sum & 1U) != 0 ? kPolynomial : 0U);
    tables[0][byte] = sum;
  }
  for (std::size_t k = 1; k < kSlices; ++k) {
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = tables[k - 1][byte];
      tables[k][byte] = (before >> 8) ^ tables[0][before & 0xFFU];
    }
  }
  return tables;
}
constexpr auto kTables = make_tables();

std::uint64_t eight_at(const std::byte* at) {
  std::uint64_t bytes = 0;
  std::memcpy(&bytes, at, 8);
  return bytes;
}

#if defined(__x86_64__)
[[gnu::target("sse4.2")]] std::uint32_t by_instruction(std::span<const std::byte> data,
                                                       std::uint32_t before) {
  std::uint64_t sum = ~before;
  const std::byte* at = data.data();
  std::size_t left = data.size();
  for (; left >= 8; left -= 8, at += 8) sum = _mm_crc32_u64(sum, eight_at(at));
  auto last = static_cast<std::uint32_t>(sum);
  for (; left > 0; --left, ++at) last = _mm_crc32_u8(last, static_cast<std::uint8_t>(*at));
  return ~last;
}
#endif

}  // namespace

std::uint32_t crc32c_portable(std::span<const std::byte> data, std::uint32_t before) {
  std::uint32_t sum = ~before;
  const std::byte* at = data.data();
  std::size_t left = data.size();
  for (; left >= 8; left -= 8, at += 8) {
    const std::uint64_t bytes = eight_at(at) ^ sum;
    sum = 0;
    for (std::size_t k = 0; k < kSlices; ++k) {
      sum ^= kTables[kSlices - 1 - k][(bytes >> (8 * k)) & 0xFFU];
    }
  }
  for (; left > 0; --left, ++at) {
    sum = (sum >> 8) ^ kTables[0][(sum ^ static_cast<std::uint32_t>(*at)) & 0xFFU];
  }
  return ~sum;
}

std::uint32_t crc32c(std::span<const std::byte> data, std::uint32_t before) {
#if defined(__x86_64__)
  static const bool has = __builtin_cpu_supports("sse4.2") != 0;
  if (has) return by_instruction(data, before);
#endif
  return crc32c_portable(data, before);
}

}  // namespace rehearse::exec
