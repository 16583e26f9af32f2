// SPDX-License-Identifier: Apache-2.0
#include "schedules/base/bytes/regular_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "schedules/base/utf8.h"

namespace rehearse {

Result<RegularFile> RegularFile::open(const std::string& path, std::int64_t limit) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  const int problem = file < 0 ? errno : 0;
  struct stat about {};
  const bool known = file >= 0 ? fstat(file, &about) == 0 : ::stat(path.c_str(), &about) == 0;
  const int unknown = known ? 0 : errno;
  RegularFile opened(file, about.st_size);
  const auto fail = [&](const std::string& what) {
    return Error{printable(path, 4096) + ": " + what};
  };
  if (unknown == ENOENT || unknown == ENOTDIR || unknown == ENAMETOOLONG) {
    return fail("no such file");
  }
  if (!known) return fail(std::strerror(unknown));
  if (S_ISDIR(about.st_mode)) return fail("is a directory, not a file");
  if (!S_ISREG(about.st_mode)) return fail("is not a regular file");
  if (file < 0) return fail(std::string("cannot be read: ") + std::strerror(problem));
  if (about.st_size > limit) return fail("larger than " + std::to_string(limit) + " bytes");
  return opened;
}

RegularFile::~RegularFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<MappedFile> MappedFile::open(const std::string& path, std::int64_t limit) {
  const Result<RegularFile> file = RegularFile::open(path, limit);
  if (!file) return file.error();
  MappedFile made;
  const auto bytes = static_cast<std::size_t>(file.value().bytes());
  if (bytes == 0) return made;  // nothing can be mapped of it
  void* mapped = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file.value().descriptor(), 0);
  if (mapped == MAP_FAILED) {
    return Error{printable(path, 4096) + ": cannot be read: " + std::strerror(errno)};
  }
  made.memory_ = {static_cast<const std::byte*>(mapped), UnmapBytes{bytes}};
  return made;
}

void UnmapBytes::operator()(const std::byte* memory) const {
  munmap(const_cast<std::byte*>(memory), bytes);
}

void MappedFile::forget() const {
  if (memory_ == nullptr) return;
  madvise(const_cast<std::byte*>(memory_.get()), bytes().size(), MADV_DONTNEED);
}

}  // namespace rehearse
