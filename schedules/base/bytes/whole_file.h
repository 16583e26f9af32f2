// SPDX-License-Identifier: Apache-2.0
// A file that appears whole or not at all: written beside its place, renamed at the end. What is no
// regular file (a pipe, a terminal, /dev/null) is written into as it stands; a link stays, and what
// it names is replaced.
#pragma once

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

#include "schedules/base/result.h"

namespace rehearse {

class WholeFile {
 public:
  explicit WholeFile(const std::string& path);
  WholeFile(const WholeFile&) = delete;
  WholeFile& operator=(const WholeFile&) = delete;
  ~WholeFile();  // without finish(): leaves nothing behind

  // After the first failure nothing more is written; finish() says why.
  void write(const void* data, std::size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  // Puts the file in its place. Error: "FILE: cannot write: why", the machine's (exit 3) where it
  // is a disk that is full or fails, the user's where the place is none to write to.
  Result<> finish();

 private:
  std::string path_, place_, temporary_;  // temporary_ = place_: written as it stands
  int error_ = 0;                         // of the first failure, as errno has it
  std::FILE* file_ = nullptr;
};

// All of it at once.
Result<> write_whole(const std::string& path, std::string_view text);

}  // namespace rehearse
