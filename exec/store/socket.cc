// SPDX-License-Identifier: Apache-2.0
#include "exec/store/socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>

#include "exec/status/status.h"

namespace rehearse::exec {
namespace {

constexpr int kRetryMs = 50;  // between two attempts to reach who has not started yet

// A socket that listens at an address, or nothing with errno.
Descriptor listening(const sockaddr* address, socklen_t size) {
  Descriptor made(socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (made.get() < 0) return {};
  const int on = 1, off = 0;
  setsockopt(made.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address->sa_family == AF_INET6) {
    setsockopt(made.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);  // IPv4 too
  }
  if (bind(made.get(), address, size) != 0 || listen(made.get(), SOMAXCONN) != 0) return {};
  return made;
}

Descriptor listening_everywhere(int family, std::uint16_t port) {
  if (family == AF_INET6) {
    sockaddr_in6 six{};
    six.sin6_family = AF_INET6;
    six.sin6_addr = in6addr_any;
    six.sin6_port = htons(port);
    return listening(reinterpret_cast<const sockaddr*>(&six), sizeof six);
  }
  sockaddr_in four{};
  four.sin_family = AF_INET;
  four.sin_addr.s_addr = htonl(INADDR_ANY);
  four.sin_port = htons(port);
  return listening(reinterpret_cast<const sockaddr*>(&four), sizeof four);
}

// Connected, or nothing with errno.
Descriptor attempt(const addrinfo& address, int timeout_ms) {
  Descriptor made(socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (made.get() < 0) return {};
  const int on = 1;
  setsockopt(made.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (connect(made.get(), address.ai_addr, address.ai_addrlen) == 0) return made;
  if (errno != EINPROGRESS) return {};
  pollfd waiting{.fd = made.get(), .events = POLLOUT, .revents = 0};
  if (poll(&waiting, 1, timeout_ms) <= 0) {
    errno = ETIMEDOUT;
    return {};
  }
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(made.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error == 0) return made;
  errno = error;
  return {};
}

}  // namespace

Descriptor::~Descriptor() {
  if (fd_ >= 0) close(fd_);
}

Result<Descriptor> listen_on(std::uint16_t port, const std::string& address) {
  Descriptor made;
  if (address.empty()) {
    made = listening_everywhere(AF_INET6, port);
    if (made.get() < 0 && errno != EADDRINUSE) made = listening_everywhere(AF_INET, port);
  } else {
    const addrinfo hints{.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
                         .ai_family = AF_UNSPEC,
                         .ai_socktype = SOCK_STREAM};
    addrinfo* found = nullptr;
    const int code = getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found);
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(found, &freeaddrinfo);
    if (code != 0) return Error{"address " + address + ": " + gai_strerror(code)};
    made = listening(found->ai_addr, found->ai_addrlen);
  }
  if (made.get() < 0) return Error{"port " + std::to_string(port) + ": " + std::strerror(errno)};
  return made;
}

bool is_loopback(std::string_view host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

std::uint16_t port_of(const Descriptor& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

std::string local_address(const Descriptor& connected) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  char host[NI_MAXHOST] = "";
  getsockname(connected.get(), reinterpret_cast<sockaddr*>(&address), &size);
  getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, host, sizeof host, nullptr, 0,
              NI_NUMERICHOST);
  const std::string_view text = host, mapped = "::ffff:";  // IPv4 by a socket of both
  return std::string(text.starts_with(mapped) ? text.substr(mapped.size()) : text);
}

Result<Descriptor> connect_to(const std::string& host, std::uint16_t port,
                              std::int64_t deadline_ns) {
  const std::string where = host + ":" + std::to_string(port);
  const addrinfo hints{
      .ai_flags = AI_NUMERICSERV, .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
  std::string last = "no address";
  while (true) {
    addrinfo* found = nullptr;
    const int code = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, &freeaddrinfo);
    if (code != 0) last = gai_strerror(code);
    for (const addrinfo* at = found; code == 0 && at != nullptr; at = at->ai_next) {
      const std::int64_t left_ms = (deadline_ns - monotonic_ns()) / 1'000'000;
      if (left_ms <= 0) break;
      Descriptor made = attempt(*at, static_cast<int>(std::min<std::int64_t>(left_ms, 5000)));
      if (made.get() >= 0) return made;
      last = std::strerror(errno);
    }
    if (monotonic_ns() + kRetryMs * std::int64_t{1'000'000} >= deadline_ns) {
      return Error{where + ": " + last};
    }
    poll(nullptr, 0, kRetryMs);
  }
}

}  // namespace rehearse::exec
