// SPDX-License-Identifier: Apache-2.0
// Bytes of the store's messages: integers little-endian, strings with their length before them.
//
// Deliberately small: no schema, no versions of fields; both ends hold the same binary, which they
// check when they meet.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace rehearse::exec {

class WireWriter {
 public:
  template <class T>
  WireWriter& number(T value) {
    auto bits = static_cast<std::uint64_t>(value);
    for (std::size_t i = 0; i < sizeof(T); ++i, bits >>= 8)
      bytes_ += static_cast<char>(bits & 0xff);
    return *this;
  }
  WireWriter& text(std::string_view value) {
    number(static_cast<std::uint32_t>(value.size()));
    bytes_ += value;
    return *this;
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Reads what WireWriter wrote. Bytes that end too early give zeros and `good()` false, never more.
class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : bytes_(bytes) {}
  template <class T>
  T number() {
    if (bytes_.size() < sizeof(T)) {
      good_ = false;
      return T{};
    }
    std::uint64_t bits = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      bits |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes_[i])) << (8 * i);
    }
    bytes_.remove_prefix(sizeof(T));
    return static_cast<T>(bits);
  }
  std::string text() {
    const auto size = number<std::uint32_t>();
    if (bytes_.size() < size) {
      good_ = false;
      return {};
    }
    std::string value(bytes_.substr(0, size));
    bytes_.remove_prefix(size);
    return value;
  }
  bool good() const { return good_; }
  bool done() const { return good_ && bytes_.empty(); }

 private:
  std::string_view bytes_;
  bool good_ = true;
};

}  // namespace rehearse::exec
