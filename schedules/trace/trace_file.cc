// SPDX-License-Identifier: Apache-2.0
// Traces in files: mapped for reading, so that a large one is there at once.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "schedules/base/bytes/whole_file.h"
#include "schedules/trace/trace_bytes.h"
#include "schedules/trace/trace_sections.h"

namespace rehearse {

MappedTrace::~MappedTrace() {
  if (data_ != nullptr) munmap(const_cast<void*>(data_), size_);
}

namespace {

Result<MappedTrace> map_file(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return Error{path + ": cannot read: " + std::strerror(errno)};
  struct stat info {};
  if (fstat(file, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(file);
    return Error{path + ": not a file"};
  }
  const auto size = static_cast<std::size_t>(info.st_size);
  if (size < sizeof(trace_file::Header)) {
    close(file);
    return Error{path + ": not a trace file"};
  }
  const void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, file, 0);
  close(file);
  if (data == MAP_FAILED) return Error{path + ": cannot map: " + std::strerror(errno)};
  return MappedTrace(data, size);
}

}  // namespace

Result<> write_trace(const Trace& trace, const std::string& path) {
  WholeFile file(path);
  put_trace(trace, [&](const void* data, std::size_t size) { file.write(data, size); });
  return file.finish();
}

Result<Trace> read_trace(const std::string& path) {
  Result<MappedTrace> mapped = map_file(path);
  if (!mapped) return mapped.error();
  return trace_of(std::move(mapped).value(), path);
}

bool is_trace_file(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return false;  // a pipe would be waited for
  std::array<char, trace_file::kMagic.size()> magic{};
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) return false;
  const bool whole = std::fread(magic.data(), 1, magic.size(), file) == magic.size();
  std::fclose(file);
  return whole && magic == trace_file::kMagic;
}

}  // namespace rehearse
