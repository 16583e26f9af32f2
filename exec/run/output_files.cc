// SPDX-License-Identifier: Apache-2.0
#include "exec/run/output_files.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

namespace rehearse::exec {
namespace {
namespace fs = std::filesystem;

bool is_stream(const std::string& path) {
  std::error_code none;
  return fs::is_character_file(path, none) || fs::is_fifo(path, none);
}

}  // namespace

Result<> check_output(const std::string& path) {
  if (path.empty()) return {};
  std::error_code none;
  if (fs::is_directory(path, none)) return Error{path + ": cannot write: is a directory"};
  if (fs::exists(path, none) && !fs::is_regular_file(path, none)) return {};  // a pipe, a device
  const std::string probe = path + ".tmp" + std::to_string(getpid());
  std::FILE* file = std::fopen(probe.c_str(), "wb");
  if (file == nullptr) return Error{path + ": cannot write: " + std::strerror(errno)};
  std::fclose(file);
  std::remove(probe.c_str());
  return {};
}

Result<> Metrics::open(const std::string& path) {
  if (path.empty()) return {};
  const bool stream = is_stream(path);
  if (!stream) {
    const Result<> good = check_output(path);
    if (!good) return good;
  }
  path_ = path;
  partial_ = stream ? path : path + ".partial";
  out_.open(partial_, std::ios::binary | std::ios::trunc);
  if (!out_) {
    const Error error{path + ": cannot write: " + std::strerror(errno)};
    path_.clear();
    return error;
  }
  return {};
}

void Metrics::add(const std::string& line) {
  if (path_.empty() || error_ != 0) return;
  errno = 0;
  out_ << line << std::flush;
  if (!out_) error_ = errno != 0 ? errno : EIO;
}

Result<> Metrics::finish() {
  if (path_.empty()) return {};
  const std::string path = std::exchange(path_, {});
  const bool stream = partial_ == path;
  errno = 0;
  out_.close();
  if (!out_ && error_ == 0) error_ = errno != 0 ? errno : EIO;
  if (!stream && error_ == 0 && std::rename(partial_.c_str(), path.c_str()) != 0) error_ = errno;
  if (error_ == 0) return {};
  if (!stream) std::remove(partial_.c_str());
  return Error{path + ": cannot write: " + std::strerror(error_)};
}

}  // namespace rehearse::exec
