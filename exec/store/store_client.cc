// SPDX-License-Identifier: Apache-2.0
// The store's client: requests from any thread, one reader thread that also sends the heartbeats.
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

#include "exec/status/status.h"
#include "exec/store/channel.h"
#include "exec/store/hmac.h"
#include "exec/store/printable.h"
#include "exec/store/socket.h"
#include "exec/store/store.h"

namespace rehearse::exec {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kBeatNs = kSecond / 4;
constexpr double kAnswerS = 30;  // for what the server answers at once
constexpr int kClockQuestions = 8;
// A server that many strangers besiege may close a connection before it has looked at it.
constexpr std::int64_t kCloseNs = 10 * kSecond;  // how long that is tried again
constexpr int kCloseMs = 20;                     // between two attempts

std::int64_t ns_of(double seconds) {
  return static_cast<std::int64_t>(std::min(seconds, 1e6) * 1e9);
}

}  // namespace

struct StoreClient::Impl {
  Descriptor socket, wake;
  std::string address;
  std::optional<Channel> channel;  // reads: the reader (before it starts: join); writes: `sending`
  Events events;
  std::int64_t silence_ns = 0;
  std::mutex mutex;
  std::condition_variable answered;
  std::map<std::uint64_t, std::optional<Frame>> requests;  // empty until the answer came
  std::uint64_t next_request = 1;
  std::string over;  // why no answer will come any more; empty: one may
  bool stopping = false;
  std::mutex sending;
  std::thread thread;

  bool send(StoreMessage type, std::uint64_t request, std::string_view body);
  bool send_bytes(std::string_view bytes);
  std::optional<Frame> receive(std::int64_t deadline_ns, bool& broken);
  Result<bool> meet(const std::string& host, std::uint16_t port, const Identity& identity,
                    std::int64_t deadline_ns);
  Result<Frame> ask(StoreMessage type, std::string_view body, double timeout_s);
  void listen();
  void end(const std::string& why);
};

// Whole or not at all; gives up where the server takes nothing for `silence_ns`.
bool StoreClient::Impl::send(StoreMessage type, std::uint64_t request, std::string_view body) {
  const std::lock_guard lock(sending);
  return send_bytes(channel->tagged(type, request, body));
}

bool StoreClient::Impl::send_bytes(std::string_view bytes) {
  const std::int64_t deadline = monotonic_ns() + silence_ns;
  for (std::size_t sent = 0; sent < bytes.size();) {
    const ssize_t put =
        ::send(socket.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (put > 0) {
      sent += static_cast<std::size_t>(put);
    } else if (errno == EAGAIN) {
      pollfd waiting{.fd = socket.get(), .events = POLLOUT, .revents = 0};
      poll(&waiting, 1, 100);
      if (monotonic_ns() > deadline) return false;
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

// The next message, or none once `deadline_ns` has passed, `wake` was written, the channel is no
// longer what it was, or `broken`.
std::optional<Frame> StoreClient::Impl::receive(std::int64_t deadline_ns, bool& broken) {
  while (true) {
    const Channel::State before = channel->state();
    std::optional<Frame> frame = channel->next();
    if (const std::string reply = channel->take_reply(); !reply.empty()) {
      broken = !send_bytes(reply);  // of the handshake: nobody else sends yet
    }
    broken = broken || channel->state() == Channel::State::Broken;
    if (frame || broken || (channel->state() != before && channel->state() >= Channel::State::Open))
      return frame;
    const std::int64_t left = deadline_ns - monotonic_ns();
    if (left <= 0) return {};
    pollfd waiting[] = {{.fd = socket.get(), .events = POLLIN, .revents = 0},
                        {.fd = wake.get(), .events = POLLIN, .revents = 0}};
    poll(waiting, 2, static_cast<int>(std::min<std::int64_t>(left / 1'000'000 + 1, 1000)));
    if (waiting[1].revents != 0) return {};
    if (waiting[0].revents == 0) continue;
    char buffer[65536];
    const ssize_t got = recv(socket.get(), buffer, sizeof buffer, 0);
    if (got > 0) {
      channel->take({buffer, static_cast<std::size_t>(got)});
    } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
      broken = true;
      return {};
    }
  }
}

Result<Frame> StoreClient::Impl::ask(StoreMessage type, std::string_view body, double timeout_s) {
  std::uint64_t request = 0;
  {
    const std::lock_guard lock(mutex);
    if (!over.empty()) return Error{over};
    request = next_request++;
    requests.emplace(request, std::nullopt);
  }
  if (!send(type, request, body)) return Error{"store: cannot send"};
  std::unique_lock lock(mutex);
  const auto done = [&] { return requests[request].has_value() || !over.empty(); };
  const bool in_time = answered.wait_for(lock, std::chrono::nanoseconds(ns_of(timeout_s)), done);
  std::optional<Frame> answer = std::move(requests[request]);
  requests.erase(request);
  if (answer && answer->type == StoreMessage::Full)
    return Error{"store: " + printable(answer->body)};
  if (answer) return *std::move(answer);
  if (in_time) return Error{over};
  return Error{"store: no answer"};
}

void StoreClient::Impl::end(const std::string& why) {
  const std::lock_guard lock(mutex);
  if (over.empty()) over = why;
  answered.notify_all();
}

// The reader: answers to who asked, heartbeats in between, and the end of the run.
void StoreClient::Impl::listen() {
  std::int64_t heard = monotonic_ns(), beat = 0;
  bool broken = false;
  while (true) {
    {
      const std::lock_guard lock(mutex);
      if (stopping) return;
    }
    if (monotonic_ns() - beat >= kBeatNs) {
      // A stopped process that goes on finds the server's answers before it judges its silence.
      if (beat != 0 && monotonic_ns() - beat > 4 * kBeatNs) heard = monotonic_ns();
      beat = monotonic_ns();
      if (!send(StoreMessage::Beat, 0, events.beat ? events.beat() : std::string())) broken = true;
    }
    const std::optional<Frame> frame = broken ? std::nullopt : receive(beat + kBeatNs, broken);
    if (broken || monotonic_ns() - heard > silence_ns) {
      const bool mine = [&] {
        const std::lock_guard lock(mutex);
        return !stopping;
      }();
      end("store: the connection is lost");
      if (mine && events.lost) events.lost(broken);
      return;
    }
    if (!frame) continue;
    heard = monotonic_ns();
    if (frame->type == StoreMessage::Abort) {
      end(printable(frame->body));
      if (events.aborted) events.aborted(frame->body);
      return;
    }
    if (frame->type == StoreMessage::Heard) {
      if (events.heard) events.heard(frame->body);
      continue;
    }
    const std::lock_guard lock(mutex);
    if (const auto asked = requests.find(frame->request); asked != requests.end()) {
      asked->second = *frame;
      answered.notify_all();
    }
  }
}

StoreClient::StoreClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {
  impl_->thread = std::thread([this] { impl_->listen(); });
}

StoreClient::~StoreClient() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stopping = true;
  }
  eventfd_write(impl_->wake.get(), 1);
  impl_->thread.join();
}

// One attempt to connect and to prove the secret to one another. false: worth another one.
Result<bool> StoreClient::Impl::meet(const std::string& host, std::uint16_t port,
                                     const Identity& identity, std::int64_t deadline_ns) {
  const std::string where = host + ":" + std::to_string(port);
  Result<Descriptor> connected = connect_to(host, port, deadline_ns);
  if (!connected) return Error{"cannot reach the store at " + connected.error().message};
  socket = std::move(connected).value();
  address = local_address(socket);
  channel.emplace(Channel::End::Client, identity.secret, limits_of(identity));
  const std::string hello = channel->take_reply();
  bool broken = !send_bytes(hello);
  while (!broken && channel->state() < Channel::State::Open && monotonic_ns() < deadline_ns) {
    (void)receive(deadline_ns, broken);
  }
  switch (channel->state()) {
    case Channel::State::Open:
      return true;
    case Channel::State::Denied:
      return Error{where +
                   ": who listens there has another secret (REHEARSE_SECRET, "
                   "REHEARSE_SECRET_FILE)"};
    case Channel::State::Broken:
      return Error{where + ": who listens there is no store of this version of rehearse"};
    case Channel::State::Greeting:
    case Channel::State::Proving:
      break;
  }
  if (broken) return false;
  return Error{where + ": who listens there does not answer"};
}

Result<std::unique_ptr<StoreClient>> StoreClient::join(const std::string& host, std::uint16_t port,
                                                       const Identity& identity, double timeout_s,
                                                       double silence_s, Events events) {
  if (const Result<> able = load_crypto(); !able) return able.error();
  const std::string where = host + ":" + std::to_string(port);
  const std::int64_t deadline = monotonic_ns() + ns_of(timeout_s);
  auto impl = std::make_unique<Impl>();
  impl->events = std::move(events);
  impl->silence_ns = ns_of(silence_s);
  impl->wake = Descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (impl->wake.get() < 0) return Error{"store: eventfd: no descriptor is left"};
  const Error closes{where + ": who listens there is no store of this version of rehearse"};
  Result<bool> met = false;
  for (std::int64_t closed = 0; !met.value();) {
    met = impl->meet(host, port, identity, deadline);
    if (!met) return met.error();
    if (met.value()) break;
    if (closed == 0) closed = monotonic_ns();
    if (monotonic_ns() - closed > kCloseNs || monotonic_ns() > deadline) return closes;
    poll(nullptr, 0, kCloseMs);
  }
  WireWriter self;
  self.number(identity.process).number(identity.processes).number(identity.ranks);
  self.text(identity.job).text(identity.version).text(identity.schedule_hash);
  bool broken = !impl->send(StoreMessage::Join, 0, self.take());
  std::optional<Frame> answer;
  if (!broken) answer = impl->receive(deadline, broken);
  if (!answer && broken) return closes;
  if (!answer) return Error{where + ": who listens there does not answer"};
  const std::string said = printable(answer->body);
  if (answer->type == StoreMessage::Refused) return Error{.message = said, .infeasible = true};
  if (answer->type == StoreMessage::OtherJob) return Error{where + ": " + said};
  if (answer->type != StoreMessage::Welcome) return closes;
  return std::unique_ptr<StoreClient>(new StoreClient(std::move(impl)));
}

Result<> StoreClient::set(const std::string& key, const std::string& value) {
  const Result<Frame> answer =
      impl_->ask(StoreMessage::Set, WireWriter().text(key).text(value).take(), kAnswerS);
  if (!answer) return answer.error();
  return {};
}

Result<std::string> StoreClient::get(const std::string& key, double timeout_s) {
  WireWriter body;
  body.number(ns_of(timeout_s)).number(std::uint32_t{1}).text(key);
  Result<Frame> answer = impl_->ask(StoreMessage::Get, body.take(), timeout_s + kAnswerS);
  if (!answer) return answer.error();
  if (answer.value().type == StoreMessage::TimedOut) return Error{"store: nobody has set " + key};
  return std::move(answer).value().body;
}

Result<> StoreClient::wait(const std::vector<std::string>& keys, double timeout_s) {
  WireWriter body;
  body.number(ns_of(timeout_s)).number(static_cast<std::uint32_t>(keys.size()));
  for (const std::string& key : keys) body.text(key);
  const Result<Frame> answer = impl_->ask(StoreMessage::Wait, body.take(), timeout_s + kAnswerS);
  if (!answer) return answer.error();
  if (answer.value().type == StoreMessage::TimedOut) {
    return Error{"store: nobody has set " + answer.value().body};
  }
  return {};
}

Result<std::int64_t> StoreClient::add(const std::string& key, std::int64_t increment) {
  const Result<Frame> answer =
      impl_->ask(StoreMessage::Add, WireWriter().text(key).number(increment).take(), kAnswerS);
  if (!answer) return answer.error();
  return WireReader(answer.value().body).number<std::int64_t>();
}

Result<std::int64_t> StoreClient::clock_offset() {
  std::int64_t best = 0, fastest = -1;
  for (int i = 0; i < kClockQuestions; ++i) {
    const std::int64_t asked = monotonic_ns();
    const Result<Frame> answer = impl_->ask(StoreMessage::Clock, {}, kAnswerS);
    const std::int64_t answered = monotonic_ns();
    if (!answer) return answer.error();
    if (fastest >= 0 && answered - asked >= fastest) continue;
    fastest = answered - asked;
    best = WireReader(answer.value().body).number<std::int64_t>() - (asked + fastest / 2);
  }
  return best;
}

void StoreClient::report(const FailureReport& failure) {
  WireWriter body;
  body.number(static_cast<std::uint8_t>(failure.kind))
      .number(failure.rank)
      .number(failure.exit_code);
  const std::string text = printable(failure.text, kLargestText);
  impl_->send(StoreMessage::Report, 0, body.text(text).take());
}

void StoreClient::leave() {
  impl_->send(StoreMessage::Leave, 0, {});
}

const std::string& StoreClient::address() const {
  return impl_->address;
}

}  // namespace rehearse::exec
