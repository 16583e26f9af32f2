// SPDX-License-Identifier: Apache-2.0
#include "exec/store/hmac.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <cerrno>
#include <cstdlib>

namespace rehearse::exec {

std::string hmac_sha256(std::string_view key, std::string_view message) {
  unsigned char out[EVP_MAX_MD_SIZE] = {};
  unsigned int size = 0;
  // A key of no bytes must still point somewhere.
  const char* bytes = key.empty() ? "" : key.data();
  const unsigned char* done =
      HMAC(EVP_sha256(), bytes, static_cast<int>(key.size()),
           reinterpret_cast<const unsigned char*>(message.data()), message.size(), out, &size);
  if (done == nullptr || size != kTagBytes) std::abort();  // out of memory
  return {reinterpret_cast<const char*>(out), kTagBytes};
}

bool same_bytes(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string random_bytes(std::size_t count) {
  std::string out(count, '\0');
  for (std::size_t have = 0; have < count;) {
    const ssize_t got = getrandom(out.data() + have, count - have, 0);
    if (got > 0) {
      have += static_cast<std::size_t>(got);
    } else if (errno != EINTR) {
      std::abort();  // a kernel without getrandom
    }
  }
  return out;
}

}  // namespace rehearse::exec
