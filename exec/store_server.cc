// The store's server: one thread, one poll loop, no blocking read or write.
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <list>
#include <map>
#include <mutex>
#include <thread>

#include "exec/status.h"
#include "exec/store.h"
#include "exec/store_messages.h"

namespace rehearse::exec {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kStrangerNs = 10 * kSecond;   // to say who one is
constexpr std::int64_t kGoodbyeNs = kSecond;         // for the last messages to go out
constexpr std::size_t kLargestBacklog = 512u << 20;  // unsent bytes of who does not read

struct Connection {
  Descriptor socket;
  std::int32_t process = -1;  // -1: has not said who it is
  std::int64_t since_ns = 0;
  std::string in, out;
  std::size_t sent = 0;
  bool closing = false;  // once `out` is sent
  bool gone = false;
};

struct Waiter {  // of one Get or Wait
  Connection* who = nullptr;
  std::uint64_t request = 0;
  std::vector<std::string> keys;
  bool value = false;  // Get: answer with the value of its one key
  std::int64_t deadline_ns = 0;
};

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

}  // namespace

struct StoreServer::Impl {
  Identity expected;
  Descriptor listener, wake;
  mutable std::mutex mutex;  // members, aborted, stopping, changed
  std::vector<Member> members;
  std::optional<std::string> aborted;
  std::string address;
  bool stopping = false;
  std::function<void()> changed;
  std::function<std::string()> beat_answer;
  std::thread thread;

  // of the thread alone
  std::list<Connection> connections;
  std::list<Waiter> waiters;
  std::map<std::string, std::string> values;
  bool abort_sent = false;

  void serve();
  void accept_all();
  void read(Connection& from);
  void write(Connection& to);
  void handle(Connection& from, const Frame& frame);
  void greet(Connection& from, const Frame& frame);
  std::string refusal(const Identity& who) const;
  void answer_waiters();
  void drop_late();
  void lose(Connection& connection);
  void send(Connection& to, StoreMessage type, std::uint64_t request, std::string_view body = {}) {
    if (!to.gone) to.out += frame_bytes(type, request, body);
    if (to.out.size() - to.sent > kLargestBacklog) lose(to);
  }
  template <class Change>
  void change(std::int32_t process, const Change& with) {
    std::function<void()> tell;
    {
      const std::lock_guard lock(mutex);
      with(members[static_cast<std::size_t>(process)]);
      tell = changed;
    }
    if (tell) tell();
  }
};

// Empty: welcome. Otherwise why not.
std::string StoreServer::Impl::refusal(const Identity& who) const {
  const std::string rank = "rank " + std::to_string(who.first_rank());
  if (who.job != expected.job) return "this port serves another job";
  if (who.version != expected.version) {
    return rank + " has another version of rehearse (" + who.version + " instead of " +
           expected.version + ")";
  }
  if (who.processes != expected.processes) {
    return rank + " was started for " + std::to_string(who.processes) + " processes instead of " +
           std::to_string(expected.processes);
  }
  if (who.schedule_hash != expected.schedule_hash || who.ranks != expected.ranks) {
    return rank + " has another schedule (hash " + who.schedule_hash + " instead of " +
           expected.schedule_hash + ")";
  }
  return {};
}

void StoreServer::Impl::greet(Connection& from, const Frame& frame) {
  WireReader in(frame.body);
  const bool ours = frame.type == StoreMessage::Hello && in.number<std::uint32_t>() == kStoreMagic;
  const auto protocol = in.number<std::uint32_t>();
  Identity who;
  who.process = in.number<std::int32_t>();
  who.processes = in.number<std::int32_t>();
  who.ranks = in.number<std::int32_t>();
  who.job = in.text();
  who.version = in.text();
  who.schedule_hash = in.text();
  if (!ours || protocol != kStoreProtocol || !in.done() || who.processes < 1 || who.process < 0 ||
      who.process >= who.processes || who.ranks < who.processes) {
    return lose(from);
  }
  std::string why = refusal(who);
  const bool stranger = who.job != expected.job;
  bool again = false;
  if (!stranger && why.empty()) {
    const std::lock_guard lock(mutex);
    again = members[static_cast<std::size_t>(who.process)].state != Member::State::Expected;
    if (again) why = "process " + std::to_string(who.process) + " has joined already";
    if (aborted && why.empty()) why = "the run has ended already";
  }
  if (!why.empty()) {
    send(from, stranger ? StoreMessage::OtherJob : StoreMessage::Refused, frame.request, why);
    from.closing = true;
    if (stranger || again || who.process >= expected.processes) return;
    change(who.process, [&](Member& member) {
      member.report = FailureReport{FailureReport::Kind::Refused, who.first_rank(), 3, why};
    });
    return;
  }
  from.process = who.process;
  send(from, StoreMessage::Welcome, frame.request);
  change(who.process, [&](Member& member) {
    const std::string reached = local_address(from.socket);
    if (address.empty() || is_loopback(address)) address = reached;
    member.state = Member::State::Joined;
    member.heard_ns = monotonic_ns();
  });
}

void StoreServer::Impl::handle(Connection& from, const Frame& frame) {
  if (from.process < 0) return greet(from, frame);
  {
    const std::lock_guard lock(mutex);
    members[static_cast<std::size_t>(from.process)].heard_ns = monotonic_ns();
  }
  WireReader in(frame.body);
  switch (frame.type) {
    case StoreMessage::Set: {
      const std::string key = in.text();
      values[key] = in.text();
      send(from, StoreMessage::Value, frame.request);
      return;
    }
    case StoreMessage::Get:
    case StoreMessage::Wait: {
      Waiter waiter{
          .who = &from, .request = frame.request, .value = frame.type == StoreMessage::Get};
      const auto patience = in.number<std::int64_t>();
      waiter.deadline_ns =
          monotonic_ns() + std::clamp<std::int64_t>(patience, 0, 1'000'000 * kSecond);
      const auto count = in.number<std::uint32_t>();
      for (std::uint32_t i = 0; i < count && in.good(); ++i) waiter.keys.push_back(in.text());
      if (!in.done() || (waiter.value && count != 1)) return lose(from);
      waiters.push_back(std::move(waiter));
      return;
    }
    case StoreMessage::Add: {
      const std::string key = in.text();
      const auto increment = in.number<std::int64_t>();
      std::string& value = values[key];
      const auto sum = WireReader(value).number<std::int64_t>() + increment;
      value = WireWriter().number(sum).take();
      send(from, StoreMessage::Value, frame.request, value);
      return;
    }
    case StoreMessage::Clock:
      send(from, StoreMessage::Value, frame.request, WireWriter().number(monotonic_ns()).take());
      return;
    case StoreMessage::Beat: {
      std::function<std::string()> answer;
      {
        const std::lock_guard lock(mutex);
        members[static_cast<std::size_t>(from.process)].beat = frame.body;
        answer = beat_answer;
      }
      return send(from, StoreMessage::Heard, 0, answer ? answer() : std::string());
    }
    case StoreMessage::Report: {
      FailureReport report;
      report.kind = static_cast<FailureReport::Kind>(in.number<std::uint8_t>());
      report.rank = in.number<std::int32_t>();
      report.exit_code = in.number<std::int32_t>();
      report.text = in.text();
      if (!in.done()) return lose(from);
      change(from.process, [&](Member& member) {
        if (!member.report) member.report = report;
      });
      return;
    }
    case StoreMessage::Leave:
      change(from.process, [](Member& member) { member.state = Member::State::Left; });
      from.closing = true;
      return;
    default:
      return lose(from);
  }
}

void StoreServer::Impl::lose(Connection& connection) {
  if (connection.gone) return;
  connection.gone = true;
  std::erase_if(waiters, [&](const Waiter& waiter) { return waiter.who == &connection; });
  if (connection.process < 0) return;
  change(connection.process, [](Member& member) {
    if (member.state == Member::State::Joined) member.state = Member::State::Lost;
  });
}

void StoreServer::Impl::accept_all() {
  while (true) {
    Descriptor socket(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.get() < 0) return;
    connections.emplace_back();
    connections.back().socket = std::move(socket);
    connections.back().since_ns = monotonic_ns();
  }
}

void StoreServer::Impl::read(Connection& from) {
  char buffer[65536];
  bool ended = false;
  while (!ended) {
    const ssize_t got = recv(from.socket.get(), buffer, sizeof buffer, 0);
    if (got > 0) {
      from.in.append(buffer, static_cast<std::size_t>(got));
      if (got < static_cast<ssize_t>(sizeof buffer)) break;
    } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
      ended = true;
    } else if (errno == EAGAIN) {
      break;
    }
  }
  std::size_t at = 0;
  bool broken = false;
  while (!from.gone && !from.closing) {
    const std::optional<Frame> frame =
        next_frame(from.in, at, from.process < 0 ? kLargestStranger : kLargestMessage, broken);
    if (broken) lose(from);
    if (!frame) break;
    handle(from, *frame);
  }
  from.in.erase(0, at);
  if (ended) lose(from);
}

void StoreServer::Impl::write(Connection& to) {
  while (to.sent < to.out.size()) {
    const ssize_t put =
        ::send(to.socket.get(), to.out.data() + to.sent, to.out.size() - to.sent, MSG_NOSIGNAL);
    if (put > 0) {
      to.sent += static_cast<std::size_t>(put);
    } else if (errno == EAGAIN) {
      return;
    } else if (errno != EINTR) {
      return lose(to);
    }
  }
  to.out.clear();
  to.sent = 0;
  if (to.closing) lose(to);
}

void StoreServer::Impl::answer_waiters() {
  const std::int64_t now = monotonic_ns();
  for (auto waiter = waiters.begin(); waiter != waiters.end();) {
    const auto missing =
        std::find_if(waiter->keys.begin(), waiter->keys.end(),
                     [&](const std::string& key) { return !values.contains(key); });
    if (missing != waiter->keys.end() && now < waiter->deadline_ns) {
      ++waiter;
      continue;
    }
    const Waiter answered = std::move(*waiter);  // send may drop the connection and its waiters
    waiter = waiters.erase(waiter);
    if (missing != answered.keys.end()) {
      send(*answered.who, StoreMessage::TimedOut, answered.request, *missing);
    } else {
      send(*answered.who, StoreMessage::Value, answered.request,
           answered.value ? values[answered.keys.front()] : std::string_view{});
    }
    if (answered.who->gone) waiter = waiters.begin();
  }
}

// Whoever has not said who it is by now.
void StoreServer::Impl::drop_late() {
  const std::int64_t now = monotonic_ns();
  for (Connection& connection : connections) {
    if (connection.process < 0 && now - connection.since_ns > kStrangerNs) lose(connection);
  }
}

void StoreServer::Impl::serve() {
  std::int64_t stop_ns = 0;
  while (true) {
    bool stop = false;
    {
      const std::lock_guard lock(mutex);
      stop = stopping;
      if (aborted && !abort_sent) {
        abort_sent = true;
        for (Connection& connection : connections) {
          if (connection.process >= 0) send(connection, StoreMessage::Abort, 0, *aborted);
        }
      }
    }
    if (stop && stop_ns == 0) stop_ns = monotonic_ns() + kGoodbyeNs;
    const bool all_sent = std::all_of(connections.begin(), connections.end(),
                                      [](const Connection& c) { return c.gone || c.out.empty(); });
    if (stop && (all_sent || monotonic_ns() > stop_ns)) return;

    std::vector<pollfd> polled{{.fd = listener.get(), .events = POLLIN, .revents = 0},
                               {.fd = wake.get(), .events = POLLIN, .revents = 0}};
    for (const Connection& connection : connections) {
      const bool wants = !connection.out.empty();
      polled.push_back({.fd = connection.socket.get(),
                        .events = static_cast<short>(wants ? POLLIN | POLLOUT : POLLIN),
                        .revents = 0});
    }
    // 50 ms: how late a deadline may be noticed.
    poll(polled.data(), polled.size(), 50);
    std::uint64_t woken = 0;
    if ((polled[1].revents & POLLIN) != 0 && ::read(wake.get(), &woken, sizeof woken) < 0)
      woken = 0;
    std::size_t i = 2;
    for (Connection& connection : connections) {
      const short what = polled[i++].revents;
      if ((what & (POLLIN | POLLHUP | POLLERR)) != 0) read(connection);
    }
    answer_waiters();
    drop_late();
    for (Connection& connection : connections) {
      if (!connection.gone) write(connection);
    }
    connections.remove_if([](const Connection& connection) { return connection.gone; });
    if ((polled[0].revents & POLLIN) != 0) accept_all();
  }
}

StoreServer::StoreServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {
  impl_->thread = std::thread([this] { impl_->serve(); });
}

Result<std::unique_ptr<StoreServer>> StoreServer::start(const Identity& expected,
                                                        std::uint16_t port) {
  Result<Descriptor> listener = listen_on(port);
  if (!listener) return listener.error();
  auto impl = std::make_unique<Impl>();
  impl->expected = expected;
  impl->listener = std::move(listener).value();
  impl->wake = Descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (impl->wake.get() < 0) return Error{"store: eventfd: no descriptor is left"};
  impl->members.resize(static_cast<std::size_t>(expected.processes));
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
  const std::lock_guard lock(impl_->mutex);
  return impl_->address;
}

std::vector<Member> StoreServer::members() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->members;
}

void StoreServer::abort(const std::string& why) {
  {
    const std::lock_guard lock(impl_->mutex);
    if (!impl_->aborted) impl_->aborted = why;
  }
  eventfd_write(impl_->wake.get(), 1);
}

void StoreServer::on_change(std::function<void()> changed) {
  const std::lock_guard lock(impl_->mutex);
  impl_->changed = std::move(changed);
}

void StoreServer::answer_beats(std::function<std::string()> answer) {
  const std::lock_guard lock(impl_->mutex);
  impl_->beat_answer = std::move(answer);
}

}  // namespace rehearse::exec
