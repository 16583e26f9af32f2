// SPDX-License-Identifier: Apache-2.0
#include "exec/step/offload_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <utility>

namespace rehearse::exec {
namespace {

// A directory that is none, or may not be written, is who named it to blame for; all else is the
// machine's.
Error no_file(const std::string& directory, std::int64_t bytes, int why) {
  return {.message = "plan.offload_to: nvme: " + directory + ": " + std::strerror(why) + " (" +
                     std::to_string(bytes) + " bytes for a rank; --offload-dir)",
          .machine = why != ENOENT && why != ENOTDIR && why != EACCES};
}

}  // namespace

OffloadFile::OffloadFile(OffloadFile&& other) noexcept {
  *this = std::move(other);
}
OffloadFile& OffloadFile::operator=(OffloadFile&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  error_ = other.error_.exchange(error_);
  return *this;
}
OffloadFile::~OffloadFile() {
  if (data_ != nullptr) munmap(data_, static_cast<std::size_t>(bytes_));
  if (file_ >= 0) close(file_);
}

Result<OffloadFile> OffloadFile::open(std::string directory, std::int64_t bytes) {
  if (directory.empty()) {
    const char* temporary = std::getenv("TMPDIR");
    directory = temporary != nullptr && *temporary != '\0' ? temporary : "/tmp";
  }
  struct statvfs drive {};
  if (statvfs(directory.c_str(), &drive) != 0) return no_file(directory, bytes, errno);
  // Asked first: who takes all that is left would leave others none until it fails.
  if (static_cast<double>(drive.f_bavail) * static_cast<double>(drive.f_frsize) <
      static_cast<double>(bytes)) {
    return no_file(directory, bytes, ENOSPC);
  }
  OffloadFile made;
  made.file_ = ::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (made.file_ < 0 && (errno == EOPNOTSUPP || errno == EISDIR)) {  // a file system without them
    std::string name = directory + "/rehearse-offload-XXXXXX";
    made.file_ = mkostemp(name.data(), O_CLOEXEC);
    if (made.file_ >= 0 && unlink(name.c_str()) != 0) return no_file(directory, bytes, errno);
  }
  if (made.file_ < 0) return no_file(directory, bytes, errno);
  int why = EINTR;
  while (why == EINTR) why = posix_fallocate(made.file_, 0, bytes);
  if (why != 0) return no_file(directory, bytes, why);
  void* mapped = mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED,
                      made.file_, 0);
  if (mapped == MAP_FAILED) return no_file(directory, bytes, errno);
  made.data_ = static_cast<std::byte*>(mapped);
  made.bytes_ = bytes;
  return made;
}

void OffloadFile::release(const std::byte* begin, std::int64_t bytes) {
  const std::less<> before;
  if (data_ == nullptr || before(begin, data_) || !before(begin, data_ + bytes_)) return;
  const std::int64_t page = sysconf(_SC_PAGESIZE);
  const std::int64_t first = (begin - data_) / page * page;
  const std::int64_t size = std::min(begin - data_ + bytes, bytes_) - first;
  // Forgotten first: of a page that is still mapped the writing makes every core forget it, one
  // page and one interrupt at a time.
  madvise(data_ + first, static_cast<std::size_t>(size), MADV_DONTNEED);
  if (sync_file_range(file_, first, size, SYNC_FILE_RANGE_WRITE) != 0) error_ = errno;
}

// With the wait for a range the system tells what any page of the file met on its way out.
Result<> OffloadFile::failure() {
  if (data_ == nullptr) return {};
  int why = error_.exchange(0);
  if (why == 0 && sync_file_range(file_, 0, 1, SYNC_FILE_RANGE_WAIT_BEFORE) != 0) why = errno;
  if (why == 0 || why == ENOSYS) return {};  // a system without the call
  return Error{.message = std::string("plan.offload_to: nvme: the drives did not take what was "
                                      "written: ") +
                          std::strerror(why),
               .machine = true};
}

}  // namespace rehearse::exec
