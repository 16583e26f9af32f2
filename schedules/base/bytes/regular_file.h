// SPDX-License-Identifier: Apache-2.0
// Regular files, opened for reading: a pipe is not waited for, a folder is named as one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "schedules/base/result.h"

namespace rehearse {

class RegularFile {
 public:
  // Errors: "FILE: why", also where it is larger than `limit` bytes.
  static Result<RegularFile> open(const std::string& path, std::int64_t limit);
  RegularFile(RegularFile&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, -1)), bytes_(other.bytes_) {}
  RegularFile& operator=(RegularFile&&) = delete;
  ~RegularFile();

  int descriptor() const { return descriptor_; }
  std::int64_t bytes() const { return bytes_; }  // as it was when it was opened

 private:
  RegularFile(int descriptor, std::int64_t bytes) : descriptor_(descriptor), bytes_(bytes) {}

  int descriptor_;
  std::int64_t bytes_;
};

struct UnmapBytes {
  std::size_t bytes = 0;
  void operator()(const std::byte* memory) const;
};

// A file through a memory map: the system reads the pages that are asked for, and may drop them
// again. REQUIRES: nobody cuts the file while it is mapped (the system ends who reads beyond).
class MappedFile {
 public:
  MappedFile() = default;  // of no bytes
  static Result<MappedFile> open(const std::string& path, std::int64_t limit);

  std::span<const std::byte> bytes() const { return {memory_.get(), memory_.get_deleter().bytes}; }
  // Pages that were read leave this process's memory; they are read again if need be.
  void forget() const;

 private:
  std::unique_ptr<const std::byte[], UnmapBytes> memory_;
};

}  // namespace rehearse
