// SPDX-License-Identifier: Apache-2.0
// Text and numbers into a file that appears whole or not at all.
#pragma once

#include <array>
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>

#include "schedules/base/bytes/whole_file.h"

namespace rehearse::viz {

class FileWriter {
 public:
  explicit FileWriter(const std::string& path) : file_(path) {
    buffer_.reserve(kFlushBytes + 4096);
  }

  FileWriter& operator<<(std::string_view text) {
    buffer_ += text;
    if (buffer_.size() >= kFlushBytes) flush();
    return *this;
  }
  FileWriter& operator<<(std::int64_t number) {
    std::array<char, 24> digits;
    return *this << std::string_view(
               digits.data(),
               static_cast<std::size_t>(
                   std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr -
                   digits.data()));
  }
  FileWriter& operator<<(std::int32_t number) { return *this << std::int64_t{number}; }
  // Puts the file in its place. Error: "FILE: cannot write: why".
  Result<> finish() {
    flush();
    return file_.finish();
  }

 private:
  static constexpr std::size_t kFlushBytes = 1 << 20;
  void flush() {
    file_.write(buffer_);
    buffer_.clear();
  }

  WholeFile file_;
  std::string buffer_;
};

}  // namespace rehearse::viz
