// SPDX-License-Identifier: Apache-2.0
// HMAC-SHA-256 by OpenSSL's libcrypto, and random bytes by the kernel. No cryptography is written
// here.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace rehearse::exec {

inline constexpr std::size_t kTagBytes = 32;

// RFC 2104 with SHA-256: kTagBytes bytes.
std::string hmac_sha256(std::string_view key, std::string_view message);
// Takes as long for equal ones as for others of the same length.
bool same_bytes(std::string_view a, std::string_view b);
// Not to be guessed. A machine that has none to give ends the process.
std::string random_bytes(std::size_t count);

}  // namespace rehearse::exec
