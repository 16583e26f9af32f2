// SPDX-License-Identifier: Apache-2.0
// TCP for the store: listen and connect over IPv4 and IPv6, with deadlines; nothing blocks for
// ever.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "schedules/base/result.h"

namespace rehearse::exec {

// Owns a file descriptor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor();
  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

// Listens at a numeric address; at none, on all addresses of this machine, both protocols where it
// has both. Port 0: a free one. Error: "port 29500: Address already in use".
Result<Descriptor> listen_on(std::uint16_t port, const std::string& address = "127.0.0.1");
// The port that a listening socket has.
std::uint16_t port_of(const Descriptor& listening);
// The numeric address by which this end of a connection is reached.
std::string local_address(const Descriptor& connected);
// "localhost", 127.x.x.x or ::1: whoever connects there is on this host.
bool is_loopback(std::string_view host);

// Tries every address of `host`, again and again (who listens may not have started yet), until one
// answers or `deadline_ns` (monotonic_ns) has passed. The socket does not block and sends at once.
Result<Descriptor> connect_to(const std::string& host, std::uint16_t port,
                              std::int64_t deadline_ns);

}  // namespace rehearse::exec
