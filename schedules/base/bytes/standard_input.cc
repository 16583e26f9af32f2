// SPDX-License-Identifier: Apache-2.0
#include "schedules/base/bytes/standard_input.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace rehearse {
namespace {

constexpr std::size_t kMost = 64 << 20;

thread_local const Result<std::string>* given = nullptr;  // of AsStandardInput

Result<std::string> read_all() {
  std::string text;
  std::array<char, 1 << 16> part;
  for (;;) {
    const ssize_t got = ::read(STDIN_FILENO, part.data(), part.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      return Error{std::string("standard input: cannot be read: ") + std::strerror(errno)};
    if (got == 0) return text;
    text.append(part.data(), static_cast<std::size_t>(got));
    if (text.size() > kMost) return Error{"standard input: larger than 64 MiB"};
  }
}

}  // namespace

const Result<std::string>& standard_input() {
  if (given != nullptr) return *given;
  static const Result<std::string> text = read_all();
  return text;
}

AsStandardInput::AsStandardInput(std::string text) : text_(std::move(text)), before_(given) {
  given = &text_;
}

AsStandardInput::~AsStandardInput() {
  given = before_;
}

}  // namespace rehearse
