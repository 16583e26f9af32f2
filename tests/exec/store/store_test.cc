// SPDX-License-Identifier: Apache-2.0
// The store: keys among clients, who may join, and what bad clients and dead ones do to it:
// nothing.
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "exec/status/status.h"
#include "exec/store/store.h"

namespace rehearse::exec {
namespace {

constexpr double kPatience = 20;  // seconds; nothing here takes them

Identity identity(std::int32_t process, std::int32_t processes = 2) {
  return {.process = process,
          .processes = processes,
          .ranks = 4,
          .job = "nonce",
          .version = "1",
          .schedule_hash = "abc",
          .secret = "what only they know",
          .kept = 24u << 20};
}

std::unique_ptr<StoreServer> server(std::int32_t processes = 2) {
  Result<std::unique_ptr<StoreServer>> made = StoreServer::start(identity(0, processes), 0);
  EXPECT_TRUE(made) << made.error().message;
  return std::move(made).value();
}

Result<std::unique_ptr<StoreClient>> join(const StoreServer& at, const Identity& who,
                                          StoreClient::Events events = {},
                                          const char* host = "127.0.0.1") {
  return StoreClient::join(host, at.port(), who, kPatience, kPatience, std::move(events));
}

template <class Condition>
bool becomes(const Condition& condition) {
  for (int i = 0; i < 2000; ++i) {
    if (condition()) return true;
    poll(nullptr, 0, 10);
  }
  return false;
}

TEST(Store, CarriesKeysBetweenProcesses) {
  const auto at = server();
  auto a = join(*at, identity(0)), b = join(*at, identity(1));
  ASSERT_TRUE(a);
  ASSERT_TRUE(b);
  std::thread later([&] { EXPECT_TRUE(a.value()->set("key", std::string("\0value", 6))); });
  const Result<std::string> got = b.value()->get("key", kPatience);
  later.join();
  ASSERT_TRUE(got);
  EXPECT_EQ(got.value(), std::string("\0value", 6));
  EXPECT_TRUE(b.value()->wait({"key"}, 0.01));
  EXPECT_EQ(a.value()->add("count", 3).value(), 3);
  EXPECT_EQ(b.value()->add("count", -1).value(), 2);
  const std::string large(20'000'000, 'x');
  EXPECT_TRUE(a.value()->set("large", large));
  EXPECT_EQ(b.value()->get("large", kPatience).value(), large);
  const Result<std::int64_t> offset = a.value()->clock_offset();
  ASSERT_TRUE(offset);
  EXPECT_LT(std::abs(offset.value()), 1'000'000'000);  // one machine: one clock
}

TEST(Store, SpeaksIpv6WhereTheMachineDoes) {
  for (const char* listens : {"::1", ""}) {  // there alone, and everywhere
    const auto at = StoreServer::start(identity(0), 0, listens);
    if (!at || !connect_to("::1", at.value()->port(), monotonic_ns() + 1'000'000'000)) {
      GTEST_SKIP() << "SKIPPED: no IPv6 loopback here";
    }
    EXPECT_TRUE(join(*at.value(), identity(0), {}, "::1"));
  }
}

TEST(Store, EndsAWaitInTimeAndNamesTheKey) {
  const auto at = server();
  auto a = join(*at, identity(0));
  ASSERT_TRUE(a);
  const Result<std::string> got = a.value()->get("never", 0.05);
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().message, "store: nobody has set never");
  const Result<> waited = a.value()->wait({"neither", "nor"}, 0.05);
  ASSERT_FALSE(waited);
  EXPECT_EQ(waited.error().message, "store: nobody has set neither");
}

TEST(Store, RefusesWhoHoldsSomethingElse) {
  const auto at = server();
  Identity other = identity(1);
  other.schedule_hash = "xyz";
  const auto refused = join(*at, other);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "rank 2 has another schedule (hash xyz instead of abc)");
  const Member member = at->members()[1];
  ASSERT_TRUE(member.report.has_value());
  EXPECT_EQ(member.report->kind, FailureReport::Kind::Refused);
  EXPECT_EQ(member.report->rank, 2);

  other = identity(1);
  other.version = "2";
  EXPECT_EQ(join(*at, other).error().message,
            "rank 2 has another version of rehearse (2 instead of 1)");
  EXPECT_EQ(join(*at, identity(1, 4)).error().message,
            "rank 1 was started for 4 processes instead of 2");
  other = identity(1);
  other.job = "of yesterday";
  EXPECT_EQ(join(*at, other).error().message,
            "127.0.0.1:" + std::to_string(at->port()) + ": this port serves another job");

  auto good = join(*at, identity(0));
  ASSERT_TRUE(good);
  EXPECT_EQ(join(*at, identity(0)).error().message, "process 0 has joined already");
}

TEST(Store, NoticesWhoLeavesAndWhoDies) {
  const auto at = server();
  std::atomic<int> changes = 0;
  at->on_change([&] { ++changes; });
  auto a = join(*at, identity(0)), b = join(*at, identity(1));
  ASSERT_TRUE(a);
  ASSERT_TRUE(b);
  a.value()->report({FailureReport::Kind::Timeout, 1, 3, "waited"});
  a.value()->leave();
  EXPECT_TRUE(becomes([&] { return at->members()[0].state == Member::State::Left; }));
  ASSERT_TRUE(at->members()[0].report.has_value());
  EXPECT_EQ(at->members()[0].report->text, "waited");
  EXPECT_EQ(at->members()[1].state, Member::State::Joined);
  b = Error{"closed"};  // without goodbye
  EXPECT_TRUE(becomes([&] { return at->members()[1].state == Member::State::Lost; }));
  EXPECT_GE(changes, 5);
}

TEST(Store, CarriesHeartbeatsAndAborts) {
  const auto at = server();
  std::atomic<bool> aborted = false;
  at->answer_beats([] { return std::string("step 4"); });
  std::atomic<bool> heard = false;
  StoreClient::Events events;
  events.beat = [] { return std::string("step 3"); };
  events.heard = [&](const std::string& answer) { heard = answer == "step 4"; };
  events.aborted = [&](const std::string& why) { aborted = why == "rank 2 died"; };
  auto a = join(*at, identity(0), events);
  ASSERT_TRUE(a);
  EXPECT_TRUE(becomes([&] { return heard.load(); }));
  EXPECT_TRUE(becomes([&] { return at->members()[0].beat == "step 3"; }));
  std::thread ends([&] { at->abort("rank 2 died"); });
  const Result<std::string> got = a.value()->get("never", kPatience);  // ends with the run
  ends.join();
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().message, "rank 2 died");
  EXPECT_TRUE(becomes([&] { return aborted.load(); }));
  EXPECT_EQ(join(*at, identity(1)).error().message, "the run has ended already");
}

TEST(Store, TellsItsClientsWhenItEnds) {
  auto at = server();
  std::atomic<bool> lost = false;
  StoreClient::Events events;
  events.lost = [&](bool closed) { lost = closed; };
  auto a = join(*at, identity(0), events);
  ASSERT_TRUE(a);
  at.reset();
  EXPECT_TRUE(becomes([&] { return lost.load(); }));
  EXPECT_FALSE(a.value()->set("key", "value"));
}

TEST(Store, LivesThroughGarbage) {
  const auto at = server();
  std::mt19937 random(5);
  std::vector<Descriptor> silent;  // connections that stay open: nobody waits for them
  for (int i = 0; i < 60; ++i) {
    Result<Descriptor> made = connect_to("127.0.0.1", at->port(), monotonic_ns() + 5'000'000'000);
    ASSERT_TRUE(made);
    std::string bytes(random() % 200, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    if (i % 3 == 0) bytes.insert(0, std::string("\x10\0\0\0\0", 5));  // a plausible length and type
    if (i % 3 == 1) bytes = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    send(made.value().get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (i % 5 == 0) silent.push_back(std::move(made).value());
  }
  auto a = join(*at, identity(0));
  ASSERT_TRUE(a);
  EXPECT_TRUE(a.value()->set("key", "value"));
  EXPECT_EQ(a.value()->get("key", 1).value(), "value");
  EXPECT_EQ(at->members()[1].state, Member::State::Expected);
}

TEST(Store, ABusyPortAndAnAbsentStoreAreErrorsInTime) {
  const auto at = server();
  const auto second = StoreServer::start(identity(0), at->port());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().message,
            "port " + std::to_string(at->port()) + ": Address already in use");
  const Result<Descriptor> listens = listen_on(0);
  ASSERT_TRUE(listens);
  // Somebody listens but says nothing; then nobody listens.
  const std::uint16_t port = port_of(listens.value());
  EXPECT_NE(StoreClient::join("127.0.0.1", port, identity(0), 0.2, 1, {})
                .error()
                .message.find("does not answer"),
            std::string::npos);
  EXPECT_FALSE(StoreClient::join("127.0.0.1", 1, identity(0), 0.2, 1, {}));
}

}  // namespace
}  // namespace rehearse::exec
