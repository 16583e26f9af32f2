// SPDX-License-Identifier: Apache-2.0
// What must hold whatever comes over the store's connections. The bytes are a play: strangers who
// send anything, members who know the secret and say anything, a server that says anything to its
// clients, time that passes. Shared by the fuzz target and the test that runs a second.
#pragma once

#include <algorithm>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "exec/processes/abort_notice.h"
#include "exec/processes/diagnosis.h"
#include "exec/store/printable.h"
#include "exec/store/store_room.h"
#include "tests/fuzz/must.h"

namespace rehearse::testing {

namespace wire {

using namespace rehearse::exec;

inline constexpr std::int32_t kProcesses = 3, kRanksEach = 2;
inline constexpr std::size_t kActors = 8;

inline Identity identity(std::int32_t process) {
  return {.process = process,
          .processes = kProcesses,
          .ranks = kProcesses * kRanksEach,
          .job = "job",
          .version = "1",
          .schedule_hash = "abc",
          .secret = "what only they know",
          .kept = 4096};
}

// Somebody at one end of a connection. The seat is gone when the room says so.
struct Actor {
  StoreRoom::Seat* seat = nullptr;
  std::unique_ptr<Channel> client;  // nullptr: sends raw bytes
  bool knows = false;               // the secret
};

class Play {
 public:
  explicit Play(std::string_view script) : script_(script), room_(identity(0)) {
    room_.answer_beats([] { return std::string("beat"); });
  }
  void perform() {
    for (int acts = 0; acts < 400 && !script_.empty(); ++acts) {
      act();
      room_.attend(now_);
      forget();
      judge();
    }
  }
  std::int32_t joined() const {
    const std::vector<Member> members = room_.members();
    return static_cast<std::int32_t>(std::ranges::count_if(
        members, [](const Member& m) { return m.state != Member::State::Expected; }));
  }

 private:
  std::uint8_t byte() {
    if (script_.empty()) return 0;
    const auto value = static_cast<std::uint8_t>(script_.front());
    script_.remove_prefix(1);
    return value;
  }
  std::string bytes() {                // up to 255, or sixteen times as many of one kind
    const std::size_t asked = byte();  // before the rest is measured
    const std::size_t size = std::min(asked, script_.size());
    std::string out(script_.substr(0, size));
    script_.remove_prefix(size);
    if (size % 7 == 3) out.resize(size * 16, 'x');
    return out;
  }
  std::string nonce() {
    std::string out(kNonceBytes, 'n');
    out[0] = static_cast<char>(++nonces_);
    out[1] = static_cast<char>(nonces_ >> 8);
    return out;
  }
  Actor& actor() { return actors_[byte() % kActors]; }
  void enter(Actor& actor, bool raw, bool knows) {
    if (actor.seat != nullptr) return;
    actor.seat = &room_.enter("127.0.0.1", now_, nonce());
    actor.knows = knows && !raw;
    if (raw) return;
    const Identity who = identity(0);
    actor.client = std::make_unique<Channel>(Channel::End::Client, knows ? who.secret : "a guess",
                                             limits_of(who), nonce());
    for (int i = 0; i < 2; ++i) {
      room_.receive(*actor.seat, actor.client->take_reply(), now_);
      drain(actor);
    }
    must((actor.client->state() == Channel::State::Open) == knows,
         "the secret decides who is heard");
  }
  void drain(Actor& actor) {
    if (actor.seat == nullptr) return;
    StoreRoom::Seat& seat = *actor.seat;
    if (actor.client) actor.client->take(std::string_view(seat.out).substr(seat.sent));
    if (seat.unsent() > 0 && !seat.gone) room_.was_sent(seat, seat.unsent(), now_);
    while (actor.client && actor.client->next()) {
    }
    if (actor.client && actor.knows) {
      must(actor.client->state() != Channel::State::Broken,
           "the room says what its client refuses");
    }
  }
  void say(Actor& actor, StoreMessage type, const std::string& body) {
    if (actor.seat == nullptr || !actor.client) return;
    if (actor.client->state() != Channel::State::Open) return;
    const std::string message = actor.client->tagged(type, byte(), body);
    const std::size_t half = message.size() / 2;  // it comes in two pieces
    room_.receive(*actor.seat, std::string_view(message).substr(0, half), now_);
    room_.receive(*actor.seat, std::string_view(message).substr(half), now_);
  }
  void act() {
    switch (byte() % 12) {
      case 0:
        return enter(actor(), true, false);
      case 1:
        return enter(actor(), false, false);
      case 2:
      case 3:
        return enter(actor(), false, true);
      case 4: {  // nearly the truth
        Actor& who = actor();
        Identity self = identity(byte() % 4);
        const std::uint8_t lie = byte() % 16;
        if (lie == 1) self.schedule_hash = bytes();
        if (lie == 2) self.job = bytes();
        if (lie == 3) self.processes = byte();
        WireWriter out;
        out.number(self.process).number(self.processes).number(self.ranks);
        out.text(self.job).text(self.version).text(self.schedule_hash);
        return say(who, StoreMessage::Join, out.take());
      }
      case 5: {
        Actor& who = actor();
        const auto type = static_cast<StoreMessage>(byte() % (kStoreMessages + 2));
        return say(who, type, bytes());
      }
      case 6: {
        Actor& who = actor();
        const std::string key(1, static_cast<char>('a' + byte() % 4));
        const std::uint8_t what = byte() % 4;
        if (what == 0)
          return say(who, StoreMessage::Set, WireWriter().text(key).text(bytes()).take());
        if (what == 1) {
          return say(who, StoreMessage::Add,
                     WireWriter().text(key).number(std::int64_t{-1}).take());
        }
        WireWriter wait;
        wait.number(std::int64_t{byte()}).number(std::uint32_t{1}).text(key);
        return say(who, what == 2 ? StoreMessage::Get : StoreMessage::Wait, wait.take());
      }
      case 7: {
        Actor& who = actor();
        WireWriter report;
        report.number(static_cast<std::uint8_t>(byte() % 5)).number(std::int32_t{byte()} - 1);
        report.number(std::int32_t{byte()} - 1);
        return say(who, StoreMessage::Report, report.text(bytes()).take());
      }
      case 8: {
        Actor& who = actor();
        const std::string sent = bytes();
        if (who.seat != nullptr) room_.receive(*who.seat, sent, now_);
        return;
      }
      case 9:
        return drain(actor());
      case 10:
        now_ += std::int64_t{byte()} * 100'000'000;
        if (byte() % 32 == 0) room_.abort("over");
        return;
      default:
        return decode(bytes());
    }
  }
  // What a client reads of a server that lies, and everybody of everybody's bodies.
  void decode(const std::string& text) {
    const AbortNotice notice = parse_abort(text);
    must(notice.exit_code >= 1 && notice.exit_code <= 3, "an abort that is a success");
    must_be_printable(notice.line);
    must(printable(printable(text)) == printable(text), "what is printable changes");
    static const StatusBoard board = StatusBoard::create(kProcesses * kRanksEach).value();
    const std::string before = status_bytes(board, 0, kRanksEach);
    apply_status(text, board, kRanksEach, 2 * kRanksEach);
    must(status_bytes(board, 0, kRanksEach) == before, "a status of another process's ranks");
    const Identity who = identity(0);
    Channel client(Channel::End::Client, who.secret, limits_of(who), nonce());
    client.take(text);
    must(!client.next() && client.state() != Channel::State::Open, "a server without the secret");
    Channel server(Channel::End::Server, who.secret, limits_of(who), nonce());
    Channel honest(Channel::End::Client, who.secret, limits_of(who), nonce());
    for (int i = 0; i < 2; ++i) {
      server.take(honest.take_reply());
      (void)server.next();
      honest.take(server.take_reply());
      (void)honest.next();
    }
    must(honest.state() == Channel::State::Open, "two who know the secret do not meet");
    const auto type = static_cast<StoreMessage>(text.empty() ? 0 : text[0] & 31);
    honest.take(server.tagged(type, 1, text));
    if (const auto frame = honest.next())
      must(frame->body == text, "a message is not what was said");
    honest.take(text);
    while (honest.next()) {
    }
  }
  static void must_be_printable(const std::string& text) {
    must(text.size() <= kLargestText + 32, "a text without a bound");
    must(std::ranges::none_of(text, [](char c) { return (c >= 0 && c < 32) || c == 127; }),
         "a control character on its way to a terminal");
  }
  void forget() {
    for (Actor& actor : actors_) {
      if (actor.seat != nullptr && actor.seat->gone) actor = {};
    }
    room_.forget_gone();
  }
  void judge() {
    must(room_.kept() <= std::size_t{kProcesses} * identity(0).kept, "more is kept than may be");
    must(room_.seats().size() <= kActors, "seats that nobody has");
    std::vector<int> seats(kProcesses);
    for (const Actor& actor : actors_) {
      if (actor.seat == nullptr) continue;
      const StoreRoom::Seat& seat = *actor.seat;
      must(seat.process < 0 || actor.knows, "a stranger has joined");
      must(seat.process < 0 || ++seats[static_cast<std::size_t>(seat.process)] == 1,
           "a rank has joined twice");
      must(seat.channel.buffered() < 8192, "input without a bound");
      must(seat.unsent() < StoreRoom::kUnread + 65536, "output without a bound");
    }
    const std::vector<Member> members = room_.members();
    for (std::int32_t p = 0; p < kProcesses; ++p) {
      const std::optional<FailureReport>& report = members[static_cast<std::size_t>(p)].report;
      if (!report) continue;
      must(report->exit_code >= 1 && report->exit_code <= 3, "a report of success");
      must(report->rank == -1 || report->rank / kRanksEach == p, "a report about another's rank");
      must_be_printable(report->text);
    }
  }

  std::string_view script_;
  StoreRoom room_;
  std::vector<Actor> actors_{kActors};
  std::int64_t now_ = 0;
  std::uint32_t nonces_ = 0;
};

}  // namespace wire

// How many processes had joined in the end: a test sees that the play gets somewhere.
inline std::int32_t try_wire(std::string_view script) {
  wire::Play play(script);
  play.perform();
  return play.joined();
}

}  // namespace rehearse::testing
