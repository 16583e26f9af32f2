// A file that appears whole or not at all: written beside its place, renamed at the end.
#pragma once

#include <array>
#include <charconv>
#include <cstdio>
#include <string>
#include <string_view>

#include "schedules/result.h"

namespace rehearse::viz {

class FileWriter {
 public:
  explicit FileWriter(const std::string& path);
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;
  ~FileWriter();  // without finish(): leaves nothing behind

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
  // Puts the file in its place. Error: "FILE: cannot write".
  Result<> finish();

 private:
  static constexpr std::size_t kFlushBytes = 1 << 20;
  void flush();

  std::string path_, temporary_, buffer_;
  std::FILE* file_;
  bool good_;
};

}  // namespace rehearse::viz
