// SPDX-License-Identifier: Apache-2.0
#include "schedules/base/utf8.h"

#include <cstdint>
#include <cstring>

namespace rehearse {

std::size_t utf8_length(std::string_view text) {
  if (text.empty()) return 0;
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  const std::size_t length = first < 0x80                    ? 1
                             : first >= 0xC2 && first < 0xE0 ? 2
                             : first >= 0xE0 && first < 0xF0 ? 3
                             : first >= 0xF0 && first < 0xF5 ? 4
                                                             : 0;
  if (length == 0 || length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0U) != 0x80) return 0;
  }
  const bool bad = (first == 0xE0 && byte(1) < 0xA0) || (first == 0xED && byte(1) >= 0xA0) ||
                   (first == 0xF0 && byte(1) < 0x90) || (first == 0xF4 && byte(1) >= 0x90);
  return bad ? 0 : length;
}

std::size_t utf8_prefix(std::string_view text) {
  constexpr std::uint64_t kAbove = 0x8080808080808080;  // no bit of these in eight of ASCII
  std::size_t at = 0;
  while (at < text.size()) {
    std::uint64_t eight = kAbove;
    if (text.size() - at >= sizeof eight) std::memcpy(&eight, text.data() + at, sizeof eight);
    const std::size_t length = (eight & kAbove) == 0 ? sizeof eight : utf8_length(text.substr(at));
    if (length == 0) break;
    at += length;
  }
  return at;
}

std::string printable(std::string_view text, std::size_t limit) {
  std::string out;
  for (const char c : text) {
    if (out.size() >= limit) return out + "...";
    out += c >= ' ' && c != 0x7f ? c : '?';
  }
  return out;
}

}  // namespace rehearse
