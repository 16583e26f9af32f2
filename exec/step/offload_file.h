// SPDX-License-Identifier: Apache-2.0
// What a rank keeps on drives (plan.offload_to nvme): an arena in a file without a name, mapped
// into memory, so that whatever reads an address reads it. It goes with the process, however that
// ends.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "schedules/base/result.h"

namespace rehearse::exec {

class OffloadFile {
 public:
  OffloadFile() = default;
  OffloadFile(OffloadFile&& other) noexcept;
  OffloadFile& operator=(OffloadFile&& other) noexcept;
  ~OffloadFile();
  // REQUIRES: bytes > 0. Zeroed, with its room on the drives taken, so that no write fails for want
  // of it where the file system writes in place. `directory` empty: that of temporary files, which
  // may be memory. Errors: no room, or no such directory, in one line.
  static Result<OffloadFile> open(std::string directory, std::int64_t bytes);

  std::byte* data() const { return data_; }
  // The bytes need not stay in memory: begins to write them, and forgets the pages. What lies
  // elsewhere is left alone. From any thread.
  void release(const std::byte* begin, std::int64_t bytes);
  // What the drives could not write since the last call, as far as they have said so; waits for no
  // more than one page. A page that they cannot read back is seen as it is read: SIGBUS ends the
  // process, with no line of ours.
  Result<> failure();

 private:
  int file_ = -1;
  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0;
  std::atomic<int> error_{0};  // of a release
};

}  // namespace rehearse::exec
