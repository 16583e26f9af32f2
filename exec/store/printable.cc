// SPDX-License-Identifier: Apache-2.0
#include "exec/store/printable.h"

#include <cstdint>

namespace rehearse::exec {
namespace {

// The length of the UTF-8 character at the front of `text` and its code point; 0: there is none.
std::size_t character(std::string_view text, std::uint32_t& code) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  const std::size_t size = first < 0x80           ? 1
                           : (first >> 5) == 0x6  ? 2
                           : (first >> 4) == 0xe  ? 3
                           : (first >> 3) == 0x1e ? 4
                                                  : 0;
  if (size == 0 || text.size() < size) return 0;
  code = size == 1 ? first : first & (0x7fu >> size);
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0u) != 0x80u) return 0;
    code = code << 6 | (byte(i) & 0x3fu);
  }
  constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};  // shorter forms are not UTF-8
  if (code < kLeast[size] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return 0;
  return size;
}

bool harmless(std::uint32_t code) {
  if (code < 0x20 || (code >= 0x7f && code < 0xa0)) return false;
  if (code == 0x2028 || code == 0x2029) return false;                   // separators of lines
  if (code == 0x200e || code == 0x200f || code == 0x61c) return false;  // direction
  return !(code >= 0x202a && code <= 0x202e) && !(code >= 0x2066 && code <= 0x2069);
}

}  // namespace

std::string printable(std::string_view text, std::size_t largest) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  while (!text.empty()) {
    if (out.size() >= largest) return out + "...";
    std::uint32_t code = 0;
    const std::size_t size = character(text, code);
    const std::size_t taken = size == 0 ? 1 : size;
    if (size > 0 && harmless(code)) {
      out += text.substr(0, taken);
    } else {
      for (const char c : text.substr(0, taken)) {
        const auto byte = static_cast<unsigned char>(c);
        out += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
      }
    }
    text.remove_prefix(taken);
  }
  return out;
}

}  // namespace rehearse::exec
