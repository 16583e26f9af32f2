// SPDX-License-Identifier: Apache-2.0
#include "exec/store/store_room.h"

#include <algorithm>

#include "exec/status/status.h"
#include "exec/store/printable.h"
#include "exec/store/socket.h"

namespace rehearse::exec {
namespace {

constexpr std::int64_t kLongestWaitNs = 1'000'000'000'000'000;
constexpr std::size_t kOverhead = 128;  // [B] of a key and its value besides their bytes

std::string cut(const std::string& text) {
  return printable(text, 64);  // what somebody else calls itself, in a message
}

}  // namespace

StoreRoom::StoreRoom(const Identity& expected)
    : expected_(expected),
      limits_(limits_of(expected)),
      kept_(static_cast<std::size_t>(expected.processes)),
      members_(kept_.size()) {}

StoreRoom::Seat& StoreRoom::enter(const std::string& address, std::int64_t now_ns,
                                  const std::string& nonce) {
  const auto most = std::max(kStrangers, kept_.size());
  const auto strangers = std::ranges::count_if(
      seats_, [](const Seat& seat) { return seat.process < 0 && !seat.gone; });
  if (static_cast<std::size_t>(strangers) >= most) (void)lose_oldest_stranger();
  return seats_.emplace_back(
      Seat{.channel = Channel(Channel::End::Server, expected_.secret, limits_, nonce),
           .address = address,
           .since_ns = now_ns});
}

bool StoreRoom::lose_oldest_stranger() {
  const auto is_stranger = [](const Seat& seat) { return seat.process < 0 && !seat.gone; };
  auto oldest = std::ranges::find_if(seats_, [&](const Seat& seat) {
    return is_stranger(seat) && seat.channel.state() == Channel::State::Greeting;
  });
  if (oldest == seats_.end()) oldest = std::ranges::find_if(seats_, is_stranger);
  if (oldest == seats_.end()) return false;
  lose(*oldest);
  return true;
}

void StoreRoom::say(Seat& to, StoreMessage type, std::uint64_t request, std::string_view body) {
  if (!to.gone) to.out += to.channel.tagged(type, request, body);
}

template <class Change>
void StoreRoom::change(std::int32_t process, const Change& with) {
  std::function<void()> tell;
  {
    const std::lock_guard lock(mutex_);
    with(members_[static_cast<std::size_t>(process)]);
    tell = changed_;
  }
  if (tell) tell();
}

void StoreRoom::receive(Seat& from, std::string_view bytes, std::int64_t now_ns) {
  if (from.gone || from.closing) return;
  from.channel.take(bytes);
  while (from.wants_more()) {
    const std::optional<Frame> frame = from.channel.next();
    from.out += from.channel.take_reply();
    if (from.channel.state() == Channel::State::Broken) return lose(from);
    if (from.channel.state() == Channel::State::Denied) {
      from.closing = true;
      const std::lock_guard lock(mutex_);
      ++denied_;
      return;
    }
    if (!frame) return;
    handle(from, *frame, now_ns);
  }
}

void StoreRoom::was_sent(Seat& to, std::size_t bytes, std::int64_t now_ns) {
  to.sent += bytes;
  if (to.process >= 0) {  // who reads is alive, though it may not be read from meanwhile
    const std::lock_guard lock(mutex_);
    members_[static_cast<std::size_t>(to.process)].heard_ns = now_ns;
  }
  if (to.sent < to.out.size()) return;
  to.sent = 0;
  if (to.out.capacity() > kUnread) {
    std::string().swap(to.out);
  } else {
    to.out.clear();
  }
  if (to.closing) lose(to);
}

void StoreRoom::lose(Seat& seat) {
  if (seat.gone) return;
  seat.gone = true;
  std::erase_if(waiters_, [&](const Waiter& waiter) { return waiter.who == &seat; });
  if (seat.process < 0) return;
  change(seat.process, [](Member& member) {
    if (member.state == Member::State::Joined) member.state = Member::State::Lost;
  });
}

void StoreRoom::forget_gone() {
  seats_.remove_if([](const Seat& seat) { return seat.gone; });
}

// Empty: welcome. Otherwise why not.
std::string StoreRoom::refusal(const Identity& who) const {
  const std::string rank = "rank " + std::to_string(who.first_rank());
  if (who.job != expected_.job) return "this port serves another job";
  if (who.version != expected_.version) {
    return rank + " has another version of rehearse (" + cut(who.version) + " instead of " +
           expected_.version + ")";
  }
  if (who.processes != expected_.processes) {
    return rank + " was started for " + std::to_string(who.processes) + " processes instead of " +
           std::to_string(expected_.processes);
  }
  if (who.schedule_hash != expected_.schedule_hash || who.ranks != expected_.ranks) {
    return rank + " has another schedule (hash " + cut(who.schedule_hash) + " instead of " +
           expected_.schedule_hash + ")";
  }
  return {};
}

void StoreRoom::join(Seat& from, const Frame& frame, std::int64_t now_ns) {
  WireReader in(frame.body);
  Identity who;
  who.process = in.number<std::int32_t>();
  who.processes = in.number<std::int32_t>();
  who.ranks = in.number<std::int32_t>();
  who.job = in.text();
  who.version = in.text();
  who.schedule_hash = in.text();
  if (frame.type != StoreMessage::Join || !in.done() || who.process < 0 ||
      who.process >= who.processes || who.ranks < who.processes) {
    return lose(from);
  }
  std::string why = refusal(who);
  const bool other_job = who.job != expected_.job;
  bool again = false;
  if (!other_job && why.empty()) {
    const std::lock_guard lock(mutex_);
    again = members_[static_cast<std::size_t>(who.process)].state != Member::State::Expected;
    if (again) why = "process " + std::to_string(who.process) + " has joined already";
    if (aborted_ && why.empty()) why = "the run has ended already";
  }
  if (!why.empty()) {
    say(from, other_job ? StoreMessage::OtherJob : StoreMessage::Refused, frame.request, why);
    from.closing = true;
    if (other_job || again || who.process >= expected_.processes) return;
    change(who.process, [&](Member& member) {
      // What a member that has joined is doing is its own to tell.
      if (member.state != Member::State::Expected) return;
      Identity here = expected_;  // where it stands in this run, whatever it takes itself for
      here.process = who.process;
      member.report = FailureReport{FailureReport::Kind::Refused, here.first_rank(), 3, why};
    });
    return;
  }
  from.process = who.process;
  say(from, StoreMessage::Welcome, frame.request);
  change(who.process, [&](Member& member) {
    if (address_.empty() || is_loopback(address_)) address_ = from.address;
    member.state = Member::State::Joined;
    member.heard_ns = now_ns;
  });
}

// false: it would have more than its share.
bool StoreRoom::keep(std::int32_t process, const std::string& key, std::string value) {
  const auto found = values_.find(key);
  std::size_t& mine = kept_[static_cast<std::size_t>(process)];
  const std::size_t size = key.size() + value.size() + kOverhead;
  if (found != values_.end()) {
    const std::size_t freed = key.size() + found->second.bytes.size() + kOverhead;
    std::size_t& owner = kept_[static_cast<std::size_t>(found->second.owner)];
    const std::size_t before = &owner == &mine ? mine - freed : mine;
    if (before + size > limits_.kept) return false;
    owner -= freed;
    mine += size;
    found->second = {std::move(value), process};
    return true;
  }
  if (mine + size > limits_.kept) return false;
  mine += size;
  values_.emplace(key, Value{std::move(value), process});
  return true;
}

std::size_t StoreRoom::kept() const {
  std::size_t sum = 0;
  for (const std::size_t bytes : kept_) sum += bytes;
  return sum;
}

bool StoreRoom::wait(Seat& from, const Frame& frame, std::int64_t now_ns) {
  WireReader in(frame.body);
  Waiter waiter{.who = &from, .request = frame.request, .value = frame.type == StoreMessage::Get};
  const auto patience = in.number<std::int64_t>();
  waiter.deadline_ns = now_ns + std::clamp<std::int64_t>(patience, 0, kLongestWaitNs);
  const auto count = in.number<std::uint32_t>();
  for (std::uint32_t i = 0; i < count && in.good(); ++i) waiter.keys.push_back(in.text());
  if (!in.done() || (waiter.value && count != 1)) return false;
  const auto open = std::ranges::count(waiters_, &from, &Waiter::who);
  if (static_cast<std::size_t>(open) >= kWaits) return false;
  waiters_.push_back(std::move(waiter));
  return true;
}

bool StoreRoom::report(Seat& from, const Frame& frame) {
  WireReader in(frame.body);
  FailureReport report;
  const auto kind = in.number<std::uint8_t>();
  report.rank = in.number<std::int32_t>();
  report.exit_code = in.number<std::int32_t>();
  report.text = printable(in.text(), kLargestText);
  // Refused is what only this room finds; a rank speaks for itself, and of failure.
  if (!in.done() || kind >= static_cast<std::uint8_t>(FailureReport::Kind::Refused)) return false;
  report.kind = static_cast<FailureReport::Kind>(kind);
  Identity who = expected_;
  who.process = from.process;
  if (report.rank != -1 && (report.rank < who.first_rank() || report.rank >= who.last_rank())) {
    return false;
  }
  if (report.exit_code < 1 || report.exit_code > 3) report.exit_code = 3;
  change(from.process, [&](Member& member) {
    if (!member.report) member.report = report;
  });
  return true;
}

void StoreRoom::handle(Seat& from, const Frame& frame, std::int64_t now_ns) {
  if (from.process < 0) return join(from, frame, now_ns);
  {
    const std::lock_guard lock(mutex_);
    members_[static_cast<std::size_t>(from.process)].heard_ns = now_ns;
  }
  WireReader in(frame.body);
  switch (frame.type) {
    case StoreMessage::Set: {
      const std::string key = in.text();
      std::string value = in.text();
      if (!in.done() || key.size() > kLargestKey) return lose(from);
      if (keep(from.process, key, std::move(value))) {
        return say(from, StoreMessage::Value, frame.request);
      }
      return say(from, StoreMessage::Full, frame.request,
                 "process " + std::to_string(from.process) + " would keep more than its " +
                     std::to_string(limits_.kept) + " bytes by " + printable(key, 256));
    }
    case StoreMessage::Add: {
      const std::string key = in.text();
      const auto increment = in.number<std::uint64_t>();
      if (!in.done() || key.size() > kLargestKey) return lose(from);
      const auto found = values_.find(key);
      const auto before =
          found == values_.end() ? 0 : WireReader(found->second.bytes).number<std::uint64_t>();
      const std::string sum = WireWriter().number(before + increment).take();  // wraps
      if (!keep(from.process, key, sum)) return lose(from);
      return say(from, StoreMessage::Value, frame.request, sum);
    }
    case StoreMessage::Get:
    case StoreMessage::Wait:
      if (!wait(from, frame, now_ns)) lose(from);
      return;
    case StoreMessage::Clock:
      return say(from, StoreMessage::Value, frame.request,
                 WireWriter().number(monotonic_ns()).take());
    case StoreMessage::Beat: {
      std::function<std::string()> answer;
      {
        const std::lock_guard lock(mutex_);
        members_[static_cast<std::size_t>(from.process)].beat = frame.body;
        answer = beat_answer_;
      }
      return say(from, StoreMessage::Heard, 0, answer ? answer() : std::string());
    }
    case StoreMessage::Report:
      if (!report(from, frame)) lose(from);
      return;
    case StoreMessage::Leave:
      change(from.process, [](Member& member) { member.state = Member::State::Left; });
      from.closing = true;
      if (from.unsent() == 0) lose(from);
      return;
    default:
      return lose(from);
  }
}

void StoreRoom::answer_waiters(std::int64_t now_ns) {
  for (auto waiter = waiters_.begin(); waiter != waiters_.end();) {
    const auto missing = std::ranges::find_if(
        waiter->keys, [&](const std::string& key) { return !values_.contains(key); });
    const bool all = missing == waiter->keys.end();
    // Who does not read gets no more to read.
    if (waiter->who->unsent() > kUnread || (!all && now_ns < waiter->deadline_ns)) {
      ++waiter;
      continue;
    }
    if (!all) {
      say(*waiter->who, StoreMessage::TimedOut, waiter->request,
          std::string_view(*missing).substr(0, kLargestKey));
    } else {
      say(*waiter->who, StoreMessage::Value, waiter->request,
          waiter->value ? values_.at(waiter->keys.front()).bytes : std::string());
    }
    waiter = waiters_.erase(waiter);
  }
}

void StoreRoom::attend(std::int64_t now_ns) {
  std::optional<std::string> why;
  {
    const std::lock_guard lock(mutex_);
    if (aborted_ && !std::exchange(abort_said_, true)) why = aborted_;
  }
  for (Seat& seat : seats_) {
    if (why && seat.process >= 0) say(seat, StoreMessage::Abort, 0, *why);
  }
  answer_waiters(now_ns);
  for (Seat& seat : seats_) {
    if (seat.channel.buffered() > 0) receive(seat, {}, now_ns);  // it has read what it asked for
    if (seat.process < 0 && now_ns - seat.since_ns > kStrangerNs) lose(seat);
  }
}

std::vector<Member> StoreRoom::members() const {
  const std::lock_guard lock(mutex_);
  return members_;
}

std::string StoreRoom::address() const {
  const std::lock_guard lock(mutex_);
  return address_;
}

std::int64_t StoreRoom::denied() const {
  const std::lock_guard lock(mutex_);
  return denied_;
}

void StoreRoom::abort(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (!aborted_) aborted_ = why;
}

void StoreRoom::on_change(std::function<void()> changed) {
  const std::lock_guard lock(mutex_);
  changed_ = std::move(changed);
}

void StoreRoom::answer_beats(std::function<std::string()> answer) {
  const std::lock_guard lock(mutex_);
  beat_answer_ = std::move(answer);
}

}  // namespace rehearse::exec
