// SPDX-License-Identifier: Apache-2.0
// The store's server: a StoreRoom on a network. One thread, one poll loop, no blocking read or
// write.
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "exec/status/status.h"
#include "exec/store/hmac.h"
#include "exec/store/store.h"
#include "exec/store/store_room.h"

namespace rehearse::exec {
namespace {

constexpr std::int64_t kGoodbyeNs = 1'000'000'000;  // for the last messages to go out
constexpr std::int64_t kNoRoomNs = 50'000'000;  // without accepting, where no descriptor is left
constexpr int kNewAtOnce = 64;  // connections that are accepted before the others are served again

}  // namespace

struct StoreServer::Impl {
  struct Connection {
    Descriptor socket;
    StoreRoom::Seat* seat = nullptr;
  };
  explicit Impl(const Identity& expected) : room(expected) {}
  StoreRoom room;
  Descriptor listener, wake;
  std::mutex mutex;  // of stopping
  bool stopping = false;
  std::thread thread;

  // of the thread alone
  std::list<Connection> connections;
  std::int64_t full_ns = 0;  // when no descriptor was left

  void serve();
  void accept_some();
  void read(Connection& from);
  void write(Connection& to);
};

void StoreServer::Impl::accept_some() {
  for (int i = 0; i < kNewAtOnce; ++i) {
    Descriptor socket(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.get() < 0) {
      if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM) return;
      full_ns = monotonic_ns();  // and whoever has not joined makes room
      (void)room.lose_oldest_stranger();
      return;
    }
    StoreRoom::Seat& seat = room.enter(local_address(socket), monotonic_ns());
    connections.push_back({std::move(socket), &seat});
  }
}

// One piece: nobody's flood holds up the others.
void StoreServer::Impl::read(Connection& from) {
  char buffer[65536];
  const std::size_t most = from.seat->process < 0 ? 4096 : sizeof buffer;
  const ssize_t got = recv(from.socket.get(), buffer, most, 0);
  if (got > 0) {
    room.receive(*from.seat, {buffer, static_cast<std::size_t>(got)}, monotonic_ns());
  } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
    room.lose(*from.seat);
  }
}

void StoreServer::Impl::write(Connection& to) {
  StoreRoom::Seat& seat = *to.seat;
  while (!seat.gone && seat.unsent() > 0) {
    const ssize_t put =
        ::send(to.socket.get(), seat.out.data() + seat.sent, seat.unsent(), MSG_NOSIGNAL);
    if (put > 0) {
      room.was_sent(seat, static_cast<std::size_t>(put), monotonic_ns());
    } else if (errno == EAGAIN) {
      return;
    } else if (errno != EINTR) {
      return room.lose(seat);
    }
  }
}

void StoreServer::Impl::serve() {
  std::int64_t stop_ns = 0;
  while (true) {
    bool stop = false;
    {
      const std::lock_guard lock(mutex);
      stop = stopping;
    }
    room.attend(monotonic_ns());
    for (Connection& connection : connections) write(connection);
    connections.remove_if([](const Connection& connection) { return connection.seat->gone; });
    room.forget_gone();
    if (stop && stop_ns == 0) stop_ns = monotonic_ns() + kGoodbyeNs;
    const bool all_sent =
        std::ranges::all_of(connections, [](const Connection& c) { return c.seat->unsent() == 0; });
    if (stop && (all_sent || monotonic_ns() > stop_ns)) return;

    const bool accepts = monotonic_ns() - full_ns > kNoRoomNs;
    std::vector<pollfd> polled{{.fd = accepts ? listener.get() : -1, .events = POLLIN},
                               {.fd = wake.get(), .events = POLLIN}};
    for (const Connection& connection : connections) {
      const int events = (connection.seat->wants_more() ? POLLIN : 0) |
                         (connection.seat->unsent() > 0 ? POLLOUT : 0);
      polled.push_back({.fd = connection.socket.get(), .events = static_cast<short>(events)});
    }
    // 50 ms: how late a deadline may be noticed.
    poll(polled.data(), polled.size(), 50);
    std::uint64_t woken = 0;
    if ((polled[1].revents & POLLIN) != 0 && ::read(wake.get(), &woken, sizeof woken) < 0)
      woken = 0;
    std::size_t i = 2;
    for (Connection& connection : connections) {
      const short what = polled[i++].revents;
      if ((what & POLLIN) != 0 && connection.seat->wants_more()) {
        read(connection);
      } else if ((what & (POLLHUP | POLLERR)) != 0) {
        room.lose(*connection.seat);  // nothing that it was told can reach it any more
      }
    }
    if ((polled[0].revents & POLLIN) != 0) accept_some();
  }
}

StoreServer::StoreServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {
  impl_->thread = std::thread([this] { impl_->serve(); });
}

Result<std::unique_ptr<StoreServer>> StoreServer::start(const Identity& expected,
                                                        std::uint16_t port, const std::string& at) {
  if (const Result<> able = load_crypto(); !able) return able.error();
  Result<Descriptor> listener = listen_on(port, at);
  if (!listener) return listener.error();
  auto impl = std::make_unique<Impl>(expected);
  impl->listener = std::move(listener).value();
  impl->wake = Descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (impl->wake.get() < 0) return Error{"store: eventfd: no descriptor is left"};
  return std::unique_ptr<StoreServer>(new StoreServer(std::move(impl)));
}

StoreServer::~StoreServer() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stopping = true;
  }
  eventfd_write(impl_->wake.get(), 1);
  impl_->thread.join();
}

std::uint16_t StoreServer::port() const {
  return port_of(impl_->listener);
}

std::string StoreServer::address() const {
  return impl_->room.address();
}

std::vector<Member> StoreServer::members() const {
  return impl_->room.members();
}

std::int64_t StoreServer::denied() const {
  return impl_->room.denied();
}

void StoreServer::abort(const std::string& why) {
  impl_->room.abort(why);
  eventfd_write(impl_->wake.get(), 1);
}

void StoreServer::on_change(std::function<void()> changed) {
  impl_->room.on_change(std::move(changed));
}

void StoreServer::answer_beats(std::function<std::string()> answer) {
  impl_->room.answer_beats(std::move(answer));
}

}  // namespace rehearse::exec
