// SPDX-License-Identifier: Apache-2.0
#include "exec/train/token_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace rehearse::exec {
namespace {

static_assert(std::endian::native == std::endian::little, "tokens are copied as they lie");

struct Format {
  std::int32_t magic, version;
  std::int64_t token_bytes;
};
constexpr std::array<Format, 2> kFormats{{{20240520, 1, 2}, {20240801, 7, 4}}};
constexpr std::int64_t kHeader = 256 * 4;                 // [B]
constexpr std::int64_t kLongest = std::int64_t{1} << 40;  // [B] of any file
constexpr std::int64_t kPiece = 1 << 22;  // [tokens] between two times of forgetting

template <class T>
std::int64_t token_at(const std::byte* tokens, std::int64_t at) {
  T token{};
  std::memcpy(&token, tokens + at * static_cast<std::int64_t>(sizeof token), sizeof token);
  return token;
}

}  // namespace

Result<TokenFile> TokenFile::open(const std::string& path) {
  Result<MappedFile> mapped = MappedFile::open(path, kLongest);
  if (!mapped) return mapped.error();
  TokenFile made;
  made.file_ = std::move(mapped).value();
  const auto bytes = static_cast<std::int64_t>(made.file_.bytes().size());
  made.size_ = bytes;
  if (!path.ends_with(".bin")) return made;
  std::array<std::int32_t, 3> header{};  // magic, version, number of tokens
  if (bytes < kHeader) return Error{path + ": too short for a token file's header"};
  std::memcpy(header.data(), made.file_.bytes().data(), sizeof header);
  const auto* format = std::ranges::find_if(kFormats, [&](const Format& one) {
    return one.magic == header[0] && one.version == header[1];
  });
  if (format == kFormats.end()) {
    return Error{path +
                 ": not a token file of llm.c (magic 20240520, version 1: 16 bits; magic "
                 "20240801, version 7: 32 bits)"};
  }
  made.header_ = kHeader;
  made.token_bytes_ = format->token_bytes;
  made.size_ = std::max(header[2], 0);
  if (bytes != kHeader + made.size_ * made.token_bytes_) {
    return Error{path + ": holds " + std::to_string((bytes - kHeader) / made.token_bytes_) +
                 " tokens, its header says " + std::to_string(made.size_)};
  }
  return made;
}

std::int64_t TokenFile::operator[](std::int64_t at) const {
  const std::byte* tokens = file_.bytes().data() + header_;
  switch (token_bytes_) {
    case 1:
      return token_at<std::uint8_t>(tokens, at);
    case 2:
      return token_at<std::uint16_t>(tokens, at);
    default:
      return token_at<std::uint32_t>(tokens, at);
  }
}

std::int64_t TokenFile::largest() const {
  std::int64_t most = -1;
  for (std::int64_t at = 0; at < size_; ++at) {
    most = std::max(most, (*this)[at]);
    if (at % kPiece == kPiece - 1) file_.forget();
  }
  file_.forget();
  return most;
}

}  // namespace rehearse::exec
