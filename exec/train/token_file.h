// SPDX-License-Identifier: Apache-2.0
// Tokens as files have them: bytes, or llm.c's two formats (dev/data/data_common.py of
// github.com/karpathy/llm.c, HEADERS_INFO): 256 int32 words (magic, version, number of tokens),
// then the tokens, little-endian.
//
//   magic     version  a token is
//   20240520        1  uint16 (GPT-2)
//   20240801        7  uint32 (Llama 3)
//
// The file is mapped, not read: what is in memory is what was asked for of late.
#pragma once

#include <cstdint>
#include <string>

#include "schedules/base/bytes/regular_file.h"
#include "schedules/base/result.h"

namespace rehearse::exec {

class TokenFile {
 public:
  TokenFile() = default;  // of no tokens
  // A file whose name ends with ".bin" is llm.c's; of any other a byte is a token.
  // Errors: "FILE: what": no regular file, another header, more or fewer tokens than it says.
  static Result<TokenFile> open(const std::string& path);

  std::int64_t size() const { return size_; }
  std::int64_t token_bytes() const { return token_bytes_; }  // [B] 1, 2 or 4
  // REQUIRES: 0 <= at < size().
  std::int64_t operator[](std::int64_t at) const;
  // The largest token; -1 where there is none. Reads the whole file, and keeps none of it.
  std::int64_t largest() const;

 private:
  MappedFile file_;
  std::int64_t header_ = 0;  // [B] before the first token
  std::int64_t size_ = 0, token_bytes_ = 1;
};

}  // namespace rehearse::exec
