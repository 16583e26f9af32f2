// SPDX-License-Identifier: Apache-2.0
// HMAC-SHA-256 by OpenSSL's libcrypto, which is a module (schedules/base/installed/module.h), and
// random bytes by the kernel. No cryptography is written here.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "schedules/base/result.h"

namespace rehearse::exec {

inline constexpr std::size_t kTagBytes = 32;

struct CryptoModule {
  static constexpr const char* kName = "crypto";
  static constexpr const char* kMissing =
      "no libcrypto here, by which processes prove who they are: install rehearse-gloo, or build "
      "with libssl-dev";
  static constexpr int kVersion = 1;
  int version = 0;
  std::string (*hmac_sha256)(std::string_view key, std::string_view message) = nullptr;
  bool (*same_bytes)(std::string_view a, std::string_view b) = nullptr;
};
// Error: there is none here. To be asked before a connection is opened or awaited.
Result<> load_crypto();

// RFC 2104 with SHA-256: kTagBytes bytes. REQUIRES: load_crypto() would succeed.
std::string hmac_sha256(std::string_view key, std::string_view message);
// Takes as long for equal ones as for others of the same length. REQUIRES: as hmac_sha256.
bool same_bytes(std::string_view a, std::string_view b);
// Not to be guessed. A machine that has none to give ends the process.
std::string random_bytes(std::size_t count);

}  // namespace rehearse::exec
