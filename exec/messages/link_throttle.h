// SPDX-License-Identifier: Apache-2.0
// Links between processes as slow as a run asks for: `run --throttle`.
//
// Every other process is reached over a link of its own in each direction. Messages keep it one
// after the other, each for bytes / rate, and arrive the latency later. What really carries them
// has done so before: an exchange takes what it takes anyway, and the link's time from then on
// (Message::since, which both ends know). A link needs no core: a thread that got none in the
// meantime finds that its messages have arrived. Both ends of a message wait, so that a transfer
// ends on both sides together.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "exec/messages/composed_collectives.h"
#include "schedules/base/throttle.h"

namespace rehearse::exec {

class LinkThrottle {
 public:
  using Clock = std::chrono::steady_clock;
  LinkThrottle(const Throttle& throttle, std::int32_t processes)
      : throttle_(throttle), free_(2 * static_cast<std::size_t>(processes)) {}

  // Returns when the messages, all sent and received at once, have crossed, and says since when
  // they have. None: that is after the deadline, or end() was called. From any number of threads.
  std::optional<Clock::time_point> cross(std::span<const Message> messages,
                                         Clock::time_point deadline);
  void end();  // every cross() under way and to come returns at once

 private:
  const Throttle throttle_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool over_ = false;
  std::vector<Clock::time_point> free_;  // by process and direction: in, out
};

}  // namespace rehearse::exec
