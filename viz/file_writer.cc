#include "viz/file_writer.h"

#include <unistd.h>

#include <utility>

namespace rehearse::viz {

FileWriter::FileWriter(const std::string& path)
    : path_(path),
      temporary_(path + ".tmp" + std::to_string(getpid())),
      file_(std::fopen(temporary_.c_str(), "wb")),
      good_(file_ != nullptr) {
  buffer_.reserve(kFlushBytes + 4096);
}

FileWriter::~FileWriter() {
  if (file_ == nullptr) return;
  std::fclose(file_);
  std::remove(temporary_.c_str());
}

void FileWriter::flush() {
  good_ = good_ && std::fwrite(buffer_.data(), 1, buffer_.size(), file_) == buffer_.size();
  buffer_.clear();
}

Result<> FileWriter::finish() {
  flush();
  if (file_ != nullptr) good_ = std::fclose(std::exchange(file_, nullptr)) == 0 && good_;
  if (good_ && std::rename(temporary_.c_str(), path_.c_str()) == 0) return {};
  std::remove(temporary_.c_str());
  return Error{path_ + ": cannot write"};
}

}  // namespace rehearse::viz
