// SPDX-License-Identifier: Apache-2.0
#include "exec/status/status.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <memory>
#include <utility>

namespace rehearse::exec {
namespace {

Error failed(const char* call) {
  return {std::string("status board: ") + call + ": " + std::strerror(errno)};
}

Result<std::span<RankStatus>> map(int descriptor, std::int32_t ranks) {
  const auto count = static_cast<std::size_t>(ranks);
  void* memory =
      mmap(nullptr, count * sizeof(RankStatus), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (memory == MAP_FAILED) return failed("mmap");
  return std::span{static_cast<RankStatus*>(memory), count};
}

}  // namespace

Result<StatusBoard> StatusBoard::create(std::int32_t ranks) {
  const int descriptor = memfd_create("rehearse-status", 0);
  if (descriptor < 0) return failed("memfd_create");
  StatusBoard board(descriptor, {});
  const auto bytes = static_cast<std::size_t>(ranks) * sizeof(RankStatus);
  if (ftruncate(descriptor, static_cast<off_t>(bytes)) != 0) return failed("ftruncate");
  const Result<std::span<RankStatus>> mapped = map(descriptor, ranks);
  if (!mapped) return mapped.error();
  board.ranks_ = mapped.value();
  std::uninitialized_default_construct(board.ranks_.begin(), board.ranks_.end());
  return board;
}

Result<StatusBoard> StatusBoard::attach(int descriptor, std::int32_t ranks) {
  struct stat info {};
  const auto bytes = static_cast<std::size_t>(ranks) * sizeof(RankStatus);
  if (fstat(descriptor, &info) != 0) return failed("fstat");
  if (info.st_size != static_cast<off_t>(bytes)) {
    return Error{"status board: it is for another number of ranks"};
  }
  const Result<std::span<RankStatus>> mapped = map(descriptor, ranks);
  if (!mapped) return mapped.error();
  return StatusBoard(descriptor, mapped.value());
}

StatusBoard::StatusBoard(StatusBoard&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), ranks_(std::exchange(other.ranks_, {})) {}

StatusBoard& StatusBoard::operator=(StatusBoard&& other) noexcept {
  if (this != &other) {
    release();
    descriptor_ = std::exchange(other.descriptor_, -1);
    ranks_ = std::exchange(other.ranks_, {});
  }
  return *this;
}

StatusBoard::~StatusBoard() {
  release();
}

void StatusBoard::release() {
  if (!ranks_.empty()) munmap(ranks_.data(), ranks_.size_bytes());
  if (descriptor_ >= 0) close(descriptor_);
}

std::int64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

}  // namespace rehearse::exec
