// SPDX-License-Identifier: Apache-2.0
#include "exec/store/hmac.h"

#include <sys/random.h>

#include <cerrno>
#include <cstdlib>

#include "schedules/base/installed/module.h"

namespace rehearse::exec {

Result<> load_crypto() {
  const auto loaded = load_module<CryptoModule>();
  return loaded ? Result<>() : Result<>(loaded.error());
}

std::string hmac_sha256(std::string_view key, std::string_view message) {
  return load_module<CryptoModule>().value()->hmac_sha256(key, message);
}

bool same_bytes(std::string_view a, std::string_view b) {
  return load_module<CryptoModule>().value()->same_bytes(a, b);
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
