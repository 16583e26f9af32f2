// SPDX-License-Identifier: Apache-2.0
#include "schedules/base/bytes/whole_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

namespace rehearse {
namespace {
namespace fs = std::filesystem;

// Where a file of this name lies: a link is followed.
std::string place_of(const std::string& path) {
  std::error_code none;
  if (!fs::is_symlink(path, none)) return path;
  const fs::path place = fs::canonical(path, none);
  return none ? path : place.string();
}

bool is_stream(const std::string& path) {
  std::error_code none;
  return fs::exists(path, none) && !fs::is_regular_file(path, none) &&
         !fs::is_directory(path, none);
}

bool is_of_disk(int error) {
  return error == ENOSPC || error == EDQUOT || error == EFBIG || error == EIO;
}

}  // namespace

WholeFile::WholeFile(const std::string& path)
    : path_(path),
      place_(is_stream(path) ? path : place_of(path)),
      temporary_(is_stream(path) ? path : place_ + ".tmp" + std::to_string(getpid())),
      file_(std::fopen(temporary_.c_str(), "wb")) {
  if (file_ == nullptr) error_ = errno;
}

WholeFile::~WholeFile() {
  if (file_ == nullptr) return;
  std::fclose(file_);
  if (temporary_ != place_) std::remove(temporary_.c_str());
}

void WholeFile::write(const void* data, std::size_t bytes) {
  if (error_ != 0 || bytes == 0) return;
  if (std::fwrite(data, 1, bytes, file_) != bytes) error_ = errno;
}

Result<> WholeFile::finish() {
  const bool renames = file_ != nullptr && temporary_ != place_;
  if (file_ != nullptr && std::fclose(std::exchange(file_, nullptr)) != 0 && error_ == 0) {
    error_ = errno;
  }
  if (renames && error_ == 0 && std::rename(temporary_.c_str(), place_.c_str()) != 0) {
    error_ = errno;
  }
  if (error_ == 0) return {};
  if (renames) std::remove(temporary_.c_str());
  return Error{.message = path_ + ": cannot write: " + std::strerror(error_),
               .machine = is_of_disk(error_)};
}

Result<> write_whole(const std::string& path, std::string_view text) {
  WholeFile file(path);
  file.write(text);
  return file.finish();
}

}  // namespace rehearse
