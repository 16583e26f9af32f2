// SPDX-License-Identifier: Apache-2.0
// What strangers, and members that misbehave, do to a rendezvous: nothing. They are refused, they
// learn nothing, they cost a bounded amount of memory, and the others go on.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <random>

#include "exec/processes/abort_notice.h"
#include "exec/status/status.h"
#include "exec/store/printable.h"
#include "exec/store/store_room.h"

namespace rehearse::exec {
namespace {

constexpr double kPatience = 20;  // seconds; nothing here takes them

Identity identity(std::int32_t process, const std::string& secret = "what only they know") {
  return {.process = process,
          .processes = 2,
          .ranks = 4,
          .job = "nonce",
          .version = "1",
          .schedule_hash = "abc",
          .secret = secret};
}

std::unique_ptr<StoreServer> server() {
  Result<std::unique_ptr<StoreServer>> made = StoreServer::start(identity(0), 0);
  EXPECT_TRUE(made) << made.error().message;
  return std::move(made).value();
}

Result<std::unique_ptr<StoreClient>> join(const StoreServer& at, const Identity& who) {
  return StoreClient::join("127.0.0.1", at.port(), who, kPatience, kPatience, {});
}

template <class Condition>
bool becomes(const Condition& condition) {
  for (int i = 0; i < 2000; ++i) {
    if (condition()) return true;
    poll(nullptr, 0, 10);
  }
  return false;
}

std::string join_body(const Identity& who) {
  WireWriter out;
  out.number(who.process).number(who.processes).number(who.ranks);
  return out.text(who.job).text(who.version).text(who.schedule_hash).take();
}

// Somebody who knows the protocol, and perhaps the secret, and says what they like.
class Speaker {
 public:
  Speaker(std::uint16_t port, const Identity& who)
      : who_(who), channel_(Channel::End::Client, who.secret, limits_of(who)) {
    Result<Descriptor> made = connect_to("127.0.0.1", port, monotonic_ns() + 5'000'000'000);
    EXPECT_TRUE(made);
    socket_ = std::move(made).value();
    send_bytes(channel_.take_reply());
    while (channel_.state() < Channel::State::Open && pump()) {
    }
  }
  bool open() const { return channel_.state() == Channel::State::Open; }
  bool join() {
    say(StoreMessage::Join, join_body(who_));
    const std::optional<Frame> answer = hear();
    return answer && answer->type == StoreMessage::Welcome;
  }
  void say(StoreMessage type, std::string_view body) { send_bytes(channel_.tagged(type, 1, body)); }
  void send_bytes(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t put = send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (put > 0) {
        bytes.remove_prefix(static_cast<std::size_t>(put));
      } else if (errno == EAGAIN) {
        pollfd waiting{.fd = socket_.get(), .events = POLLOUT, .revents = 0};
        if (poll(&waiting, 1, 2000) <= 0) return;  // it is not read from
      } else {
        return;  // cut off
      }
    }
  }
  std::optional<Frame> hear() {
    while (true) {
      if (std::optional<Frame> frame = channel_.next()) return frame;
      if (!pump()) return {};
    }
  }
  bool cut_off() {
    while (hear()) {
    }
    return closed_;
  }

 private:
  bool pump() {  // false: closed, or nothing for a while
    pollfd waiting{.fd = socket_.get(), .events = POLLIN, .revents = 0};
    if (poll(&waiting, 1, 15'000) <= 0) return false;
    char buffer[65536];
    const ssize_t got = recv(socket_.get(), buffer, sizeof buffer, 0);
    if (got <= 0) {
      closed_ = true;
      return false;
    }
    channel_.take({buffer, static_cast<std::size_t>(got)});
    if (channel_.state() < Channel::State::Open) {
      (void)channel_.next();
      send_bytes(channel_.take_reply());
    }
    return true;
  }
  Identity who_;
  Descriptor socket_;
  Channel channel_;
  bool closed_ = false;
};

std::size_t resident_bytes() {
  std::ifstream in("/proc/self/statm");
  std::size_t all = 0, resident = 0;
  in >> all >> resident;
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

// Sanitizers keep freed memory, and shadows of it.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kMemoryIsOurs = false;
#else
constexpr bool kMemoryIsOurs = true;
#endif

TEST(StoreAttack, AStrangerDoesNotJoinAndIsToldNothing) {
  const auto at = server();
  Identity stranger = identity(1, "a guess");
  stranger.schedule_hash = "xyz";
  const auto refused = join(*at, stranger);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "127.0.0.1:" + std::to_string(at->port()) +
                ": who listens there has another secret (REHEARSE_SECRET, REHEARSE_SECRET_FILE)");
  EXPECT_FALSE(refused.error().infeasible);  // nobody else says it
  EXPECT_TRUE(becomes([&] { return at->denied() == 1; }));
  const Member member = at->members()[1];
  EXPECT_EQ(member.state, Member::State::Expected);
  EXPECT_FALSE(member.report.has_value());  // the run goes on
  EXPECT_TRUE(join(*at, identity(1)));
}

TEST(StoreAttack, AServerThatDoesNotKnowTheSecretIsNotJoined) {
  // It says yes to every proof: it cannot prove itself.
  const Identity who = identity(0);
  Channel client(Channel::End::Client, who.secret, limits_of(who));
  Channel fake(Channel::End::Server, "a guess", limits_of(who));
  fake.take(client.take_reply());
  (void)fake.next();
  client.take(fake.take_reply());
  (void)client.next();
  ASSERT_EQ(client.state(), Channel::State::Proving);
  client.take(fake.tagged(StoreMessage::Proved, 0, {}));
  EXPECT_FALSE(client.next());
  EXPECT_EQ(client.state(), Channel::State::Denied);
}

// Version 0.1's attack: one message ended the run and was told the hash that is expected.
TEST(StoreAttack, TheHelloOfVersion01EndsNothing) {
  const auto at = server();
  WireWriter hello;
  hello.number(kStoreMagic).number(std::uint32_t{1}).number(std::int32_t{1});
  hello.number(std::int32_t{2}).number(std::int32_t{4});
  hello.text("nonce").text("1").text("xyz");
  const std::string body = hello.take();
  WireWriter frame;
  frame.number(static_cast<std::uint32_t>(9 + body.size())).number(std::uint8_t{0});
  const std::string bytes = frame.number(std::uint64_t{0}).take() + body;
  Result<Descriptor> made = connect_to("127.0.0.1", at->port(), monotonic_ns() + 5'000'000'000);
  ASSERT_TRUE(made);
  ASSERT_GT(send(made.value().get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), 0);
  pollfd waiting{.fd = made.value().get(), .events = POLLIN, .revents = 0};
  ASSERT_GT(poll(&waiting, 1, 15'000), 0);
  char said[4096];
  EXPECT_LE(recv(made.value().get(), said, sizeof said, 0), 0);  // closed without a word
  EXPECT_FALSE(at->members()[1].report.has_value());
  EXPECT_TRUE(join(*at, identity(1)));
}

TEST(StoreAttack, AReportIsAboutItsOwnRanksAndNeverOfSuccess) {
  const auto report = [](std::uint8_t kind, std::int32_t rank, std::int32_t code,
                         const std::string& text) {
    return WireWriter().number(kind).number(rank).number(code).text(text).take();
  };
  const auto at = server();
  Speaker member(at->port(), identity(1));
  ASSERT_TRUE(member.join());
  member.say(StoreMessage::Report,
             report(0, 3, 0, "\x1b]0;all is well\a\n\xff" + std::string(3000, 'x')));
  ASSERT_TRUE(becomes([&] { return at->members()[1].report.has_value(); }));
  const FailureReport heard = *at->members()[1].report;
  EXPECT_EQ(heard.exit_code, 3);
  EXPECT_TRUE(heard.text.starts_with("\\x1b]0;all is well\\x07\\x0a\\xffxxx")) << heard.text;
  EXPECT_LT(heard.text.size(), 2100u);
  EXPECT_FALSE(at->members()[0].report.has_value());
  for (const std::string& other :
       {report(0, 0, 3, "of rank 0"), report(3, 3, 3, "refused"), report(9, 3, 3, "no kind"),
        report(0, 3, 3, "short").substr(0, 11), report(0, 3, 3, std::string(5000, 'x')),
        report(0, 1 << 30, 3, "rank")}) {
    const auto again = server();
    Speaker liar(again->port(), identity(1));
    ASSERT_TRUE(liar.join());
    liar.say(StoreMessage::Report, other);
    EXPECT_TRUE(liar.cut_off());
    EXPECT_FALSE(again->members()[0].report.has_value());
    EXPECT_FALSE(again->members()[1].report.has_value());
  }
}

TEST(StoreAttack, AnAbortIsNoSuccessAndPrintsNoControlCharacters) {
  const AbortNotice notice =
      parse_abort(WireWriter().text("/tmp/f").text("bad\x1b[2J").number(std::int32_t{0}).take());
  EXPECT_EQ(notice.exit_code, 3);
  EXPECT_EQ(notice.line, "bad\\x1b[2J");
  EXPECT_EQ(notice.flight, "/tmp/f");
  EXPECT_EQ(parse_abort("").exit_code, 3);
  EXPECT_EQ(parse_abort(WireWriter().text("f").text("l").number(std::int32_t{1}).take()).exit_code,
            1);
}

// It knows the secret: the run ends, and the blame lies within it.
TEST(StoreAttack, WhoTakesItselfForAnotherSizeIsBlamedWhereItStands) {
  const auto at = server();
  Identity huge = identity(1);
  huge.ranks = 1'000'000;
  EXPECT_EQ(join(*at, huge).error().message,
            "rank 500000 has another schedule (hash abc instead of abc)");
  ASSERT_TRUE(at->members()[1].report.has_value());
  EXPECT_EQ(at->members()[1].report->rank, 2);
}

TEST(StoreAttack, ARankJoinsOnceAndADoubleEndsNothing) {
  const auto at = server();
  const auto first = join(*at, identity(1));
  ASSERT_TRUE(first);
  Identity other = identity(1);
  EXPECT_EQ(join(*at, other).error().message, "process 1 has joined already");
  other.schedule_hash = "xyz";  // nor is what it holds the first one's fault
  EXPECT_FALSE(join(*at, other));
  EXPECT_FALSE(at->members()[1].report.has_value());
  EXPECT_EQ(at->members()[1].state, Member::State::Joined);
  EXPECT_TRUE(first.value()->set("key", "value"));
}

// Version 0.1 kept 906 MB of twelve messages.
TEST(StoreAttack, AMemberDoesNotFillTheServersMemory) {
  const auto at = server();
  const std::size_t before = resident_bytes();
  {
    Speaker greedy(at->port(), identity(0));
    ASSERT_TRUE(greedy.join());
    // Its length alone is refused: what follows is never read.
    WireWriter header;
    header.number(std::uint32_t{75u << 20}).number(static_cast<std::uint8_t>(StoreMessage::Set));
    greedy.send_bytes(header.number(std::uint64_t{1}).take() + std::string(1 << 20, 'x'));
    EXPECT_TRUE(greedy.cut_off());
  }
  Speaker hoarder(at->port(), identity(1));
  ASSERT_TRUE(hoarder.join());
  const std::string megabyte(1 << 20, 'x');
  int kept = 0, full = 0;
  for (int i = 0; i < 40; ++i) {
    hoarder.say(StoreMessage::Set,
                WireWriter().text("key" + std::to_string(i)).text(megabyte).take());
    const std::optional<Frame> answer = hoarder.hear();
    ASSERT_TRUE(answer);
    (answer->type == StoreMessage::Full ? full : kept) += 1;
  }
  EXPECT_EQ(kept, 7);  // of its 8 MiB, a little for every key
  EXPECT_EQ(full, 33);
  // Asks for what it has and does not read: one answer waits, not a thousand.
  for (int i = 0; i < 60; ++i) {
    WireWriter get;
    get.number(std::int64_t{1'000'000'000}).number(std::uint32_t{1}).text("key0");
    hoarder.say(StoreMessage::Get, get.take());
  }
  poll(nullptr, 0, 200);
  if (kMemoryIsOurs) {
    EXPECT_LT(resident_bytes(), before + (48u << 20));
  }
}

TEST(StoreAttack, WhoFloodsWithoutReadingIsNotReadFrom) {
  StoreRoom room(identity(0));
  StoreRoom::Seat& seat = room.enter("127.0.0.1", 0);
  const Identity who = identity(0);
  Channel client(Channel::End::Client, who.secret, limits_of(who));
  const auto to_client = [&] {
    client.take(std::string_view(seat.out).substr(seat.sent));
    room.was_sent(seat, seat.unsent(), 0);
  };
  for (int i = 0; i < 2; ++i) {
    room.receive(seat, client.take_reply(), 0);
    to_client();
    (void)client.next();
  }
  ASSERT_EQ(client.state(), Channel::State::Open);
  room.receive(seat, client.tagged(StoreMessage::Join, 0, join_body(who)), 0);
  ASSERT_EQ(seat.process, 0);
  room.answer_beats([] { return std::string(100, 'b'); });
  std::string beats;
  for (int i = 0; i < 20'000; ++i) beats += client.tagged(StoreMessage::Beat, 0, {});
  for (std::size_t at = 0; at < beats.size() && seat.wants_more(); at += 65536) {
    room.receive(seat, beats.substr(at, 65536), 0);  // in the pieces of a server
  }
  EXPECT_FALSE(seat.wants_more());
  EXPECT_LT(seat.unsent(), StoreRoom::kUnread + 4096);
  EXPECT_LT(seat.channel.buffered(), 65536u + 4096);
  // It reads, and is heard again, from where it was left.
  for (int i = 0; i < 100 && seat.channel.buffered() > 0; ++i) {
    room.was_sent(seat, seat.unsent(), 0);
    room.attend(0);
  }
  EXPECT_LT(seat.channel.buffered(), 100u);  // the first part of a message
  EXPECT_FALSE(seat.gone);
}

TEST(StoreAttack, HalfOpenConnectionsAreBoundedAndHoldUpNobody) {
  const auto at = server();
  const std::size_t before = resident_bytes();
  std::vector<Descriptor> silent;
  const auto open = [&](int count) {
    for (int i = 0; i < count; ++i) {
      Result<Descriptor> made = connect_to("127.0.0.1", at->port(), monotonic_ns() + 5'000'000'000);
      ASSERT_TRUE(made);
      if (i % 2 == 0) send(made.value().get(), "\x31\0\0\0", 4, MSG_NOSIGNAL);  // a length, no more
      silent.push_back(std::move(made).value());
    }
  };
  open(400);
  auto member = join(*at, identity(0));
  ASSERT_TRUE(member) << member.error().message;
  open(400);
  EXPECT_TRUE(member.value()->set("key", "value"));
  EXPECT_TRUE(join(*at, identity(1)));
  const auto closed = [&] {
    return std::ranges::count_if(silent, [](const Descriptor& one) {
      pollfd look{.fd = one.get(), .events = POLLIN, .revents = 0};
      char byte;
      return poll(&look, 1, 0) > 0 && recv(one.get(), &byte, 1, MSG_DONTWAIT) <= 0;
    });
  };
  EXPECT_TRUE(becomes([&] { return closed() >= 800 - static_cast<long>(StoreRoom::kStrangers); }));
  if (kMemoryIsOurs) {
    EXPECT_LT(resident_bytes(), before + (32u << 20));
  }
}

TEST(StoreAttack, StrangersThatStallAreCutOffInTime) {
  StoreRoom room(identity(0));
  StoreRoom::Seat& slow = room.enter("127.0.0.1", 0);
  room.receive(slow, "\x31", 5'000'000'000);
  room.attend(StoreRoom::kStrangerNs);
  EXPECT_FALSE(slow.gone);
  room.attend(StoreRoom::kStrangerNs + 1);
  EXPECT_TRUE(slow.gone);
}

TEST(StoreAttack, TheOldestStrangerMakesRoomForTheNext) {
  StoreRoom room(identity(0));
  std::vector<const StoreRoom::Seat*> seats;
  for (int i = 0; i < 800; ++i) seats.push_back(&room.enter("127.0.0.1", 0));
  const auto gone = [](const StoreRoom::Seat* seat) { return seat->gone; };
  EXPECT_EQ(std::ranges::count_if(seats, gone), 800 - static_cast<long>(StoreRoom::kStrangers));
  EXPECT_TRUE(seats[0]->gone);
  EXPECT_FALSE(seats[799]->gone);
  // Who has greeted is nearly in: those who say nothing go first.
  StoreRoom other(identity(0));
  StoreRoom::Seat& greeted = other.enter("127.0.0.1", 0);
  Channel client(Channel::End::Client, "any", limits_of(identity(0)));
  other.receive(greeted, client.take_reply(), 0);
  for (int i = 0; i < 800; ++i) (void)other.enter("127.0.0.1", 0);
  EXPECT_FALSE(greeted.gone);
}

// What a listener recorded of an honest connection proves nothing on another one.
TEST(StoreAttack, AReplayedHandshakeIsRefused) {
  StoreRoom room(identity(0));
  const Identity who = identity(1);
  Channel client(Channel::End::Client, who.secret, limits_of(who));
  std::string recorded;
  StoreRoom::Seat& honest = room.enter("127.0.0.1", 0);
  const auto to_server = [&](const std::string& bytes) {
    recorded += bytes;
    room.receive(honest, bytes, 0);
    client.take(std::string_view(honest.out).substr(honest.sent));
    room.was_sent(honest, honest.unsent(), 0);
    (void)client.next();
  };
  to_server(client.take_reply());
  to_server(client.take_reply());
  ASSERT_EQ(client.state(), Channel::State::Open);
  to_server(client.tagged(StoreMessage::Join, 0, join_body(who)));
  ASSERT_EQ(honest.process, 1);
  StoreRoom::Seat& replay = room.enter("127.0.0.1", 0);
  room.receive(replay, recorded, 0);
  EXPECT_EQ(replay.channel.state(), Channel::State::Denied);
  EXPECT_EQ(replay.process, -1);
  EXPECT_EQ(room.denied(), 1);
  // Nor does the server prove itself by what it is sent back.
  Channel mirror(Channel::End::Client, who.secret, limits_of(who));
  const std::string hello = mirror.take_reply();
  mirror.take(hello);
  EXPECT_FALSE(mirror.next());
  EXPECT_EQ(mirror.state(), Channel::State::Broken);
}

TEST(StoreAttack, AChangedRepeatedOrMissingMessageEndsItsConnection) {
  const Identity who = identity(0);
  for (int attack = 0; attack < 200; ++attack) {
    Channel server(Channel::End::Server, who.secret, limits_of(who));
    Channel client(Channel::End::Client, who.secret, limits_of(who));
    for (int i = 0; i < 2; ++i) {
      server.take(client.take_reply());
      (void)server.next();
      client.take(server.take_reply());
      (void)client.next();
    }
    ASSERT_EQ(client.state(), Channel::State::Open);
    std::string first =
        client.tagged(StoreMessage::Set, 1, WireWriter().text("k").text("v").take());
    const std::string second = client.tagged(StoreMessage::Clock, 2, {});
    if (attack == 0) {
      server.take(first + second);
      EXPECT_TRUE(server.next() && server.next());
      continue;
    }
    if (attack == 1) {
      server.take(first + first);
      EXPECT_TRUE(server.next());
    } else if (attack == 2) {
      server.take(second);
    } else {  // one bit of every byte; the length's may make it wait for more, never believe it
      const auto byte = static_cast<std::size_t>(attack) % first.size();
      first[byte] = static_cast<char>(first[byte] ^ (1 << (attack % 8)));
      server.take(first + second);
    }
    EXPECT_FALSE(server.next());
    if (attack <= 2) {
      EXPECT_EQ(server.state(), Channel::State::Broken);
    }
  }
}

TEST(Printable, LeavesTextAndShowsWhatMovesATerminal) {
  EXPECT_EQ(printable("rank 2 \xc3\xa4\xe6\xbc\xa2\xf0\x9f\x98\x80"),
            "rank 2 \xc3\xa4\xe6\xbc\xa2\xf0\x9f\x98\x80");
  EXPECT_EQ(printable(std::string("a\0b\x1b[31m\r\n\x7f", 11)), "a\\x00b\\x1b[31m\\x0d\\x0a\\x7f");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\xc2\\x9b31m");  // CSI as C1
  EXPECT_EQ(printable("\xe2\x80\xae"
                      "x"),
            "\\xe2\\x80\\xaex");  // right to left
  EXPECT_EQ(printable("\xc0\xaf\xed\xa0\x80\xf5"), "\\xc0\\xaf\\xed\\xa0\\x80\\xf5");  // no UTF-8
  EXPECT_EQ(printable("\xe6\xbc"), "\\xe6\\xbc");
  EXPECT_EQ(printable(std::string(50, 'x'), 10), "xxxxxxxxxx...");
}

}  // namespace
}  // namespace rehearse::exec
