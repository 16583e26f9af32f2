// SPDX-License-Identifier: Apache-2.0
// Messages keep a throttled link one after the other; other links, and the other direction, are
// others. Times are lower bounds, upper ones far above what a busy machine adds.
#include "exec/messages/link_throttle.h"

#include <gtest/gtest.h>

#include <thread>

namespace rehearse::exec {
namespace {

using std::chrono::milliseconds;
using Clock = LinkThrottle::Clock;

constexpr std::int64_t kBytes = 100'000;  // 100 ms on a link of 1 MB/s
constexpr Throttle kSlow{.bytes_per_ns = 1e-3, .latency_ns = 50'000'000};

Message message(std::int32_t process, bool send, std::int64_t bytes = kBytes) {
  return {.process = process, .bytes = bytes, .send = send, .since = Clock::now()};
}

// For how long the messages are under way.
milliseconds crossing(const std::vector<Message>& messages) {
  LinkThrottle throttle(kSlow, 3);
  const Clock::time_point begin = Clock::now();
  EXPECT_TRUE(throttle.cross(messages, begin + milliseconds(60000)));
  return std::chrono::duration_cast<milliseconds>(Clock::now() - begin);
}

TEST(LinkThrottle, TakesTheBytesAndTheLatency) {
  const milliseconds one = crossing({message(1, true)});
  EXPECT_GE(one, milliseconds(150));
  EXPECT_LT(one, milliseconds(250));
}

TEST(LinkThrottle, MessagesOfOneLinkFollowOneAnother) {
  EXPECT_GE(crossing({message(1, true), message(1, true)}), milliseconds(250));
}

TEST(LinkThrottle, LinksAndDirectionsDoNotShare) {
  const milliseconds all =
      crossing({message(1, true), message(1, false), message(2, true), message(2, false)});
  EXPECT_GE(all, milliseconds(150));
  EXPECT_LT(all, milliseconds(250));
}

TEST(LinkThrottle, ALinkIsBusyForTheNextCallToo) {
  LinkThrottle throttle(kSlow, 3);
  const Clock::time_point begin = Clock::now(), late = begin + milliseconds(60000);
  std::thread other([&] { throttle.cross(std::vector{message(1, true)}, late); });
  throttle.cross(std::vector{message(1, true)}, late);
  other.join();
  EXPECT_GE(Clock::now() - begin, milliseconds(250));
}

// Who asked long ago, and got no core since, finds the message there, and the link free.
TEST(LinkThrottle, CountsFromWhenBothEndsHadAsked) {
  LinkThrottle throttle(kSlow, 3);
  const Clock::time_point now = Clock::now(), late = now + milliseconds(60000);
  Message asked = message(1, true);
  asked.since = now - milliseconds(400);
  for (const milliseconds since : {milliseconds(250), milliseconds(150)}) {
    const auto arrived = throttle.cross(std::vector{asked}, late);
    ASSERT_TRUE(arrived);
    EXPECT_EQ(*arrived, now - since);
  }
}

TEST(LinkThrottle, NothingIsSlowedWithoutAThrottle) {
  LinkThrottle throttle({}, 3);
  const Clock::time_point begin = Clock::now();
  EXPECT_TRUE(throttle.cross(std::vector{message(1, true, 1LL << 40)}, begin));
}

TEST(LinkThrottle, EndsAtTheDeadlineAndWhenItIsOver) {
  LinkThrottle throttle(kSlow, 3);
  const Clock::time_point begin = Clock::now();
  EXPECT_FALSE(throttle.cross(std::vector{message(1, true)}, begin + milliseconds(20)));
  std::thread ends([&] {
    std::this_thread::sleep_for(milliseconds(20));
    throttle.end();
  });
  EXPECT_FALSE(
      throttle.cross(std::vector{message(2, true, 100 * kBytes)}, begin + milliseconds(60000)));
  ends.join();
  EXPECT_LT(Clock::now() - begin, milliseconds(5000));
}

TEST(Throttle, IsReadOrRefusedInOneLine) {
  const Result<Throttle> read = read_throttle("0.5,200");
  ASSERT_TRUE(read);
  EXPECT_EQ(read.value().occupied_ns(1'000'000), 2'000'000);
  EXPECT_EQ(read.value().latency_ns, 200'000);
  EXPECT_EQ(throttle_text(read.value()), "0.5 GB/s each way between two processes, 200 us later");
  for (const char* wrong : {"", "1", "1,", ",1", "0,1", "-1,1", "1,-1", "1,2,3", "1 ,2", "nan,1",
                            "1,inf", "1e9,1", "x,y"}) {
    const Result<Throttle> refused = read_throttle(wrong);
    ASSERT_FALSE(refused) << wrong;
    EXPECT_NE(refused.error().message.find("is not GBPS,LATENCY_US"), std::string::npos);
  }
}

}  // namespace
}  // namespace rehearse::exec
