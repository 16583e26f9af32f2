// SPDX-License-Identifier: Apache-2.0
#include "exec/store/secret.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "exec/status/flight_recorder.h"
#include "exec/store/hmac.h"
#include "exec/store/socket.h"

namespace rehearse::exec {
namespace {

constexpr std::size_t kLargestSecret = 4096;
constexpr const char* kHowTo =
    "make one by `(umask 077; openssl rand -hex 32 > FILE)` and start every process with "
    "REHEARSE_SECRET_FILE=FILE";

std::string hexadecimal(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    out += {kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return out;
}

std::string trimmed(std::string text) {
  text.erase(text.find_last_not_of(" \t\r\n") + 1);
  return text;
}

// Reads a regular file that only this user (or root) may read. Error: what is wrong with it.
Result<std::string> read_private_file(int folder, const char* path) {
  // A fifo without a writer must not be waited for.
  const Descriptor file(openat(folder, path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  if (file.get() < 0) return Error{std::strerror(errno)};
  struct stat info {};
  if (fstat(file.get(), &info) != 0) return Error{std::strerror(errno)};
  if (!S_ISREG(info.st_mode)) return Error{"is no regular file"};
  if ((info.st_mode & 077) != 0) return Error{"others may read it; chmod 600 makes it private"};
  if (info.st_uid != geteuid() && info.st_uid != 0) return Error{"belongs to another user"};
  std::string text(kLargestSecret + 1, '\0');
  std::size_t have = 0;
  while (have < text.size()) {
    const ssize_t got = read(file.get(), text.data() + have, text.size() - have);
    if (got == 0) break;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Error{std::strerror(errno)};
    have += static_cast<std::size_t>(got);
  }
  if (have > kLargestSecret) return Error{"has more than 4096 bytes; it is no secret"};
  text.resize(have);
  text = trimmed(std::move(text));
  if (text.empty()) return Error{"is empty"};
  return text;
}

// A folder that is this user's alone; made where there is none.
Result<Descriptor> private_folder(const std::string& path) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return Error{std::strerror(errno)};
  Descriptor folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (folder.get() < 0) return Error{std::strerror(errno)};
  struct stat info {};
  if (fstat(folder.get(), &info) != 0) return Error{std::strerror(errno)};
  if (info.st_uid != geteuid()) return Error{"belongs to another user"};
  if ((info.st_mode & 077) != 0) return Error{"others may read it"};
  return folder;
}

// Writes a new secret under a name of its own, then gives it its name: whoever reads `secret` reads
// all of it, and of several who make one the first wins.
Result<> make_secret(int folder) {
  const std::string own = "secret." + std::to_string(getpid()) + "." + hexadecimal(random_bytes(8));
  const std::string text = fresh_secret() + "\n";
  {
    const Descriptor file(
        openat(folder, own.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (file.get() < 0) return Error{std::strerror(errno)};
    if (write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
      const int why = errno;
      unlinkat(folder, own.c_str(), 0);
      return Error{std::strerror(why)};
    }
  }
  const bool linked = linkat(folder, own.c_str(), folder, "secret", 0) == 0 || errno == EEXIST;
  const int why = errno;
  unlinkat(folder, own.c_str(), 0);
  if (!linked) return Error{std::strerror(why)};
  return {};
}

}  // namespace

std::string fresh_secret() {
  return hexadecimal(random_bytes(32));
}

Result<std::optional<std::string>> given_secret(const Variables& variable) {
  const char* value = variable("REHEARSE_SECRET");
  const char* path = variable("REHEARSE_SECRET_FILE");
  if (value != nullptr && path != nullptr) {
    return Error{"REHEARSE_SECRET: is set, and so is REHEARSE_SECRET_FILE; one of them is right"};
  }
  if (value != nullptr) {
    std::string secret = trimmed(value);
    if (secret.empty() || secret.size() > kLargestSecret) {
      return Error{"REHEARSE_SECRET: has " + std::to_string(secret.size()) +
                   " characters; 16 to 4096 are right"};
    }
    return std::optional(std::move(secret));
  }
  if (path == nullptr) return std::optional<std::string>();
  Result<std::string> secret = read_private_file(AT_FDCWD, path);
  if (!secret) {
    return Error{std::string("REHEARSE_SECRET_FILE: ") + path + ": " + secret.error().message};
  }
  return std::optional(std::move(secret).value());
}

Result<std::string> secret_of_user(const std::string& folder) {
  const std::string path = folder + "/rehearse-" + std::to_string(geteuid());
  const Result<Descriptor> made = private_folder(path);
  if (!made) return Error{path + ": " + made.error().message};
  const int at = made.value().get();
  if (faccessat(at, "secret", F_OK, 0) != 0) {
    if (const Result<> written = make_secret(at); !written) {
      return Error{path + ": " + written.error().message};
    }
  }
  Result<std::string> secret = read_private_file(at, "secret");
  if (!secret) return Error{path + "/secret: " + secret.error().message};
  return secret;
}

Result<std::string> secret_of_run(const Variables& variable, bool one_host) {
  Result<std::optional<std::string>> given = given_secret(variable);
  if (!given) return given.error();
  if (given.value()) return *std::move(given).value();
  if (!one_host) {
    return Error{std::string("REHEARSE_SECRET_FILE: is not set, and the processes are not all on "
                             "this host; ") +
                 kHowTo};
  }
  Result<std::string> own = secret_of_user("/tmp");
  if (!own) {
    if (Result<std::string> other = secret_of_user(temporary_folder()); other) return other;
    return Error{own.error().message + ": no secret can be shared there; " + kHowTo};
  }
  return own;
}

}  // namespace rehearse::exec
