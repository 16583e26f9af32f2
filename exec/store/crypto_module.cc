// SPDX-License-Identifier: Apache-2.0
// The module's source, and the only one that knows OpenSSL.
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <cstdlib>

#include "exec/store/hmac.h"
#include "schedules/base/installed/module.h"

namespace rehearse::exec {
namespace {

std::string hmac(std::string_view key, std::string_view message) {
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

bool same(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace
}  // namespace rehearse::exec

REHEARSE_MODULE(crypto, rehearse::exec::CryptoModule, .hmac_sha256 = rehearse::exec::hmac,
                .same_bytes = rehearse::exec::same)
